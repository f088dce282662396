"""Environments by import path: one that descends from harbor's base class, one that does not."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

from harbor.environments.base import BaseEnvironment, ExecResult
from harbor.environments.capabilities import EnvironmentCapabilities


class FolderEnvironment(BaseEnvironment):  # type: ignore[misc]
    """A folder of the host, written for harbor: it counts on harbor's models and helpers."""

    def __init__(self, *args: Any, greeting: str = "hello", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.greeting = greeting
        self.folder = Path(self.environment_dir).parent / f"folder-{self.session_id}"

    @staticmethod
    def type() -> str:
        """Its name."""
        return "folder"

    @property
    def capabilities(self) -> Any:
        """Nothing but keeping off the network."""
        return EnvironmentCapabilities(disable_internet=True)

    def _validate_definition(self) -> None:
        if self.task_env_config.memory_mb == 13:
            raise ValueError("13 MB is an unlucky number")

    async def start(self, force_build: bool) -> None:
        """Make the folder."""
        self.folder.mkdir()

    async def stop(self, delete: bool) -> None:
        """Remove it."""
        shutil.rmtree(self.folder, ignore_errors=True)

    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> Any:
        """Run a command in the folder."""
        merged = self._merge_env(env)
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self.folder,
            env=merged,
            capture_output=True,
            text=True,
            check=False,
        )
        return ExecResult(stdout=done.stdout, stderr=done.stderr, return_code=done.returncode)

    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        """Copy a file in."""
        shutil.copy(source_path, self.folder / target_path.lstrip("/"))

    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        """Copy a directory in."""
        shutil.copytree(source_dir, self.folder / target_dir.lstrip("/"), dirs_exist_ok=True)

    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        """Copy a file out."""
        shutil.copy(self.folder / source_path.lstrip("/"), target_path)

    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        """Copy a directory out."""
        shutil.copytree(self.folder / source_dir.lstrip("/"), target_dir, dirs_exist_ok=True)
