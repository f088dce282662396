"""Whether a path exists, links followed: yes, no, or an OSError if that cannot be determined.

The results are those of `pathlib` on Python 3.12 and 3.13, on which harbor runs. Later versions
answer no where permission is missing.
"""

import errno
import stat
from pathlib import Path

_ABSENT = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EBADF, errno.ELOOP})


def is_there(path: Path) -> bool:
    """Whether the path exists."""
    return _find_mode(path) is not None


def is_file(path: Path) -> bool:
    """Whether the path is a regular file."""
    mode = _find_mode(path)
    return mode is not None and stat.S_ISREG(mode)


def is_directory(path: Path) -> bool:
    """Whether the path is a directory."""
    mode = _find_mode(path)
    return mode is not None and stat.S_ISDIR(mode)


def _find_mode(path: Path) -> int | None:
    try:
        return path.stat().st_mode
    except OSError as error:
        if error.errno in _ABSENT:
            return None
        raise
    except ValueError:
        # A path with a NUL cannot exist.
        return None
