"""Who the users of a sandbox are on the host: the maps of ids.

Where an ordinary user makes it without subordinate ids, root inside is the user outside, and there
is nobody else. Root gives each sandbox a range of ids. Only the standard library; nothing here
makes a namespace.
"""

import os

from proctor.environments.sandbox.blueprint import FIRST_OF_RANGES, RANGE

_SWITCHES = (
    ("/proc/sys/kernel/unprivileged_userns_clone", "0"),
    ("/proc/sys/user/max_user_namespaces", "0"),
    ("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1"),
)


class MapError(Exception):
    """The ids could not be mapped; the message is a sentence."""


def map_self(uid: int, gid: int) -> None:
    """Be root in the user namespace that this process is the first of."""
    for name, line in (
        ("setgroups", "deny"),
        ("uid_map", f"0 {uid} 1"),
        ("gid_map", f"0 {gid} 1"),
    ):
        with open(f"/proc/self/{name}", "wb") as file:
            file.write(line.encode())


def map_range(pid: int, first: int) -> None:
    """Map the ids of a process's user namespace to a range of the host's; for the host's root.

    Larger ids are what they are outside: archives have such owners, and unpacking them must not
    fail where it succeeds elsewhere.
    """
    lines = f"0 {first} {RANGE}\n{RANGE} {RANGE} {FIRST_OF_RANGES - RANGE}"
    for name in ("uid_map", "gid_map"):
        with open(f"/proc/{pid}/{name}", "wb") as file:
            file.write(lines.encode())


def become_root() -> None:
    """Be root of the user namespace that this process is the first of."""
    os.setgroups(())
    os.setresgid(0, 0, 0)
    os.setresuid(0, 0, 0)


def map_by_tools(pid: int, subordinate: tuple[tuple[int, int, int], ...]) -> None:
    """Map ids of a process's user namespace, subordinate ones among them, by the system's tools.

    Raises:
        MapError: they are not installed, or refuse.
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
    """What on this machine keeps ordinary users from making namespaces, to end a sentence with."""
    found = [path for path, off in _SWITCHES if _read(path) == off]
    if not found:
        return "; a container or a security module may forbid it, or their number is used up"
    names = " and ".join(path.removeprefix("/proc/sys/").replace("/", ".") for path in found)
    return f"; {names} forbids it to ordinary users: change that, or run as root"


def _read(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return file.read().decode().strip()
    except OSError:
        return ""
