"""`command`: any shell command run inside the environment. This is how people run claude or codex.

    proctor run -p TASKS -a command --ak command='claude -p "$(cat)" --dangerously-skip-permissions'

The command runs under `bash -o pipefail -c`, as the agent's user, in the working directory:

    stdin                       the instruction
    PROCTOR_INSTRUCTION_FILE    a file with the same instruction
    PROCTOR_MODEL               the model, if one is given (-m)
    PROCTOR_MCP_SERVERS         a JSON file, {"mcpServers": {…}}, if there are servers
    PROCTOR_SKILLS_DIR          a directory of skills, if there is one
    PROCTOR_TRAJECTORY          where to write a trace; TrajectoryWriter uses it
    --ae NAME=VALUE             further variables; they override the ones above

Its output is recorded with times while it runs (proctor.trial.output_log), and written to
<trial>/agent/command.txt when it ends or is killed. Of more than 16 MiB, the first and the last
8 MiB are kept, and a finding reports the cut. In environments that show no output while a command
runs, it is written to /logs/agent/command.txt inside.
If the command leaves /logs/agent/usage.json, the trial records its tokens and cost. It may write a
trace to $PROCTOR_TRAJECTORY or /workspace/trajectory.jsonl, which the trial collects.
"""

import json
import os
import posixpath
import re
import shlex
import tempfile
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

import msgspec
from pydantic import StringConstraints

from proctor.agents.revision import first_line, staged
from proctor.agents.settings import Settings, ShellCommand, parse_settings, redact_env
from proctor.errors import AgentError, NonZeroAgentExitCodeError, ProctorError
from proctor.files import read_small
from proctor.task.environment import McpServer
from proctor.trial.agent import AgentContext, AgentOrder
from proctor.trial.environment import Environment, ExecResult, find_output_log
from proctor.trial.finding import Finding, FindingCode
from proctor.trial.paths import INSIDE

HOME = "/installed-agent"
"""Directory of the agent's files in the environment: the one harbor uses for installed agents."""
OUTPUT = "command.txt"
INSTRUCTION = "instruction.md"
MCP_SERVERS = "mcp-servers.json"
USAGE = "usage.json"

RUN_BY = {".py": "python3 ", ".js": "node ", ".sh": "bash "}
"""Interpreters of programs that cannot be executed themselves."""

_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_EXPANDED = re.compile(r"[$`*?\[{~]")
# Bytes kept at each end of a very long output: the same limit as for every other command.
_HALF = 8 << 20
# Timeout for cutting the output, in seconds.
_CUT_SEC = 60
# Characters of output shown in an error: enough for the error before pip's or npm's advice.
_TAIL = 4000


class CommandSettings(Settings):
    """kwargs of `command`."""

    command: ShellCommand
    """Shell command that solves the task."""
    version_command: ShellCommand | None = None
    """Shell command run in the environment at setup; its first line of output is the version."""
    tree: Path | None = None
    """Directory on the host, copied to /installed-agent; its digest is the agent's revision."""
    name: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")] = (
        "command"
    )
    """Name in results, to tell two commands in one job apart."""


def check_program(settings: CommandSettings) -> None:
    """Check that the program which the command runs first can be executed, if it is in the tree.

    Otherwise every trial fails alike, with exit code 126 or 127. What an earlier command may have
    made, and what a version command may have changed, is not checked.

    Raises:
        AgentError: the tree has no such file, or it is not executable.
    """
    found = _find_first_program(settings.command)
    if settings.tree is None or settings.version_command is not None or found is None:
        return
    word, place = found
    file = settings.tree / PurePosixPath(place).relative_to(HOME)
    if not os.path.lexists(file):
        raise AgentError(
            f"the command runs {word}, but there is no {file}; expected a file of the agent's "
            f"directory, which is copied to {HOME}"
        )
    if file.is_file() and not file.stat().st_mode & 0o111:
        by = RUN_BY.get(file.suffix, "bash ")
        raise AgentError(
            f"{file}: not executable, but the command runs it directly as {word}. Run "
            f"`chmod +x {shlex.quote(str(file))}`, or name its interpreter: "
            f"--command {shlex.quote(settings.command.replace(word, by + word, 1))}"
        )


