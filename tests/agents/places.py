"""A small real environment for agents' tests: bash on a directory that stands for the root.

The places that an agent names (/logs, /solution, /installed-agent) are put below that directory
wherever they occur in a command or a variable. Users are written down, not changed to.
"""

import asyncio
import logging
import os
import shutil
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from proctor.harbor.configs import AgentConfig
from proctor.task.directory import Task, load_task
from proctor.trial.agent import AgentOrder
from proctor.trial.environment import Capabilities, ExecResult
from proctor.trial.paths import TrialPaths
from tests.task.trees import make_task

PLACES = ("/logs", "/solution", "/installed-agent")


@dataclass
class Place:
    """An environment whose root is a directory."""

    root: Path
    trial_paths: TrialPaths
    capabilities: Capabilities
    default_user: str | int | None = None
    session_id: str = "trial"
    os: str = "linux"
    calls: list[tuple[Any, ...]] = field(default_factory=list)
    """What was asked of it, in order."""

    def __post_init__(self) -> None:
        self.trial_paths.agent_dir.mkdir(parents=True)
        self.root.joinpath("work").mkdir(parents=True)
        self.root.joinpath("logs").mkdir()
        if self.capabilities.mounted:
            self.inside("/logs/agent").symlink_to(self.trial_paths.agent_dir)
        else:
            self.inside("/logs/agent").mkdir()

    def inside(self, path: str) -> Path:
        return self.root / path.removeprefix("/")

    def _placed(self, text: str) -> str:
        for place in PLACES:
            text = text.replace(place, f"{self.root}{place}")
        return text

    async def start(self, force_build: bool) -> None:
        """It is there."""

    async def stop(self, delete: bool) -> None:
        """It stays."""

    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        self.calls.append(("exec", command, cwd, dict(env or {}), timeout_sec, user))
        process = await asyncio.create_subprocess_exec(
            *("bash", "-c", self._placed(command)),
            cwd=cwd or self.root / "work",
            env={
                "PATH": os.environ["PATH"],
                "ROOT": str(self.root),
                **{name: self._placed(value) for name, value in (env or {}).items()},
            },
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            output, _ = await asyncio.wait_for(process.communicate(), timeout_sec)
        except TimeoutError as error:
            raise RuntimeError(f"Command timed out after {timeout_sec} seconds") from error
        finally:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
        return ExecResult(output.decode() or None, None, process.returncode or 0)

    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        self.calls.append(("upload_file", target_path))
        target = self.inside(target_path)
        target.unlink(missing_ok=True)
        shutil.copy(source_path, target)

    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        self.calls.append(("upload_dir", Path(source_dir), target_dir))
        shutil.copytree(source_dir, self.inside(target_dir), symlinks=True, dirs_exist_ok=True)

    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        shutil.copy(self.inside(source_path), target_path)

    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        shutil.copytree(self.inside(source_dir), target_dir, dirs_exist_ok=True)

    async def is_dir(self, path: str, user: str | int | None = None) -> bool:
        return self.inside(path).is_dir()

    async def is_file(self, path: str, user: str | int | None = None) -> bool:
        return self.inside(path).is_file()


def make_place(root: Path, *, mounted: bool = False) -> Place:
    paths = TrialPaths(root / "trial")
    return Place(root / "place", paths, Capabilities(mounted=mounted))


def order_for(
    place: Place, config: AgentConfig, task: Task | None = None, **wishes: Any
) -> AgentOrder:
    """What a trial would ask for in this place."""
    return AgentOrder(
        config=config,
        logs_dir=place.trial_paths.agent_dir,
        trial_paths=place.trial_paths,
        task=task or load_task(make_task(place.root.parent / "task")),
        timeout_sec=wishes.pop("timeout_sec", None),
        logger=logging.getLogger("tests.agents"),
        **wishes,
    )
