"""`replay`: runs the shell commands of a recorded trace again, in order, in a fresh environment.

    proctor run -p TASK -a replay --ak trajectory=jobs/nightly/task__x/agent/trajectory.jsonl

The file may be a trajectory, a conversation or an ATIF document of any agent. Each command runs in
its own shell, with the recorded directory and timeout; if one fails, the next still runs. Calls
that cannot be replayed (editor tools, keystrokes for a terminal, unknown tools) are skipped and
reported in the trajectory, in the log, and as a finding.

Does not compare the outputs with the recorded ones: `proctor audit --rerun` does.
"""

import time
from collections import Counter
from pathlib import Path

from proctor.agents.settings import Settings, open_trace, parse_settings, redact_env
from proctor.audit.file_kind import FileKind, find_file_kind
from proctor.errors import AgentError, InputError
from proctor.harbor.configs import AgentConfig
from proctor.sentence import count_of
from proctor.traces.commands import PERSISTENT_SHELLS, TIMED_OUT, Call, ShellCommand, read_calls
from proctor.traces.convert import load_entries
from proctor.traces.entry import TraceKind
from proctor.traces.writer import TrajectoryWriter
from proctor.trial.agent import AgentContext, AgentOrder
from proctor.trial.environment import Environment
from proctor.trial.finding import Finding, FindingCode

_TOOL = "bash"
# Skipped calls that the finding lists.
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

    writes_trace = True

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
        """Return the name used in results."""
        return "replay"

    def version(self) -> str | None:
        """Return the version of this runner; the trace itself is pinned by its digest."""
        return "1.0.0"

    async def setup(self, environment: Environment) -> None:
        """Do nothing: no setup is needed."""

    async def run(self, instruction: str, environment: Environment, context: AgentContext) -> None:
        """Run every command, each as a step of <trial>/agent/trajectory.jsonl."""
        skipped = [str(call) for call in self._calls if not isinstance(call, ShellCommand)]
        if skipped:
            self._findings.append(
                Finding(
                    code=FindingCode.STEPS_NOT_REPLAYED,
                    phase="agent",
                    message=f"{count_of(len(skipped), 'call')} of {len(self._calls)} could not be "
                    f"replayed: {skipped[0]}",
                    detail={"calls": skipped[:_MOST]},
                )
            )
        tools = {call.tool for call in self._calls if isinstance(call, ShellCommand)}
        if persistent := sorted(tools & PERSISTENT_SHELLS):
            self._order.logger.warning(
                "%s: recorded in one persistent shell, replayed in separate ones; the effect of a "
                "cd or a variable is lost after each command",
                ", ".join(persistent),
            )
        with open_trace(self._order.logs_dir, redact_env(self._order.extra_env)) as trace:
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
        given = {name: value for name, value in limits.items() if value is not None}
        trace.tool_call(_TOOL, call.command, {"command": call.command, **given} if given else None)
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
            # Environments raise a plain RuntimeError for a timeout, as harbor's do; only its text
            # differs from other failures.
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

    def take_findings(self) -> list[Finding]:
        """Return the findings of the last run, and forget them."""
        findings, self._findings = self._findings, []
        return findings


def load_replay(config: AgentConfig) -> list[Call]:
    """Load the calls of the trace that an agent's kwargs name, in order.

    Raises:
        AgentError: it cannot be read, is not a trace, or contains no shell command.
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
            f"agent 'replay': {path}: contains no shell command; the tools called in it: {tools}"
        )
    return calls


def _find_kind(thing: FileKind, path: str) -> TraceKind:
    if thing not in _KINDS:
        raise InputError(f"{path}: a {thing}; expected one of: {', '.join(_KINDS)}")
    return _KINDS[thing]
