"""`oracle`: runs the task's own solution, as harbor's oracle does.

The only agent that is given the task. In a task of several steps it counts its runs: the n-th is
the n-th step's, as in harbor, where nothing else tells an agent which step it is in.
"""

import os
import shlex
from pathlib import Path

from proctor.agents.settings import warn_of_kwargs
from proctor.files import write_new
from proctor.harbor.env import resolve_env
from proctor.task.presence import is_there
from proctor.trial.agent import AgentContext
from proctor.trial.environment import Environment
from proctor.trial.inside import exec_script
from proctor.trial.order import AgentOrder
from proctor.trial.paths import INSIDE

LOG = "oracle.txt"
"""What the solution printed: /logs/agent/oracle.txt, collected as <trial>/agent/oracle.txt."""
EXIT_CODE = "exit-code.txt"
"""The solution's exit code, in <trial>/agent, where it is not 0."""


class OracleAgent:
    """Runs solution/solve.sh, or the step's."""

    def __init__(self, order: AgentOrder) -> None:
        warn_of_kwargs(order, self.name())
        self._order = order
        self._runs = 0

    @staticmethod
    def name() -> str:
        """Its name in results."""
        return "oracle"

    def version(self) -> str | None:
        """Harbor's version of it."""
        return "1.0.0"

    async def setup(self, environment: Environment) -> None:
        """Needs nothing."""

    async def run(self, instruction: str, environment: Environment, context: AgentContext) -> None:
        """Put the solution into the environment and run it; its exit code ends nothing.

        Raises:
            FileNotFoundError: there is no solution; harbor's words.
            ValueError: [solution].env names a variable that the host does not have.
            RuntimeError: it took longer than the whole seconds that it is given.
        """
        self._runs += 1
        script = self._find_script(self._runs)
        place = f"{INSIDE.solution_dir}/{script.name}"
        inside = shlex.quote(place)
        log = INSIDE.agent_dir / LOG
        await environment.upload_dir(source_dir=script.parent, target_dir=str(INSIDE.solution_dir))
        result = await exec_script(
            environment, f"({inside}) > {log} 2>&1", place, self._env(), self._whole_seconds()
        )
        if result.return_code != 0:
            self._write_exit_code(result.return_code)

    def _find_script(self, run: int) -> Path:
        task = self._order.task
        step = task.steps[run - 1] if run <= len(task.steps) else None
        if step and is_there(step.directory / "solution"):
            if found := task.find_solution_script(step):
                return found
            expected = step.directory / "solution" / "solve.sh"
            raise FileNotFoundError(
                f"No OS-compatible solution script found for step '{step.name}': "
                f"expected {expected}"
            )
        if found := task.find_solution_script():
            return found
        expected = task.directory / "solution" / "solve.sh"
        raise FileNotFoundError(f"Solution script not found: {expected}")

    def _env(self) -> dict[str, str]:
        own = resolve_env(self._order.task.config.solution.env, os.environ)
        return {"DEBIAN_FRONTEND": "noninteractive", **self._order.extra_env, **own}

    def _whole_seconds(self) -> int | None:
        # Cut off as harbor does it: of 1.5 s the command gets 1 s, and then it is the command
        # that times out, not the agent.
        return int(self._order.timeout_sec) if self._order.timeout_sec else None

    def _write_exit_code(self, code: int) -> None:
        path = self._order.trial_paths.agent_dir / EXIT_CODE
        # The solution may have put a link there, which must not be followed on the host.
        path.unlink(missing_ok=True)
        write_new(path, str(code).encode())
