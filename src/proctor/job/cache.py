"""Caches of tasks that are shared between jobs: harbor's, and one of our own.

    ~/.cache/harbor/tasks/<id>/<name>                        tasks of git repositories
    ~/.cache/harbor/tasks/packages/<org>/<name>/<digest>     tasks of packages
    ~/.cache/harbor/datasets/<org>/<name>/<digest>           files of dataset packages
    $XDG_CACHE_HOME/proctor/terminal-bench/<digest>/<name>   converted Terminal-Bench tasks
    $XDG_CACHE_HOME/proctor/fetched/<digest>.json            checksums of tasks that were fetched
    $XDG_CACHE_HOME/proctor/fetching/                        repositories while they are fetched
    $XDG_CACHE_HOME/proctor/registries/<digest>.json         copies of registries from servers

Entries never change: a directory appears complete, by one rename, or not at all.
"""

import shutil
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from uuid import NAMESPACE_DNS, uuid5

ALPHABET = "23456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
"""Digits and letters that are not easily confused."""
_ID_LENGTH = 22


@dataclass(frozen=True, slots=True)
class Caches:
    """The two caches of a user."""

    harbor: Path
    own: Path

    @property
    def tasks(self) -> Path:
        """Tasks of git repositories, by ids made from their source."""
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
    def fetching(self) -> Path:
        """Repositories while they are fetched, and locks."""
        return self.own / "fetching"

    @property
    def receipts(self) -> Path:
        """Checksums of tasks when they were fetched."""
        return self.own / "fetched"

    @property
    def registries(self) -> Path:
        """Copies of registries that were read from servers."""
        return self.own / "registries"

    @property
    def terminal_bench(self) -> Path:
        """Terminal-Bench tasks converted to harbor's format."""
        return self.own / "terminal-bench"


def find_caches(host: Mapping[str, str]) -> Caches:
    """The caches of the user with these variables; they need not exist."""
    home = Path(host.get("HOME") or Path.home())
    own = Path(host.get("XDG_CACHE_HOME") or home / ".cache")
    return Caches(harbor=home / ".cache" / "harbor", own=own / "proctor")


def git_task_id(git_url: str, commit: str | None, path: Path) -> str:
    """The id under which harbor caches a task of a git repository."""
    # harbor hashes the string form of its pydantic model; ours must match it exactly to share the
    # cache.
    identity = f"git_url={git_url!r} git_commit_id={commit!r} path={path!r}"
    number = uuid5(NAMESPACE_DNS, identity).int
    digits = []
    for _ in range(_ID_LENGTH):
        number, digit = divmod(number, len(ALPHABET))
        digits.append(ALPHABET[digit])
    return "".join(reversed(digits))


def fill_once(target: Path, fill: Callable[[Path], None]) -> None:
    """Let `fill` create a directory, then rename it to its name atomically.

    An existing directory wins. If `fill` raises, nothing is left behind.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".new-", dir=target.parent) as scratch:
        made = Path(scratch, target.name)
        fill(made)
        with suppress(FileNotFoundError, NotADirectoryError):
            # rename replaces no existing directory here, so an empty one is removed first.
            if not any(target.iterdir()):
                shutil.rmtree(target)
        if not target.exists():
            with suppress(FileExistsError):
                made.rename(target)
