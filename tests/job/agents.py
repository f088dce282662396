"""Small agents with harbor's interface, for jobs of the suite; kwargs tell each what to do."""

import asyncio
import os
from pathlib import Path
from typing import Any


class _Agent:
    def __init__(self, logs_dir: Path, **kwargs: Any) -> None:
        self.logs_dir = logs_dir
        self.kwargs = kwargs

    def version(self) -> str:
        return "1"

    async def setup(self, environment: Any) -> None:
        pass


class Flaky(_Agent):
    """Fails with a ConnectionError until it was begun more than `fails` times at a trial."""

    @staticmethod
    def name() -> str:
        return "flaky"

    async def run(self, instruction: str, environment: Any, context: Any) -> None:
        attempts = self.logs_dir.parent / "attempts"
        begun = len(list(attempts.iterdir())) + 1 if attempts.is_dir() else 1
        (self.logs_dir / "words.txt").write_text(f"attempt {begun}\n", encoding="utf-8")
        if begun <= int(self.kwargs["fails"]):
            raise ConnectionError(f"flaky failure {begun}")


class Echoing(_Agent):
    """Writes down what it was told."""

    @staticmethod
    def name() -> str:
        return "echoing"

    async def run(self, instruction: str, environment: Any, context: Any) -> None:
        (self.logs_dir / "words.txt").write_text(instruction, encoding="utf-8")


class Waiting(_Agent):
    """Says in a file that it began, then waits until another file is there."""

    @staticmethod
    def name() -> str:
        return "waiting"

    async def run(self, instruction: str, environment: Any, context: Any) -> None:
        place = Path(self.kwargs["place"])
        (place / f"{environment.session_id}.began").touch()
        while not (place / "go").exists():
            await asyncio.sleep(0.01)


class Counting(_Agent):
    """Notes how many of its kind are at work at once."""

    @staticmethod
    def name() -> str:
        return "counting"

    async def run(self, instruction: str, environment: Any, context: Any) -> None:
        place = Path(self.kwargs["place"])
        mine = place / f"{environment.session_id}.busy"
        mine.touch()
        await asyncio.sleep(0.02)
        busy = len(list(place.glob("*.busy")))
        with (place / "most").open("a", encoding="utf-8") as most:
            most.write(f"{busy}\n")
        mine.unlink()


class Vanishing(_Agent):
    """Takes the trial's whole directory away."""

    @staticmethod
    def name() -> str:
        return "vanishing"

    async def run(self, instruction: str, environment: Any, context: Any) -> None:
        trial_dir = self.logs_dir.parent
        trial_dir.rename(trial_dir.parent.parent / f"gone-{trial_dir.name}")


class Stubborn(_Agent):
    """Does not let itself be cancelled."""

    @staticmethod
    def name() -> str:
        return "stubborn"

    async def run(self, instruction: str, environment: Any, context: Any) -> None:
        place = Path(self.kwargs["place"])
        (place / f"{os.getpid()}.began").touch()
        while not (place / "go").exists():
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                (place / "cancelled").touch()


class Failing(_Agent):
    """Fails whenever it is run."""

    @staticmethod
    def name() -> str:
        return "failing"

    async def run(self, instruction: str, environment: Any, context: Any) -> None:
        raise ConnectionError("no connection")


class Cancelling(_Agent):
    """Ends as if somebody had cancelled it."""

    @staticmethod
    def name() -> str:
        return "cancelling"

    async def run(self, instruction: str, environment: Any, context: Any) -> None:
        raise asyncio.CancelledError
