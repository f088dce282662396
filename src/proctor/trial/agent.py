"""Protocol of agents: harbor's interface, so agents written for harbor run unchanged."""

from typing import Protocol

from proctor.harbor.trial_result import AgentContext
from proctor.trial.environment import Environment

__all__ = ["Agent", "AgentContext"]


class Agent(Protocol):
    """An agent that solves tasks.

    A trial also uses these optional methods: `populate_context_post_run(context)`,
    `to_agent_info()`, and `take_findings()`, which returns the findings since its last call. If an
    agent has `writes_trace = True`, it writes its own trace while it works, and the output of its
    commands is not recorded.
    """

    def name(self) -> str:
        """Its name in results; a static method in harbor's agents."""
        ...

    def version(self) -> str | None:
        """Its version, if it has one."""
        ...

    async def setup(self, environment: Environment) -> None:
        """Install what it needs."""
        ...

    async def run(self, instruction: str, environment: Environment, context: AgentContext) -> None:
        """Do the task."""
        ...
