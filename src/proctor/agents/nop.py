"""`nop`: does nothing, so that a task's verifier can be seen to give nothing for it."""

from proctor.agents.settings import warn_of_kwargs
from proctor.trial.agent import AgentContext
from proctor.trial.environment import Environment
from proctor.trial.order import AgentOrder


class NopAgent:
    """Does nothing."""

    def __init__(self, order: AgentOrder) -> None:
        warn_of_kwargs(order, self.name())

    @staticmethod
    def name() -> str:
        """Its name in results."""
        return "nop"

    def version(self) -> str | None:
        """Harbor's version of it."""
        return "1.0.0"

    async def setup(self, environment: Environment) -> None:
        """Needs nothing."""

    async def run(self, instruction: str, environment: Environment, context: AgentContext) -> None:
        """Do nothing."""
