"""Finds the user of a command in the sandbox's /etc/passwd and /etc/group; maps users to host ids.

The files are parsed here, because the C library's lookup (NSS) would load libraries from the
sandbox. The agent may have written them: invalid lines are skipped.

For an unprivileged user without subordinate ids, root inside is that user outside, and there are no
other users. For root, each sandbox gets its own range of ids. Uses only the standard library.
"""

import os
import stat
from dataclasses import dataclass

from proctor.environments.sandbox.blueprint import FIRST_OF_RANGES, RANGE

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


_SWITCHES = (
    ("/proc/sys/kernel/unprivileged_userns_clone", "0"),
    ("/proc/sys/user/max_user_namespaces", "0"),
    ("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1"),
)


class MapError(Exception):
    """The ids could not be mapped."""


def map_self(uid: int, gid: int) -> None:
    """Map this user to root in the new user namespace of this process."""
    for name, line in (
        # The kernel requires this before an unprivileged process may write gid_map.
        ("setgroups", "deny"),
        ("uid_map", f"0 {uid} 1"),
        ("gid_map", f"0 {gid} 1"),
    ):
        with open(f"/proc/self/{name}", "wb") as file:
            file.write(line.encode())


def map_range(pid: int, first: int) -> None:
    """Map the ids of a process's user namespace to a range of the host's. For root on the host."""
    # Ids beyond the range are mapped to themselves: some archives have such owners, and unpacking
    # these must work as it does in a container.
    lines = f"0 {first} {RANGE}\n{RANGE} {RANGE} {FIRST_OF_RANGES - RANGE}"
    for name in ("uid_map", "gid_map"):
        with open(f"/proc/{pid}/{name}", "wb") as file:
            file.write(lines.encode())


def become_root() -> None:
    """Become root of the new user namespace of this process."""
    os.setgroups(())
    os.setresgid(0, 0, 0)
    os.setresuid(0, 0, 0)


def map_by_tools(pid: int, subordinate: tuple[tuple[int, int, int], ...]) -> None:
    """Map ids of a process's user namespace with newuidmap and newgidmap.

    Raises:
        MapError: these are not installed, or they fail.
    """
    for tool, own in (("newuidmap", os.getuid()), ("newgidmap", os.getgid())):
        lines = [(0, own, 1), *subordinate]
        words = [tool, str(pid), *(str(number) for line in lines for number in line)]
        code = _run(words)
        if code != 0:
            raise MapError(
                f"`{' '.join(words)}` ended with {code}: the ids must be this user's in "
                "/etc/subuid and /etc/subgid, and the tools (Debian's package uidmap) "
                "set-user-id root"
            )


def _run(words: list[str]) -> int:
    for place in ("/usr/bin", "/bin", "/usr/local/bin"):
        program = f"{place}/{words[0]}"
        if os.path.exists(program):
            pid = os.posix_spawn(program, words, {})
            return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    raise MapError(f"{words[0]} is not installed, and subordinate ids need it (package uidmap)")


def hint_on_namespaces() -> str:
    """Return why unprivileged users cannot make namespaces on this machine, to end a message."""
    found = [path for path, off in _SWITCHES if _read_switch(path) == off]
    if not found:
        return "; a container or a security module may forbid it, or the limit is reached"
    names = " and ".join(path.removeprefix("/proc/sys/").replace("/", ".") for path in found)
    return f"; {names} forbids it to unprivileged users: change that, or run as root"


def _read_switch(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return file.read().decode().strip()
    except OSError:
        return ""
