"""Where tasks lie that are kept from one job to the next: harbor's cache, and one of our own.

    ~/.cache/harbor/tasks/<id>/<name>                        tasks of git repositories
    ~/.cache/harbor/tasks/packages/<org>/<name>/<digest>     tasks of packages
    ~/.cache/harbor/datasets/<org>/<name>/<digest>           files of dataset packages
    $XDG_CACHE_HOME/proctor/terminal-bench/<digest>/<name>   tasks made from theirs

What is in them is never changed: a directory appears whole, by one rename, or not at all.
"""

import shutil
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from uuid import NAMESPACE_DNS, uuid5

ALPHABET = "23456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
"""Digits and letters that cannot be taken for one another."""
_ID_LENGTH = 22


@dataclass(frozen=True, slots=True)
class Caches:
    """The two caches of a user."""

    harbor: Path
    own: Path

    @property
    def tasks(self) -> Path:
        """Tasks of git repositories, under ids made from where they are from."""
        return self.harbor / "tasks"

    @property
    def packages(self) -> Path:
        """Tasks of packages."""
        return self.harbor / "tasks" / "packages"

    @property
    def datasets(self) -> Path:
        """Files of dataset packages."""
        return self.harbor / "datasets"

    @property
    def terminal_bench(self) -> Path:
        """Tasks in harbor's form that were made from Terminal-Bench's."""
        return self.own / "terminal-bench"


def find_caches(host: Mapping[str, str]) -> Caches:
    """The caches of the user whose variables these are; nothing need be there."""
    home = Path(host.get("HOME") or Path.home())
    own = Path(host.get("XDG_CACHE_HOME") or home / ".cache")
    return Caches(harbor=home / ".cache" / "harbor", own=own / "proctor")


def git_task_id(git_url: str, commit: str | None, path: Path) -> str:
    """The name under which harbor keeps a task of a git repository."""
    identity = f"git_url={git_url!r} git_commit_id={commit!r} path={path!r}"
    number = uuid5(NAMESPACE_DNS, identity).int
    digits = []
    for _ in range(_ID_LENGTH):
        number, digit = divmod(number, len(ALPHABET))
        digits.append(ALPHABET[digit])
    return "".join(reversed(digits))


def fill_once(target: Path, fill: Callable[[Path], None]) -> None:
    """Let `fill` make a directory, and give it its name in one step.

    Where somebody else was faster, theirs stays. Whatever `fill` raises leaves nothing behind.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".new-", dir=target.parent) as scratch:
        made = Path(scratch, target.name)
        fill(made)
        with suppress(FileNotFoundError, NotADirectoryError):
            if not any(target.iterdir()):
                shutil.rmtree(target)
        if not target.exists():
            with suppress(FileExistsError):
                made.rename(target)