def _find_first_program(command: str) -> tuple[str, str] | None:
    """The first program that a command runs, as written and as a path, if it is below HOME."""
    lexer = shlex.shlex(command, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    try:
        words = [word for word in lexer if word != "exec" and not _ASSIGNMENT.match(word)]
    except ValueError:
        return None  # an unclosed quote, which the shell reports
    here = "/"
    if words[:1] == ["cd"] and words[2:3] in (["&&"], [";"]):
        here, words = words[1], words[3:]
    word = words[0] if words else ""
    place = posixpath.normpath(posixpath.join(here, word))
    # What a shell would expand, or look up in PATH, names no file here.
    is_file = "/" in word and place.startswith(f"{HOME}/") and not _EXPANDED.search(here + word)
    return (word, place) if is_file else None


class Usage(msgspec.Struct, frozen=True):
    """/logs/agent/usage.json. Each key stands by itself: a bad one does not void the others."""

    n_input_tokens: Annotated[int, msgspec.Meta(ge=0)] | None = None
    """All input, cached tokens included."""
    n_cache_tokens: Annotated[int, msgspec.Meta(ge=0)] | None = None
    n_output_tokens: Annotated[int, msgspec.Meta(ge=0)] | None = None
    cost_usd: Annotated[float, msgspec.Meta(ge=0)] | None = None
    """US dollars."""
    cache_write_tokens: Annotated[int, msgspec.Meta(ge=0)] | None = None
    """Part of the input, written to a cache. Its name is the record's: harbor has no such count."""


class CommandAgent:
    """Runs a shell command in the environment."""

    def __init__(self, order: AgentOrder) -> None:
        self._order = order
        self._settings = parse_settings(CommandSettings, order.config)
        self._version: str | None = None
        self._findings: list[Finding] = []

    def name(self) -> str:
        """Return the name used in results."""
        return self._settings.name

    def version(self) -> str | None:
        """Return what the version command printed; None before setup, or without a command."""
        return self._version

    async def setup(self, environment: Environment) -> None:
        """Upload the agent's files and run its version command.

        Raises:
            NonZeroAgentExitCodeError: the version command failed.
            AgentError: the files cannot be copied, or the output contains no version.
        """
        if self._settings.tree:
            with staged(self._settings.tree) as tree:
                await environment.upload_dir(source_dir=tree, target_dir=HOME)
            await environment.exec(command=f"chmod -R a+rX {HOME}", user="root")
        if command := self._settings.version_command:
            result = await environment.exec(command=command, env=dict(self._order.extra_env))
            output = _spoken(result)
            if result.return_code != 0:
                raise self._failure("version_command", command, result.return_code, output)
            self._version = first_line(output, f"version_command {command!r}")

    async def run(self, instruction: str, environment: Environment, context: AgentContext) -> None:
        """Run the command.

        Raises:
            NonZeroAgentExitCodeError: it failed; the message shows the end of its output.
        """
        await _put_text(environment, instruction, INSTRUCTION)
        if self._order.mcp_servers:
            named = {server.name: _describe_server(server) for server in self._order.mcp_servers}
            await _put_text(
                environment, json.dumps({"mcpServers": named}, indent=2) + "\n", MCP_SERVERS
            )
        command = shlex.quote(self._settings.command)
        # pipefail: if the command is `agent | tee log`, the agent's failure counts.
        whole = f"bash -o pipefail -c {command} < {_inside(INSTRUCTION)}"
        if log := find_output_log(environment):
            log.title, log.replaces_results = self._settings.command, True
            try:
                result = said = await environment.exec(command=whole, env=self._env())
            finally:
                log.write_text(OUTPUT)
        else:
            result, said = await self._run_into_file(whole, environment)
        if result.return_code != 0:
            raise self._failure(
                "Command", self._settings.command, result.return_code, _spoken(said)
            )

    async def _run_into_file(
        self, command: str, environment: Environment
    ) -> tuple[ExecResult, ExecResult]:
        """Run a command in an environment that shows no output while commands run.

        Its output is written to a file inside, so that it survives a timeout. Returns the result,
        and that of a command which printed the end of the file if it failed.
        """
        output = _inside(OUTPUT)
        try:
            result = await environment.exec(command=f"{command} > {output} 2>&1", env=self._env())
        finally:
            await self._cut_output(environment)
        if result.return_code == 0:
            return result, result
        return result, await environment.exec(command=f"tail -c {4 * _TAIL} {output}")

    async def _cut_output(self, environment: Environment) -> None:
        """Cut the middle out of a very long output, even if the command was killed."""
        try:
            done = await environment.exec(command=_cutting(_inside(OUTPUT)), timeout_sec=_CUT_SEC)
        except (ProctorError, OSError, RuntimeError) as error:
            # This runs in a `finally`: raising here would hide how the command itself ended.
            self._order.logger.warning("could not check the size of %s: %s", _inside(OUTPUT), error)
            return
        n_cut = (done.stdout or "").strip()
        if done.return_code == 0 and n_cut.isdecimal():
            self._findings.append(
                Finding(
                    code=FindingCode.OUTPUT_CUT,
                    phase="agent",
                    message=f"the agent printed more than is kept: {int(n_cut):,} bytes were cut",
                    detail={"file": _inside(OUTPUT), "bytes_cut": int(n_cut)},
                )
            )

    def take_findings(self) -> list[Finding]:
        """Return the findings of the last run, and forget them."""
        findings, self._findings = self._findings, []
        return findings

    def populate_context_post_run(self, context: AgentContext) -> None:
        """Copy tokens and cost from usage.json, if there is one; log a warning if it is invalid."""
        path = self._order.logs_dir / USAGE
        # The agent controls this directory: a symlink would be resolved on the host.
        if path.is_symlink() or not path.is_file():
            return
        try:
            usage, ignored = parse_usage(read_small(str(path)))
        except (OSError, msgspec.DecodeError) as error:
            self._order.logger.warning("%s ignored: %s", _inside(USAGE), error)
            return
        for why in ignored:
            self._order.logger.warning("%s: ignored: %s", _inside(USAGE), why)
        context.n_input_tokens = usage.n_input_tokens
        context.n_cache_tokens = usage.n_cache_tokens
        context.n_output_tokens = usage.n_output_tokens
        context.cost_usd = usage.cost_usd
        if usage.cache_write_tokens is not None:
            written = {"cache_write_tokens": usage.cache_write_tokens}
            context.metadata = {**(context.metadata or {}), **written}

    def _env(self) -> dict[str, str]:
        env = {"PROCTOR_INSTRUCTION_FILE": _inside(INSTRUCTION)}
        if model := self._order.config.model_name:
            env["PROCTOR_MODEL"] = model
        if self._order.mcp_servers:
            env["PROCTOR_MCP_SERVERS"] = _inside(MCP_SERVERS)
        if self._order.skills_dir:
            env["PROCTOR_SKILLS_DIR"] = self._order.skills_dir
        return {**env, **self._order.extra_env}

    def _failure(
        self, what: str, command: str, code: int, output: str
    ) -> NonZeroAgentExitCodeError:
        redactor = redact_env(self._order.extra_env)
        end = redactor.redact_text(output.strip())[-_TAIL:]
        return NonZeroAgentExitCodeError(
            f"{what} failed (exit {code}): {command}\n{end or '(no output)'}"
        )


def parse_usage(data: bytes) -> tuple[Usage, list[str]]:
    """Parse usage.json, key by key; also returns why keys are ignored."""
    kept: dict[str, Any] = {}
    ignored = []
    for name, value in msgspec.json.decode(data, type=dict[str, Any]).items():
        if name not in Usage.__struct_fields__:
            ignored.append(
                f"{name[:60]!r} is unknown; expected {', '.join(Usage.__struct_fields__)}"
            )
            continue
        try:
            kept[name] = getattr(msgspec.convert({name: value}, Usage), name)
        except msgspec.ValidationError as error:
            ignored.append(str(error))
    return Usage(**kept), ignored


def _describe_server(server: McpServer) -> dict[str, object]:
    if server.transport == "stdio":
        return {"type": "stdio", "command": server.command, "args": list(server.args)}
    kind = "http" if server.transport == "streamable-http" else server.transport
    return {"type": kind, "url": server.url}


def _cutting(path: str) -> str:
    """Return a shell command that cuts the middle out of a long file and prints its size."""
    # It writes a new file and renames it, because a process left in the background may still
    # be appending to the old one.
    ends = (
        f"head -c {_HALF} {path}; printf '\\n[%s bytes cut here]\\n' $cut; "
        f"tail -c +$((size - {_HALF} + 1)) {path} | head -c {_HALF}"
    )
    return (
        f"size=$(wc -c < {path}) && cut=$((size - 2 * {_HALF})) && [ $cut -gt 0 ] || exit 0; "
        f"{{ {ends}; }} > {path}.cut && mv {path}.cut {path} && echo $cut "
        f"|| {{ rm -f {path}.cut; exit 1; }}"
    )


def _inside(name: str) -> str:
    return str(INSIDE.agent_dir / name)


def _spoken(result: ExecResult) -> str:
    return "\n".join(filter(None, (result.stdout, result.stderr)))


async def _put_text(environment: Environment, text: str, name: str) -> None:
    """Upload a text to /logs/agent.

    Always through the environment, even if that directory is mounted from the host: writing on
    the host would follow a symlink that the agent left there.
    """
    with tempfile.TemporaryDirectory(prefix="proctor-agent-") as folder:
        path = Path(folder, name)
        path.write_text(text, encoding="utf-8")
        # The agent may run as any user, and must be able to read it.
        path.chmod(0o644)
        await environment.upload_file(source_path=path, target_path=_inside(name))
