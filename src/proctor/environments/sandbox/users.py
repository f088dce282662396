"""Finds the user of a command in the sandbox's /etc/passwd and /etc/group.

Parsed here, because the C library's lookup (NSS) would load libraries from the sandbox. The agent
may have written the files: invalid lines are skipped.
"""

import os
import stat
from dataclasses import dataclass

_LARGEST = 1 << 22
# The largest number, -1, is not an id.
_MOST_ID = (1 << 32) - 2


class UnknownUserError(Exception):
    """There is no such user or group."""


@dataclass(frozen=True, slots=True)
class User:
    """A user and its groups."""

    uid: int
    gid: int
    groups: tuple[int, ...]
    home: str


def find_user(name: str, etc: str = "/etc") -> User:
    """Find a user by name or number, optionally with `:group`, as `docker exec --user` does.

    `etc` is the directory of passwd and group.
    """
    wanted, _, group = name.partition(":")
    user = _find_entry(wanted, etc)
    if group:
        gid = _find_group(group, etc)
        return User(user.uid, gid, (gid,), user.home)
    return user


def _find_entry(wanted: str, etc: str) -> User:
    number = _id_of(wanted)
    for fields in _entries(f"{etc}/passwd", 7):
        uid, gid = _id_of(fields[2]), _id_of(fields[3])
        if uid is None or gid is None or (fields[0] != wanted and uid != number):
            continue
        return User(uid, gid, _groups_of(fields[0], gid, etc), fields[5] or "/")
    if number is not None:
        return User(number, 0, (0,), "/root" if number == 0 else "/")
    if wanted == "root":
        return User(0, 0, (0,), "/root")
    raise UnknownUserError(f"user {wanted!r} is not in the sandbox's /etc/passwd")


def _groups_of(name: str, gid: int, etc: str) -> tuple[int, ...]:
    found = {gid}
    for fields in _entries(f"{etc}/group", 4):
        number = _id_of(fields[2])
        if number is not None and name in fields[3].split(","):
            found.add(number)
    return tuple(sorted(found))


def _find_group(wanted: str, etc: str) -> int:
    for fields in _entries(f"{etc}/group", 4):
        number = _id_of(fields[2])
        if number is not None and fields[0] == wanted:
            return number
    if (number := _id_of(wanted)) is not None:
        return number
    raise UnknownUserError(f"group {wanted!r} is not in the sandbox's /etc/group")


def _id_of(text: str) -> int | None:
    number = int(text) if text.isascii() and text.isdecimal() and len(text) <= 10 else -1
    return number if 0 <= number <= _MOST_ID else None


def _entries(path: str, width: int) -> list[list[str]]:
    return [fields for line in _read(path).split("\n") if len(fields := line.split(":")) == width]


def _read(path: str) -> str:
    """Read a file, unless it is a pipe or a device, which could block."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return ""
        return os.read(fd, _LARGEST).decode(errors="surrogateescape")
    finally:
        os.close(fd)
