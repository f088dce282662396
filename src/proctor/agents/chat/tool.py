"""The bash tool: what the model is told of it, a call of it, and what came of one.

Every command is a shell of its own. A call that cannot be run is answered with a sentence, from
which the model can learn; it is no error of the trial.
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

_LONGEST_COMMAND: Final = 120_000
"""Bytes; the kernel takes no argument of more than 128 KiB."""
_TIMED_OUT: Final = "Command timed out after"
_ARGUMENTS: Final = frozenset({"command", "timeout"})


def describe_tool(settings: ChatSettings) -> Object:
    """The tool as the model sees it."""
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
    """As the model gave them."""


class Malformed(msgspec.Struct, frozen=True):
    """A call that cannot be run."""

    sentence: str
    """What the model is told."""


class Result(msgspec.Struct, frozen=True):
    """What came of a command."""

    output: str
    """As the model is shown it."""
    kept: str
    """The same without secrets, taken out before the middle was cut: half of one is not found."""
    exit_code: int
    n_cut: int
    """Characters of its output that the model is not shown."""
    seconds: float
    """Wall time."""
    is_ended: bool = False
    """Whether it was ended because its time was over."""


def parse_call(call: Call, settings: ChatSettings) -> Command | Malformed:
    """What a call asks for."""
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
    """Run a command; one that does not end in time is ended."""
    start = time.monotonic()
    text = command.text.encode(errors="replace").decode()
    try:
        done = await environment.exec(command=text, env=env, timeout_sec=command.timeout_sec)
    except RuntimeError as error:
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
    """A text of at most so many characters and a note, and how many were cut out of its middle."""
    n_cut = len(text) - limit
    if n_cut <= 0:
        return text, 0
    half = limit // 2
    return text[: limit - half] + render_cut(n_cut) + text[len(text) - half :], n_cut


def render_result(result: Result) -> str:
    """What the model is told of a command."""
    if result.is_ended:
        return result.output
    return f"[exit code: {result.exit_code}]\n{result.output}"
