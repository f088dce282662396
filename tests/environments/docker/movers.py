"""An agent that gives a tag to another image while its job runs."""

import subprocess

from proctor.trial.agent import AgentContext
from proctor.trial.environment import Environment


class Mover:
    """Moves a tag, on the host."""

    def __init__(self, **_: object) -> None:
        """Takes whatever harbor gives."""

    @staticmethod
    def name() -> str:
        return "mover"

    def version(self) -> str | None:
        return "1"

    async def setup(self, environment: Environment) -> None:
        """Needs nothing."""

    async def run(self, instruction: str, environment: Environment, context: AgentContext) -> None:
        moved = ["docker", "build", "--quiet", "--tag", "moving:1", "-"]
        dockerfile = b"FROM small:1\nENV MOVED=1\n"
        subprocess.run(moved, input=dockerfile, check=True, capture_output=True)
