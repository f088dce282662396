"""Maps the users of a sandbox to ids of the host.

For an unprivileged user without subordinate ids, root inside is that user outside, and there are no
other users. For root, each sandbox gets its own range of ids. Uses only the standard library.
"""

import os

from proctor.environments.sandbox.blueprint import FIRST_OF_RANGES, RANGE

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
    found = [path for path, off in _SWITCHES if _read(path) == off]
    if not found:
        return "; a container or a security module may forbid it, or the limit is reached"
    names = " and ".join(path.removeprefix("/proc/sys/").replace("/", ".") for path in found)
    return f"; {names} forbids it to unprivileged users: change that, or run as root"


def _read(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return file.read().decode().strip()
    except OSError:
        return ""
