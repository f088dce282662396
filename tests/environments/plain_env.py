"""An environment of nobody's family: it has the methods and attributes, and keeps what it got."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from proctor.trial.environment import Capabilities, ExecResult


class PlainEnvironment:
    """Answers every command with what it was given."""

    os = "linux"

    def __init__(self, **given: Any) -> None:
        self.given = given
        self.default_user: str | int | None = None
        self.session_id: str = given["session_id"]
        self.trial_paths = given["trial_paths"]
        self.capabilities = Capabilities()

    async def start(self, force_build: bool) -> None:
        """Do nothing."""

    async def stop(self, delete: bool) -> None:
        """Do nothing."""

    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        """Say the command back."""
        return ExecResult(command, None, 0)

    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        """Do nothing."""

    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        """Do nothing."""

    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        """Do nothing."""

    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        """Do nothing."""

    async def is_dir(self, path: str, user: str | int | None = None) -> bool:
        """There is none."""
        return False

    async def is_file(self, path: str, user: str | int | None = None) -> bool:
        """There is none."""
        return False


class NoFiles:
    """Runs commands and moves no files."""

    async def start(self, force_build: bool) -> None:
        """Do nothing."""

    async def stop(self, delete: bool) -> None:
        """Do nothing."""

    async def exec(self, command: str) -> ExecResult:
        """Say the command back."""
        return ExecResult(command, None, 0)


class NoAttributes(PlainEnvironment):
    """Has every method, but does not say what it is."""

    def __init__(self, **given: Any) -> None:
        self.given = given
