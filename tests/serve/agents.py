"""An agent for jobs whose server goes away."""

from collections.abc import Callable
from typing import Any, ClassVar

from tests.cli.agents import Sleeper


class Second(Sleeper):
    """Does nothing but call what it was given, at its second trial."""

    act: ClassVar[Callable[[], None]]
    begun: ClassVar[int] = 0

    async def run(self, instruction: str, environment: Any, context: Any) -> None:
        """Count."""
        type(self).begun += 1
        if self.begun == 2:
            type(self).act()
