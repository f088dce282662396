"""A git repository of tasks, on this machine."""

import os
import subprocess
from pathlib import Path
from typing import Any

from proctor.job.planned import Resolved
from tests.job.small_tasks import job_config, resolve, write_task

WHO = {
    "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@example.org",
    "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@example.org",
    "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null",
}  # fmt: skip


class Repository:
    """A bare repository with tasks in it, and the tree that it is pushed from."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.tree = place / "tree"
        self.bare = place / "repository.git"
        self.home = place / "home"
        self.home.mkdir(parents=True)
        self._git("init", "--quiet", "--bare", "--initial-branch=main", str(self.bare), cwd=place)
        self._git("init", "--quiet", "--initial-branch=main", str(self.tree), cwd=place)
        for name in ("one", "two"):
            write_task(self.tree / "tasks" / name, instruction=f"Do {name}.\n")
        self.first = self.commit("first")

    @property
    def url(self) -> str:
        return f"file://{self.bare}"

    def commit(self, message: str) -> str:
        """Push everything; the id of the commit."""
        self._git("add", "--all")
        self._git("commit", "--quiet", "--message", message)
        self._git("push", "--quiet", "--tags", str(self.bare), "main")
        return self._git("rev-parse", "HEAD")

    def tag(self, name: str) -> None:
        self._git("tag", name)
        self._git("push", "--quiet", "--tags", str(self.bare))

    def resolve(self, *tasks: dict[str, Any], **host: str) -> Resolved:
        """The tasks of a job, with a cache of their own."""
        config = job_config(tasks=[{"git_url": self.url, **task} for task in tasks])
        return resolve(config, host={**os.environ, "HOME": str(self.home), **host})

    def _git(self, *arguments: str, cwd: Path | None = None) -> str:
        env = {**os.environ, **WHO}
        done = subprocess.run(
            ["git", *arguments], cwd=cwd or self.tree, env=env, check=True, capture_output=True
        )
        return done.stdout.decode().strip()
