"""Files from inside an environment, put beside those that were written on the host.

What the host wrote stands: a file of the same name from inside that differs is kept as
`<name>.inside`, so that nobody inside can put words into the mouth of an agent that runs outside.
Links are moved as links and never followed.
"""

import filecmp
import os
import stat

SUFFIX = ".inside"


def merge_tree(source: str, target: str) -> list[str]:
    """Move all that is in a directory into another; what differed, by its path below there.

    Raises:
        OSError: something cannot be moved; the rest is still in the source.
    """
    differing: list[str] = []
    _merge(source, target, "", differing)
    return differing


def _merge(source: str, target: str, below: str, differing: list[str]) -> None:
    with os.scandir(source) as entries:
        found = sorted(entries, key=lambda entry: entry.name)
    for entry in found:
        name = f"{below}{entry.name}"
        place = f"{target}/{entry.name}"
        if not os.path.lexists(place):
            os.rename(entry.path, place)
        elif entry.is_dir(follow_symlinks=False) and _is_directory(place):
            _merge(entry.path, place, f"{name}/", differing)
        elif not _is_same(entry.path, place):
            os.rename(entry.path, _find_free(place))
            differing.append(name)


def _is_directory(path: str) -> bool:
    return stat.S_ISDIR(os.lstat(path).st_mode)


def _is_same(inside: str, outside: str) -> bool:
    one, other = os.lstat(inside), os.lstat(outside)
    if stat.S_ISLNK(one.st_mode) and stat.S_ISLNK(other.st_mode):
        return os.readlink(inside) == os.readlink(outside)
    plain = stat.S_ISREG(one.st_mode) and stat.S_ISREG(other.st_mode)
    return plain and filecmp.cmp(inside, outside, shallow=False)


def _find_free(place: str) -> str:
    free, number = f"{place}{SUFFIX}", 1
    while os.path.lexists(free):
        number += 1
        free = f"{place}{SUFFIX}.{number}"
    return free
