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

    def commit_bomb(self, name: str, depth: int) -> str:
        """Push a commit with a directory of ten directories of ten directories…, `depth` times."""
        inner = self._git("rev-parse", "HEAD:tasks/one")
        for _ in range(depth):
            lines = "".join(f"040000 tree {inner}\td{n}\n" for n in range(10))
            inner = self._git("mktree", given=lines)
        lines = self._git("ls-tree", "HEAD") + f"\n040000 tree {inner}\t{name}\n"
        commit = self._git("commit-tree", self._git("mktree", given=lines), "-m", "bomb")
        self._git("push", "--quiet", "--force", str(self.bare), f"{commit}:refs/heads/main")
        return commit

    def commit_link(self, name: str, target: Path) -> str:
        """Push a commit whose top has a directory and a link of one name, in a malformed tree."""
        link = self._git("hash-object", "-w", "--stdin", given=str(target))
        listed = [("40000", self._git("rev-parse", f"HEAD:{name}")), ("120000", link)]
        data = b"".join(f"{mode} {name}\0".encode() + bytes.fromhex(one) for mode, one in listed)
        (self.place / "malformed").write_bytes(data)
        words = ("hash-object", "-t", "tree", "-w", "--literally", str(self.place / "malformed"))
        commit = self._git("commit-tree", self._git(*words), "-m", "link")
        self._git("push", "--quiet", "--force", str(self.bare), f"{commit}:refs/heads/main")
        return commit

    def resolve(self, *tasks: dict[str, Any], **host: str) -> Resolved:
        """The tasks of a job, with a cache of their own."""
        config = job_config(tasks=[{"git_url": self.url, **task} for task in tasks])
        return resolve(config, host={**os.environ, "HOME": str(self.home), **host})

    def _git(self, *arguments: str, cwd: Path | None = None, given: str = "") -> str:
        env = {**os.environ, **WHO}
        done = subprocess.run(
            ["git", *arguments],
            cwd=cwd or self.tree,
            env=env,
            check=True,
            capture_output=True,
            input=given.encode(),
        )
        return done.stdout.decode().strip()
