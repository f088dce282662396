"""What a trial asks of an agent: harbor's interface, so that agents written for it run as is."""

from typing import Protocol

from proctor.harbor.trial_result import AgentContext
from proctor.trial.environment import Environment

__all__ = ["Agent", "AgentContext"]


class Agent(Protocol):
    """Who sits the task.

    Besides these, a trial uses `populate_context_post_run(context)` and `to_agent_info()` of an
    agent that has them, and `take_findings()` of one that watches what it does: what was found
    since that was last asked for.
    """

    def name(self) -> str:
        """Its name in results; in harbor's own agents a static method."""
        ...

    def version(self) -> str | None:
        """Its version, where it has one."""
        ...

    async def setup(self, environment: Environment) -> None:
        """Install what it needs."""
        ...

    async def run(self, instruction: str, environment: Environment, context: AgentContext) -> None:
        """Do the task."""
        ...
