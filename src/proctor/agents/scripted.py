"""`scripted`: runs the lines of a script one by one, and writes its trajectory live.

    proctor run -p TASKS -a scripted --ak script=replay.sh

Each line is a shell command of its own, as an agent would give it: a `cd` does not last to the
next. Blank lines and lines that begin with # are passed over. A command that fails does not end the
script; its exit code stands in the trajectory. Good for demos, for regression tests of a task, and
to replay what an agent did. It decides nothing: it does not look at the instruction.
"""

import time
from pathlib import Path

from proctor.agents.live import open_trace
from proctor.agents.secrets import redact_env
from proctor.agents.settings import Settings, load_text, parse_settings
from proctor.errors import AgentError
from proctor.traces.writer import TrajectoryWriter
from proctor.trial.agent import AgentContext
from proctor.trial.environment import Environment
from proctor.trial.order import AgentOrder

_TOOL = "bash"


class ScriptedSettings(Settings):
    """kwargs of `scripted`."""

    script: Path
    """File on the host with one shell command per line."""


class ScriptedAgent:
    """Runs a script line by line."""

    def __init__(self, order: AgentOrder) -> None:
        self._order = order
        self._commands = load_commands(parse_settings(ScriptedSettings, order.config).script)

    @staticmethod
    def name() -> str:
        """Its name in results."""
        return "scripted"

    def version(self) -> str | None:
        """Version of how a script is run; the script has a digest."""
        return "1.0.0"

    async def setup(self, environment: Environment) -> None:
        """Needs nothing."""

    async def run(self, instruction: str, environment: Environment, context: AgentContext) -> None:
        """Run every line; each is a step of <trial>/agent/trajectory.jsonl."""
        with open_trace(self._order.logs_dir, redact_env(self._order.extra_env)) as trace:
            trace.user(instruction)
            for command in self._commands:
                await self._run_command(command, environment, trace)

    async def _run_command(
        self, command: str, environment: Environment, trace: TrajectoryWriter
    ) -> None:
        trace.new_step()
        trace.tool_call(_TOOL, command)
        start = time.monotonic()
        result = await environment.exec(command=command, env=dict(self._order.extra_env))
        trace.tool_result(
            _TOOL,
            stdout=result.stdout or "",
            stderr=result.stderr or "",
            exit_code=result.return_code,
            duration_ms=round((time.monotonic() - start) * 1000),
        )


def load_commands(script: Path) -> tuple[str, ...]:
    """The commands of a script, in order.

    Raises:
        AgentError: it cannot be read, is not UTF-8, or holds no command.
    """
    lines = (line.strip() for line in load_text(script).split("\n"))
    commands = tuple(line for line in lines if line and not line.startswith("#"))
    if not commands:
        raise AgentError(f"{script}: holds no command; expected one shell command per line")
    return commands
