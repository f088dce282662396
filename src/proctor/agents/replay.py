"""`replay`: runs the shell commands of a recorded trace again, one by one, in a fresh environment.

    proctor run -p TASK -a replay --ak trajectory=jobs/nightly/task__x/agent/trajectory.jsonl

The file may be a trajectory, a conversation or an ATIF document of any agent. Each command runs in
a shell of its own, in the directory and with the limit that are on record; a command that fails
ends nothing. What cannot be run again (an editor's tool, keystrokes for a terminal, a tool that
nobody knows) is passed over and said: in the trajectory, in the log, and as a finding.

It writes its own trajectory, live. It compares nothing: `proctor audit --rerun` does.
"""

import time
from collections import Counter
from pathlib import Path

from proctor.agents.secrets import redact_env
from proctor.agents.settings import Settings, parse_settings
from proctor.audit.file_kind import FileKind, find_file_kind
from proctor.errors import AgentError, InputError
from proctor.harbor.configs import AgentConfig
from proctor.sentence import count_of
from proctor.traces.commands import PERSISTENT_SHELLS, TIMED_OUT, Call, ShellCommand, read_calls
from proctor.traces.convert import load_entries
from proctor.traces.entry import TraceKind
from proctor.traces.writer import TrajectoryWriter
from proctor.trial.agent import AgentContext
from proctor.trial.environment import Environment
from proctor.trial.finding import Finding, FindingCode
from proctor.trial.order import AgentOrder

TRAJECTORY = "trajectory.jsonl"
_TOOL = "bash"
_MOST = 100
_TIMEOUT = "Command timed out after"
_KINDS = {
    FileKind.TRAJECTORY: TraceKind.TRAJECTORY,
    FileKind.ATIF: TraceKind.ATIF,
    FileKind.CONVERSATION: TraceKind.CONVERSATION,
}


class ReplaySettings(Settings):
    """kwargs of `replay`."""

    trajectory: Path
    """File on the host: a trajectory, a conversation or an ATIF document."""


class ReplayAgent:
    """Runs a trace's commands again."""

    def __init__(self, order: AgentOrder) -> None:
        self._order = order
        self._calls = load_replay(order.config)
        self._findings: list[Finding] = []
        if order.task.steps:
            raise AgentError(
                f"agent 'replay': {order.task.name} is a task of several steps; one trace does "
                "not say which commands belong to which"
            )

    @staticmethod
    def name() -> str:
        """Its name in results."""
        return "replay"

    def version(self) -> str | None:
        """Version of how a trace is run; the trace has a digest."""
        return "1.0.0"

    async def setup(self, environment: Environment) -> None:
        """Needs nothing."""

    async def run(self, instruction: str, environment: Environment, context: AgentContext) -> None:
        """Run every command; each is a step of <trial>/agent/trajectory.jsonl."""
        path = self._order.logs_dir / TRAJECTORY
        # Where the environment shares the directory, a link may lie there to a file of the host.
        if path.is_symlink():
            path.unlink()
        self._note_passed_over()
        with TrajectoryWriter(path, secrets=redact_env(self._order.extra_env)) as trace:
            trace.user(instruction)
            for call in self._calls:
                trace.new_step()
                if isinstance(call, ShellCommand):
                    await self._run_command(call, environment, trace)
                else:
                    trace.system(f"Not replayed: {call}.")

    async def _run_command(
        self, call: ShellCommand, environment: Environment, trace: TrajectoryWriter
    ) -> None:
        limits = {"cwd": call.cwd, "timeout_sec": call.timeout_sec}
        told = {name: value for name, value in limits.items() if value is not None}
        trace.tool_call(_TOOL, call.command, {"command": call.command, **told} if told else None)
        start = time.monotonic()
        try:
            result = await environment.exec(
                command=call.command,
                cwd=call.cwd,
                env=dict(self._order.extra_env),
                timeout_sec=call.timeout_sec,
            )
            stdout, stderr, code = result.stdout, result.stderr, result.return_code
        except RuntimeError as error:
            if not str(error).startswith(_TIMEOUT):
                raise
            stdout, stderr, code = None, str(error), TIMED_OUT
        trace.tool_result(
            _TOOL,
            stdout=stdout or "",
            stderr=stderr or "",
            exit_code=code,
            duration_ms=round((time.monotonic() - start) * 1000),
        )

    def _note_passed_over(self) -> None:
        passed = [str(call) for call in self._calls if not isinstance(call, ShellCommand)]
        if passed:
            self._findings.append(
                Finding(
                    code=FindingCode.STEPS_NOT_REPLAYED,
                    phase="agent",
                    message=f"{count_of(len(passed), 'call')} of {len(self._calls)} could not be "
                    f"replayed: {passed[0]}",
                    detail={"calls": passed[:_MOST]},
                )
            )
        tools = {call.tool for call in self._calls if isinstance(call, ShellCommand)}
        if lasting := sorted(tools & PERSISTENT_SHELLS):
            self._order.logger.warning(
                "%s: what one command leaves of its shell, such as a cd, is not there for the next",
                ", ".join(lasting),
            )

    def take_findings(self) -> list[Finding]:
        """What a reader of the score should know of the last run; once."""
        findings, self._findings = self._findings, []
        return findings


def load_replay(config: AgentConfig) -> list[Call]:
    """What the trace of an agent's kwargs has to be run again, in order.

    Raises:
        AgentError: it cannot be read, is no trace, or holds no shell command.
    """
    path = str(parse_settings(ReplaySettings, config).trajectory)
    try:
        thing = find_file_kind(path)
        entries = load_entries(path, _find_kind(thing, path)).entries
    except InputError as error:
        raise AgentError(f"agent 'replay': {error}") from error
    calls = read_calls(entries)
    if not any(isinstance(call, ShellCommand) for call in calls):
        counts = Counter(call.tool or "(unnamed)" for call in calls)
        tools = ", ".join(counts) or "none"
        raise AgentError(
            f"agent 'replay': {path}: holds no shell command; the tools called in it: {tools}"
        )
    return calls


def _find_kind(thing: FileKind, path: str) -> TraceKind:
    if thing not in _KINDS:
        raise InputError(f"{path}: a {thing}; expected one of: {', '.join(_KINDS)}")
    return _KINDS[thing]
