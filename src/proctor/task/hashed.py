"""A cache of SHA-256 digests of files, valid while the files do not change.

Many attempts at one task need its digests, but its files are read once. A file is identified by
device, inode, size and both timestamps. A file changed a moment ago is not cached: it could change
again within one tick of the file system's clock and look the same.
"""

import stat
import time
from collections import OrderedDict
from collections.abc import Callable
from os import stat_result
from pathlib import Path
from threading import Lock

from proctor.digest import sha256_file, sha256_hex
from proctor.errors import TaskError
from proctor.files import read_small

# Files up to 8 MiB are read in one piece.
_SMALL = 1 << 23
# The coarsest file system clock in use, FAT's, ticks every two seconds.
_SETTLED_NS = 2_000_000_000
_CAPACITY = 1 << 16

type Identity = tuple[int, int, int, int, int]


class FileHashes:
    """Digests of files by identity, so that a file is read again only after a change."""

    def __init__(
        self, capacity: int = _CAPACITY, clock_ns: Callable[[], int] = time.time_ns
    ) -> None:
        self._capacity = capacity
        self._clock_ns = clock_ns
        self._known: OrderedDict[Identity, str] = OrderedDict()
        self._lock = Lock()
        self.reads = 0
        """How often a file was actually read."""

    def __len__(self) -> int:
        return len(self._known)

    def digest_of(self, path: Path) -> str:
        """SHA-256 of a regular file, in hex; links are followed.

        Raises:
            TaskError: it cannot be read, or is not a regular file.
        """
        try:
            before = path.stat()
            if not stat.S_ISREG(before.st_mode):
                raise TaskError(f"{path}: not a regular file; it cannot be hashed")
            with self._lock:
                known = self._known.get(_identity(before))
                if known:
                    self._known.move_to_end(_identity(before))
                    return known
                self.reads += 1
            began = self._clock_ns()
            digest = _hash(path, before.st_size)
            self._remember(before, path.stat(), began, digest)
        except OSError as error:
            raise TaskError(f"{path}: cannot be read: {error.strerror}") from error
        return digest

    def _remember(self, before: stat_result, after: stat_result, began: int, digest: str) -> None:
        changed = max(before.st_mtime_ns, before.st_ctime_ns)
        # Cache only if the file stayed the same during the read, and had settled before it.
        if _identity(before) != _identity(after) or changed > began - _SETTLED_NS:
            return
        with self._lock:
            self._known[_identity(before)] = digest
            while len(self._known) > self._capacity:
                self._known.popitem(last=False)


SHARED = FileHashes()
"""The cache of this process."""


def _hash(path: Path, size: int) -> str:
    # Files that the kernel generates (/proc, /sys) claim to be small, and some block when read;
    # read_small never blocks.
    return sha256_hex(read_small(str(path))) if size <= _SMALL else sha256_file(path)


def _identity(found: stat_result) -> Identity:
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
