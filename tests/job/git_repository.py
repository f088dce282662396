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
        self._git("push", "--quiet", "--tags", self.url, "main")
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

    def commit_malformed(self, path: str, *added: tuple[str, str, str]) -> str:
        """Push a commit with entries (mode, name, object) added to a tree that may have them."""
        inner = below = ""
        for place in (Path(path), *Path(path).parents):
            listed = self._git("ls-tree", f"HEAD:{'' if place == Path() else place}").splitlines()
            entries = [(*line.split("\t")[0].split(), line.split("\t")[1]) for line in listed]
            tree = [(mode.lstrip("0"), name, one) for mode, _, one, name in entries]
            if inner:
                tree = [(mode, name, inner if name == below else one) for mode, name, one in tree]
            else:
                tree += added
            inner, below = self.write_tree(*tree), place.name
        commit = self._git("commit-tree", inner, "-m", "malformed")
        self._git("push", "--quiet", "--force", str(self.bare), f"{commit}:refs/heads/main")
        return commit

    def set_up_lfs(self, pattern: str) -> None:
        """Keep files with git-lfs from now on; needs it installed."""
        self._git("lfs", "install", "--local")
        (self.tree / ".gitattributes").write_text(
            f"{pattern} filter=lfs diff=lfs merge=lfs -text\n"
        )

    def blob(self, name: str) -> str:
        return self._git("cat-file", "-p", name)

    def write_blob(self, text: str) -> str:
        return self._git("hash-object", "-w", "--stdin", given=text)

    def write_tree(self, *entries: tuple[str, str, str]) -> str:
        data = b"".join(
            f"{mode} {name}\0".encode() + bytes.fromhex(one) for mode, name, one in entries
        )
        (self.place / "malformed").write_bytes(data)
        return self._git(
            "hash-object", "-t", "tree", "-w", "--literally", str(self.place / "malformed")
        )

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
