"""Cache of copies of the host's public files.

    <root>/lock               locked while a copy is made or removed
    <root>/<key>/             a complete copy; never changed
    <root>/<key>.lease        locked by every process that uses it
    <root>/building-*         a copy that is being made

The key covers everything that determines a copy.
"""

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from proctor.digest import sha256_hex
from proctor.environments.sandbox.delete import delete_tree
from proctor.environments.sandbox.locks import claimed, hold, locked, make_private

_LOCK = "lock"
_BUILDING = "building-"


def fingerprint(top: Path, is_left_out: Callable[[str], bool]) -> str:
    """Return a digest that changes with anything below a directory, without reading files."""
    return sha256_hex("\0".join(_lines(str(top), "", is_left_out)).encode(errors="surrogateescape"))


def _lines(directory: str, below: str, is_left_out: Callable[[str], bool]) -> Iterator[str]:
    try:
        with os.scandir(directory) as found:
            entries = sorted(found, key=lambda entry: entry.name)
    except OSError as error:
        yield f"{below} {error.errno}"
        return
    for entry in entries:
        path = f"{below}{entry.name}"
        if is_left_out(path):
            continue
        seen = entry.stat(follow_symlinks=False)
        # The kernel sets the ctime at every change, and no process can set it back.
        numbers = (seen.st_ino, seen.st_mode, seen.st_uid, seen.st_gid, seen.st_size)
        yield f"{path} {numbers} {seen.st_mtime_ns} {seen.st_ctime_ns}"
        if entry.is_dir(follow_symlinks=False):
            yield from _lines(entry.path, f"{path}/", is_left_out)


def load_copy(root: Path, key: str, make: Callable[[Path], None]) -> Path:
    """Return the copy of a key; if there is none, `make` makes it in an empty directory.

    It is not removed until this process ends.
    """
    make_private(root)
    home = root / key
    hold(root / f"{key}.lease")
    if home.is_dir():
        return home
    with locked(root / _LOCK):
        if not home.is_dir():
            fresh = Path(tempfile.mkdtemp(prefix=_BUILDING, dir=root))
            make(fresh)
            fresh.rename(home)
    return home


def reap_copies(root: Path, *, dry_run: bool = False) -> list[Path]:
    """Remove what killed processes left, and unused copies except the newest."""
    reaped: list[Path] = []
    with claimed(root / _LOCK) as is_free:
        if not is_free or not root.is_dir():
            return reaped
        copies = [path for path in root.iterdir() if path.is_dir()]
        left = [path for path in copies if path.name.startswith(_BUILDING)]
        whole = sorted(set(copies) - set(left), key=lambda path: path.stat().st_ctime_ns)
        reaped += [path for path in left if _is_removed(path, None, dry_run=dry_run)]
        for path in whole[:-1]:
            lease = root / f"{path.name}.lease"
            if _is_removed(path, lease, dry_run=dry_run):
                reaped.append(path)
    return reaped


def _is_removed(path: Path, lease: Path | None, *, dry_run: bool) -> bool:
    if lease is None:
        if not dry_run:
            delete_tree(path)
        return True
    with claimed(lease) as is_free:
        if is_free and not dry_run:
            # Renamed first, so that no process finds half of it.
            leaving = path.with_name(f"{_BUILDING}old-{path.name}")
            path.rename(leaving)
            delete_tree(leaving)
            lease.unlink(missing_ok=True)
    return is_free
