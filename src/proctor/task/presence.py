"""Whether something is there, links followed: yes, no, or an error that says it cannot be told.

The answers are those of `pathlib` on Python 3.12 and 3.13, which harbor asks. Later versions say
no where nobody may look.
"""

import errno
import stat
from pathlib import Path

_ABSENT = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EBADF, errno.ELOOP})


def is_there(path: Path) -> bool:
    """Whether there is anything.

    Raises:
        OSError: it cannot be told.
    """
    return _find_mode(path) is not None


def is_file(path: Path) -> bool:
    """Whether there is a regular file.

    Raises:
        OSError: it cannot be told.
    """
    mode = _find_mode(path)
    return mode is not None and stat.S_ISREG(mode)


def is_directory(path: Path) -> bool:
    """Whether there is a directory.

    Raises:
        OSError: it cannot be told.
    """
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
        # No file can have a NUL in its name.
        return None
