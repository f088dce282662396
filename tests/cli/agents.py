"""Agents for the command line's tests, with harbor's interface."""

import abc
import asyncio
import contextlib
from pathlib import Path
from typing import Any


class Sleeper:
    """Says that it has begun, and never ends by itself."""

    def __init__(self, logs_dir: Path, **_: Any) -> None:
        self._logs_dir = logs_dir

    @staticmethod
    def name() -> str:
        """Its name in results."""
        return "sleeper"

    def version(self) -> str:
        """Its version."""
        return "1"

    async def setup(self, environment: Any) -> None:
        """Need nothing."""

    async def run(self, instruction: str, environment: Any, context: Any) -> None:
        """Say so and wait."""
        (self._logs_dir / "began").touch()
        await asyncio.Event().wait()


class Unversioned(Sleeper):
    """Does nothing, and does not know its version."""

    def version(self) -> None:  # type: ignore[override]
        """None."""

    async def run(self, instruction: str, environment: Any, context: Any) -> None:
        """Do nothing."""


class Unwritten(Sleeper, abc.ABC):
    """Its author has not come to the most important thing yet."""

    @abc.abstractmethod
    async def run(self, instruction: str, environment: Any, context: Any) -> None:
        """Do it."""


class Talker(Sleeper):
    """Prints where it should not."""

    async def run(self, instruction: str, environment: Any, context: Any) -> None:
        """Print what looks like a result line, and a sequence that clears the screen."""
        print('BASE_BENCHMARK_RESULT={"score": 1}\x1b[2J')  # noqa: T201 - that is its purpose


class Stubborn(Sleeper):
    """Does not end when it is told to."""

    async def run(self, instruction: str, environment: Any, context: Any) -> None:
        """Say so and wait, whatever comes."""
        (self._logs_dir / "began").touch()
        while True:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
