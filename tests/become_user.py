"""Becomes an ordinary user, and executes a program: the first half of tests/ordinary_user.py.

    python tests/become_user.py [--ids] [--tun] [--overlay] [--no-namespaces] WORD…

A script of its own, because it is started hundreds of times: pytest and most of proctor, which the
other half needs, take half a second to import.
"""

import os
import sys
from pathlib import Path

from proctor.environments.sandbox.syscalls import MS_BIND, MS_PRIVATE, MS_REC, mount, unmount

ROOT = Path(__file__).resolve().parents[1]
PERSON = 54321
"""Her user and group; not nobody's, whose id also stands for every file that is not mapped."""
IDS = "--ids"
"""She has subordinate ids, as on a machine that is set up for containers."""
TUN = "--tun"
"""Everybody may open /dev/net/tun."""
FIRST_ID = 200_000
"""The first of her subordinate ids; there are 65536."""
OVERLAY = "--overlay"
"""The directory that she starts in is on an overlay, as in a container; it is as before after."""
NO_NAMESPACES = "--no-namespaces"
"""No user namespace can be made."""

_NAME = "person"
_TUN = os.makedev(10, 200)


def main() -> None:
    """Furnish the machine, become her, and execute."""
    words = sys.argv[1:]
    machine = set()
    while words[0].startswith("--"):
        machine.add(words.pop(0))
    os.unshare(os.CLONE_NEWNS)
    mount("none", "/", flags=MS_REC | MS_PRIVATE)
    here = Path.cwd()
    open_ways(*(Path(one).resolve() for one in (sys.base_prefix, sys.prefix, ROOT, here)))
    furnish(machine)
    if NO_NAMESPACES in machine:
        forbid_namespaces()
    os.chdir(here)
    os.setgroups([])
    os.setresgid(PERSON, PERSON, PERSON)
    os.setresuid(PERSON, PERSON, PERSON)
    os.execv(words[0], words)  # noqa: S606 - a command line, not a shell's


def open_ways(*needed: Path) -> None:
    """Cover what not everybody may enter by directories that hold these paths alone."""
    found = {path: (find_closed(path), os.open(path, os.O_PATH)) for path in needed}
    for covered in {closed for closed, _ in found.values() if closed is not None}:
        mount("tmpfs", str(covered), "tmpfs", options="mode=755")
    for path, (closed, held) in found.items():
        if closed is not None:
            path.mkdir(parents=True, exist_ok=True)
            mount(f"/proc/self/fd/{held}", str(path), flags=MS_BIND | MS_REC)
        os.close(held)


def find_closed(path: Path) -> Path | None:
    """The first directory on the way to a path that not everybody may enter."""
    ways = reversed(path.parents)
    return next((one for one in ways if not one.stat().st_mode & 0o001), None)


def furnish(machine: set[str]) -> None:
    """Give her a name, and the machine what else it is to have."""
    home = os.environ.get("HOME", "/")
    entry = f"{_NAME}:x:{PERSON}:{PERSON}::{home}:/bin/sh\n"
    place = Path("/mnt")
    mount("tmpfs", str(place), "tmpfs", options="mode=755")
    cover("/etc/passwd", place, Path("/etc/passwd").read_text() + entry)
    cover("/etc/group", place, f"{Path('/etc/group').read_text()}{_NAME}:x:{PERSON}:\n")
    if IDS in machine:
        for name in ("/etc/subuid", "/etc/subgid"):
            cover(name, place, f"{_NAME}:{FIRST_ID}:65536\n")
    if TUN in machine:
        path = place / "tun"
        os.mknod(path, 0o20666, _TUN)
        path.chmod(0o666)
        mount(str(path), "/dev/net/tun", flags=MS_BIND)
    if OVERLAY in machine:
        mount_overlay(Path.cwd(), place)
    # What was mounted from it stays.
    unmount(str(place))


def cover(target: str, place: Path, text: str) -> None:
    """Put a text over a file."""
    path = place / Path(target).name
    path.write_text(text)
    mount(str(path), target, flags=MS_BIND)


def mount_overlay(directory: Path, place: Path) -> None:
    """Put an overlay over a directory."""
    upper, work = place / "upper", place / "work"
    upper.mkdir()
    work.mkdir()
    os.chown(upper, PERSON, PERSON)
    options = f"lowerdir={directory},upperdir={upper},workdir={work}"
    mount("overlay", str(directory), "overlay", options=options)


def forbid_namespaces() -> None:
    """Enter a user namespace in which everybody is who they were, and none can be made."""
    theirs, ours = os.pipe()
    root = os.getpid()
    if (mapper := os.fork()) == 0:
        os.close(ours)
        os.read(theirs, 1)
        for name in ("uid_map", "gid_map"):
            Path(f"/proc/{root}/{name}").write_text(f"0 0 {PERSON + 1}\n")
        os._exit(0)
    os.unshare(os.CLONE_NEWUSER)
    os.write(ours, b"+")
    assert os.waitpid(mapper, 0)[1] == 0
    Path("/proc/sys/user/max_user_namespaces").write_text("0")


if __name__ == "__main__":
    main()
