"""The bash tool: its description, its calls and their results.

Every command runs in a new shell. A call that cannot be run is answered with an explanation, so
that the model can correct it; it is not an error of the trial.
"""

import math
import time
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from proctor.agents.chat.settings import ChatSettings
from proctor.agents.chat.wire import Call, Object, parse_object
from proctor.traces.commands import TIMED_OUT, render_cut
from proctor.traces.writer import Redactor
from proctor.trial.environment import Environment

NAME: Final = "bash"

# Bytes. The kernel limits one argument to 128 KiB (MAX_ARG_STRLEN); some margin is left.
_LONGEST_COMMAND: Final = 120_000
_TIMED_OUT: Final = "Command timed out after"
_ARGUMENTS: Final = frozenset({"command", "timeout"})


def describe_tool(settings: ChatSettings) -> Object:
    """Return the definition of the tool that is sent to the model."""
    timeout = (
        f"Seconds after which the command is ended: {settings.command_timeout_sec} if left out, "
        f"{settings.max_command_timeout_sec} at most."
    )
    return {
        "type": "function",
        "function": {
            "name": NAME,
            "description": (
                "Run a command with bash -c and get its exit code and output. Each command runs in "
                "a new shell: directory and variables do not last, files and background processes "
                "do. Nothing can be typed into it."
            ),
            "parameters": {
                "type": "object",
                "properties": {
                    "command": {"type": "string", "description": "The command."},
                    "timeout": {"type": "integer", "description": timeout},
                },
                "required": ["command"],
            },
        },
    }


class Command(msgspec.Struct, frozen=True):
    """A call that can be run."""

    text: str
    timeout_sec: int
    arguments: dict[str, Any]
    """All arguments, as the model gave them."""


class Malformed(msgspec.Struct, frozen=True):
    """A call that cannot be run."""

    sentence: str
    """The reply to the model."""


class Result(msgspec.Struct, frozen=True):
    """Result of a command."""

    output: str
    """Output as the model sees it."""
    kept: str
    """Output for the trajectory: redacted before its middle was cut, so no half secret remains."""
    exit_code: int
    n_cut: int
    """Number of characters cut from the output."""
    seconds: float
    """Wall time."""
    is_ended: bool = False
    """Whether it timed out."""


def parse_call(call: Call, settings: ChatSettings) -> Command | Malformed:
    """Parse a call; what the model got wrong becomes the reply of a `Malformed`."""
    if call.name != NAME:
        return Malformed(f"error: there is no tool {call.name[:60]!r}; the only tool is {NAME}")
    arguments = parse_object(call.arguments)
    if arguments is None:
        return Malformed(
            f"error: the {len(call.arguments):,} characters of arguments are no JSON object; "
            'expected such as {"command": "ls"}'
        )
    if unknown := sorted(arguments.keys() - _ARGUMENTS):
        return Malformed(f"error: {NAME} takes command and timeout, not {', '.join(unknown)[:200]}")
    command, timeout = arguments.get("command"), arguments.get("timeout")
    if problem := _find_problem(command, timeout):
        return Malformed(f"error: {problem}")
    seconds = settings.command_timeout_sec if timeout is None else math.ceil(timeout)
    return Command(str(command), min(seconds, settings.max_command_timeout_sec), arguments)


def _find_problem(command: object, timeout: object) -> str | None:
    if not isinstance(command, str) or not command.strip():
        return "command is missing or empty; expected a shell command as text"
    if "\0" in command:
        return "command holds a zero byte; no shell takes that"
    n_bytes = len(command.encode(errors="replace"))
    if n_bytes > _LONGEST_COMMAND:
        return (
            f"command has {n_bytes:,} bytes; at most {_LONGEST_COMMAND:,} can be run at once. "
            "Write long files in parts"
        )
    is_number = isinstance(timeout, int | float) and not isinstance(timeout, bool)
    if timeout is not None and not (is_number and 0 < timeout < math.inf):  # type: ignore[operator]
        return f"timeout is {str(timeout)[:60]}; expected a number of seconds above 0"
    return None


async def run_command(
    command: Command,
    environment: Environment,
    env: Mapping[str, str],
    output_limit: int,
    redactor: Redactor,
) -> Result:
    """Run a command, with a timeout."""
    start = time.monotonic()
    # JSON can contain lone surrogates, which no command line can.
    text = command.text.encode(errors="replace").decode()
    try:
        done = await environment.exec(command=text, env=env, timeout_sec=command.timeout_sec)
    except RuntimeError as error:
        # Environments raise a plain RuntimeError for a timeout, as harbor's do.
        if not str(error).startswith(_TIMED_OUT):
            raise
        said = (
            f"The command was ended after {command.timeout_sec} seconds; what it printed is not "
            "known. Give it more time with timeout, or run it in the background with its output "
            "in a file."
        )
        return Result(said, said, TIMED_OUT, 0, time.monotonic() - start, is_ended=True)
    printed = "".join(filter(None, (done.stdout, done.stderr)))
    shown, n_cut = cut_middle(printed, output_limit)
    kept, _ = cut_middle(redactor.redact_text(printed), output_limit)
    return Result(shown, kept, done.return_code, n_cut, time.monotonic() - start)


def cut_middle(text: str, limit: int) -> tuple[str, int]:
    """Cut a text to `limit` characters plus a note in its middle; return also the number cut."""
    n_cut = len(text) - limit
    if n_cut <= 0:
        return text, 0
    half = limit // 2
    return text[: limit - half] + render_cut(n_cut) + text[len(text) - half :], n_cut


def render_result(result: Result) -> str:
    """Render a command's result for the model."""
    if result.is_ended:
        return result.output
    return f"[exit code: {result.exit_code}]\n{result.output}"
