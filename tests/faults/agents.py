"""Agents with harbor's interface that run on the host."""

from pathlib import Path
from typing import Any

from proctor.errors import NonZeroAgentExitCodeError


class Printer:
    """Has a command of the sandbox print as many bytes as it is told to."""

    def __init__(self, logs_dir: Path, n_bytes: int, **_: Any) -> None:
        self._logs_dir = logs_dir
        self._n_bytes = n_bytes

    @staticmethod
    def name() -> str:
        """Its name in results."""
        return "printer"

    def version(self) -> str:
        """Its version."""
        return "1"

    async def setup(self, environment: Any) -> None:
        """Need nothing."""

    async def run(self, instruction: str, environment: Any, context: Any) -> None:
        """Print, and say how much came of it."""
        done = await environment.exec(f"head -c {self._n_bytes} /dev/zero | tr '\\0' x")
        (self._logs_dir / "length.txt").write_text(str(len(done.stdout)))


class Planter(Printer):
    """Writes its own reward and fails; does nothing when it is begun again."""

    def __init__(self, logs_dir: Path, **kwargs: Any) -> None:
        super().__init__(logs_dir, 0, **kwargs)

    async def run(self, instruction: str, environment: Any, context: Any) -> None:
        """Plant a reward, the first time."""
        if not (self._logs_dir.parent / "attempts").exists():
            await environment.exec("echo 1 > /logs/verifier/reward.txt")
            raise NonZeroAgentExitCodeError("the agent gave up")
