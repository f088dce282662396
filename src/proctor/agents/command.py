"""`command`: any shell command run inside the environment. This is how people run claude or codex.

    proctor run -p TASKS -a command --ak command='claude -p "$(cat)" --dangerously-skip-permissions'

The command runs under `bash -o pipefail -c`, as the agent's user, in the working directory:

    stdin                       the instruction
    PROCTOR_INSTRUCTION_FILE    a file that holds it too
    PROCTOR_MODEL               the model, where one is given (-m)
    PROCTOR_MCP_SERVERS         a JSON file, {"mcpServers": {…}}, where there are servers
    PROCTOR_SKILLS_DIR          a directory of skills, where there is one
    --ae NAME=VALUE             whatever else it is to have; these win

What it prints goes to /logs/agent/command.txt as it comes, so that it is there too when the command
is killed; of more than 16 MiB the first half and the last are kept, and that is a finding. Of
/logs/agent/usage.json, where it leaves one, its tokens and cost are taken. It may write
/logs/agent/trajectory.jsonl or /workspace/trajectory.jsonl, which the trial collects.
"""

import json
import shlex
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import msgspec
from pydantic import StringConstraints

from proctor.agents.revision import first_line, staged
from proctor.agents.secrets import redact_env
from proctor.agents.settings import Settings, ShellCommand, parse_settings
from proctor.errors import NonZeroAgentExitCodeError, ProctorError
from proctor.files import read_small
from proctor.task.environment import McpServer
from proctor.trial.agent import AgentContext
from proctor.trial.environment import Environment, ExecResult
from proctor.trial.finding import Finding, FindingCode
from proctor.trial.order import AgentOrder
from proctor.trial.paths import INSIDE

HOME = "/installed-agent"
"""Where the agent's tree lies inside; harbor's place for installed agents."""
OUTPUT = "command.txt"
INSTRUCTION = "instruction.md"
MCP_SERVERS = "mcp-servers.json"
USAGE = "usage.json"

_HALF = 8 << 20
"""Bytes at either end that are kept of a very long output, as of every command's."""
_CUT_SEC = 60
"""How long the cutting may take, seconds."""
_TAIL = 1000
"""Characters of output that an error shows."""


class CommandSettings(Settings):
    """kwargs of `command`."""

    command: ShellCommand
    """Shell command that does the task."""
    version_command: ShellCommand | None = None
    """Shell command, run inside at setup, whose first line of output is the agent's version."""
    tree: Path | None = None
    """Directory on the host that is put to /installed-agent; its digest is the revision."""
    name: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")] = (
        "command"
    )
    """What it is called in results: two commands in one job are two agents."""


class Usage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """/logs/agent/usage.json."""

    n_input_tokens: Annotated[int, msgspec.Meta(ge=0)] | None = None
    """All input, cached tokens included."""
    n_cache_tokens: Annotated[int, msgspec.Meta(ge=0)] | None = None
    n_output_tokens: Annotated[int, msgspec.Meta(ge=0)] | None = None
    cost_usd: Annotated[float, msgspec.Meta(ge=0)] | None = None
    """US dollars."""


class CommandAgent:
    """Runs a shell command inside."""

    def __init__(self, order: AgentOrder) -> None:
        self._order = order
        self._settings = parse_settings(CommandSettings, order.config)
        self._version: str | None = None
        self._findings: list[Finding] = []

    def name(self) -> str:
        """Its name in results."""
        return self._settings.name

    def version(self) -> str | None:
        """What the version command printed, once it was set up."""
        return self._version

    async def setup(self, environment: Environment) -> None:
        """Put its tree there, and ask for its version.

        Raises:
            NonZeroAgentExitCodeError: the version command failed.
            AgentError: the tree cannot be had, or there is no version in the output.
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
            NonZeroAgentExitCodeError: it failed; shows the end of its output.
        """
        await _put_text(environment, instruction, INSTRUCTION)
        if self._order.mcp_servers:
            await _put_text(environment, render_servers(self._order.mcp_servers), MCP_SERVERS)
        command = shlex.quote(self._settings.command)
        instruction_file, output = _inside(INSTRUCTION), _inside(OUTPUT)
        try:
            result = await environment.exec(
                command=f"bash -o pipefail -c {command} < {instruction_file} > {output} 2>&1",
                env=self._env(),
            )
        finally:
            await self._cut_output(environment)
        if result.return_code != 0:
            tail = await environment.exec(command=f"tail -c {4 * _TAIL} {output}")
            raise self._failure(
                "Command", self._settings.command, result.return_code, _spoken(tail)
            )

    async def _cut_output(self, environment: Environment) -> None:
        """Keep both ends of a very long output; also of a command that was killed."""
        try:
            done = await environment.exec(command=_cutting(_inside(OUTPUT)), timeout_sec=_CUT_SEC)
        except (ProctorError, OSError, RuntimeError) as error:
            # How the command itself ended is what counts.
            self._order.logger.warning("%s was not looked at: %s", _inside(OUTPUT), error)
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
        """What a reader of the score should know of the last run; once."""
        findings, self._findings = self._findings, []
        return findings

    def populate_context_post_run(self, context: AgentContext) -> None:
        """Take over usage.json, where the command left one; a bad one is a note in the log."""
        path = self._order.logs_dir / USAGE
        # A link would lead to a file of the host.
        if path.is_symlink() or not path.is_file():
            return
        try:
            usage = msgspec.json.decode(read_small(str(path)), type=Usage)
        except (OSError, msgspec.DecodeError) as error:
            self._order.logger.warning("%s is not taken: %s", _inside(USAGE), error)
            return
        context.n_input_tokens = usage.n_input_tokens
        context.n_cache_tokens = usage.n_cache_tokens
        context.n_output_tokens = usage.n_output_tokens
        context.cost_usd = usage.cost_usd

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


def render_servers(servers: Iterable[McpServer]) -> str:
    """MCP servers in the JSON form that most agents read."""
    named = {server.name: _describe_server(server) for server in servers}
    return json.dumps({"mcpServers": named}, indent=2) + "\n"


def _describe_server(server: McpServer) -> dict[str, object]:
    if server.transport == "stdio":
        return {"type": "stdio", "command": server.command, "args": list(server.args)}
    kind = "http" if server.transport == "streamable-http" else server.transport
    return {"type": kind, "url": server.url}


def _cutting(path: str) -> str:
    """A shell command that takes the middle out of a long file, and then says how long that was.

    By a new file: a service that was left behind goes on writing to the old one.
    """
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
    """Put a text below /logs/agent, through the environment.

    Not on the host, even where that directory is the host's: a link that the agent left there
    would be followed.
    """
    with tempfile.TemporaryDirectory(prefix="proctor-agent-") as folder:
        path = Path(folder, name)
        path.write_text(text, encoding="utf-8")
        # The agent's user must be able to read it, whoever that is.
        path.chmod(0o644)
        await environment.upload_file(source_path=path, target_path=_inside(name))
