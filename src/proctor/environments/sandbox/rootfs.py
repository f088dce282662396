"""The root file system of a sandbox, put together by its PID 1 in a mount namespace of its own.

    1  nothing that is mounted here is seen on the host; the place for verifiers' rooms is opened
    2  the overlays, on each other, and the first of them made the root; where the zygote made them
       (premade.py), they are attached
    3  /proc, read-only, with what tells of the host masked
    4  a /dev of harmless devices
    5  /sys: nothing
    6  the directories that were asked for, and the guarded ones as mount points
    7  the host's own tree taken away

Every path is resolved inside the new root from step 3 on: a link in an image cannot lead out of it.
Everything is nodev and nosuid, but for the six devices. Nothing here runs a command.
"""

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from proctor.environments.sandbox.blueprint import Blueprint, Part
from proctor.environments.sandbox.channel import close_all
from proctor.environments.sandbox.syscalls import (
    MS_BIND,
    MS_NODEV,
    MS_NOEXEC,
    MS_NOSUID,
    MS_PRIVATE,
    MS_RDONLY,
    MS_REC,
    MS_REMOUNT,
    attach_tree,
    clone_tree,
    mount,
    pivot_root,
    unmount,
)

_DEVICES = {
    "null": (1, 3),
    "zero": (1, 5),
    "full": (1, 7),
    "random": (1, 8),
    "urandom": (1, 9),
    "tty": (5, 0),
}
DEVICES_OPTIONS = {"mode": "755", "size": "1048576"}
_MASKED = (
    *("kcore", "keys", "key-users", "timer_list", "timer_stats", "sched_debug", "latency_stats"),
    *("kmsg", "kpagecgroup", "kpagecount", "kpageflags", "scsi", "acpi", "asound", "interrupts"),
    # Parameters of the host's kernel, paths of its swap files, and what it exports and mounts.
    *("cmdline", "bootconfig", "swaps", "fs"),
)
PLAIN = MS_NOSUID | MS_NODEV
_STRICT = MS_NOSUID | MS_NODEV | MS_NOEXEC
_SHARED_MEMORY = "/dev/shm"  # noqa: S108 - the sandbox's own
_USUAL = (("/tmp", 0o1777), ("/run", 0o755), ("/mnt", 0o755), ("/root", 0o700))  # noqa: S108
_TERMINALS_GROUP = 5


class StepError(Exception):
    """A sandbox could not be built; the message names the step and what the system said."""


@contextmanager
def step(what: str, hint: str = "") -> Iterator[None]:
    """A step of the building, so that a failure says in which it was."""
    try:
        yield
    except OSError as error:
        place = f" ({error.filename})" if error.filename else ""
        reason = error.strerror or str(error)
        more = f"; {hint}" if hint else ""
        raise StepError(f"{what}: {reason}, errno {error.errno}{place}{more}") from error


@dataclass(frozen=True, slots=True)
class Premade:
    """Mounts that are nowhere yet, each an open file."""

    parts: tuple[int, ...]
    """The overlays, in the blueprint's order."""
    rooms: int
    devices: int
    """A file system for /dev with the devices in it."""


@dataclass(frozen=True, slots=True)
class Root:
    """What PID 1 keeps of a root that was built."""

    rooms_fd: int
    """The directory for verifiers' rooms, as a mount that is nowhere: in a list of mounts, its line
    would tell where on the host it lies."""
    guarded: frozenset[str]


def build_root(blueprint: Blueprint, premade: Premade | None, *, in_user_namespace: bool) -> Root:
    """Build it and enter it; what was premade goes on the working directory.

    `in_user_namespace`: an ordinary user's, in which the overlays are mounted.

    Raises:
        StepError: it cannot be built.
    """
    with step("keeping mounts apart from the host's"):
        mount("none", "/", flags=MS_REC | MS_PRIVATE)
    hosts: dict[str, int] = {}
    if premade is not None:
        rooms_fd = premade.rooms
        _attach_parts(blueprint.parts, premade.parts)
    else:
        with step("opening the host's devices"):
            hosts = {name: os.open(f"/dev/{name}", os.O_PATH) for name in _DEVICES}
        rooms_fd = _open_rooms(blueprint.rooms)
        for part in blueprint.parts:
            _mount_part(blueprint.root, part, in_user_namespace=in_user_namespace)
        with step("entering the new root"):
            os.chdir(blueprint.root)
    with step("entering the new root"):
        pivot_root(".", ".")
    os.umask(0)
    _mount_proc()
    _mount_devices(hosts, premade)
    _mount_terminals(has_groups=not in_user_namespace)
    _mount_sys()
    _mask_proc()
    _make_directories(blueprint)
    with step("taking the host's tree away"):
        unmount(".")
        os.chdir("/")
    return Root(rooms_fd, frozenset(blueprint.guarded))


def _attach_parts(parts: Sequence[Part], trees: Sequence[int]) -> None:
    """Attach overlays on the working directory, and make the first of them that."""
    for part, tree in zip(parts, trees, strict=True):
        with step(f"attaching the overlay on {part.target}"):
            if part.target == "/":
                attach_tree(tree, "")
                os.fchdir(tree)
            else:
                _make_real_directories(".", part.target)
                attach_tree(tree, f".{part.target}")
            os.close(tree)


def _open_rooms(place: str) -> int:
    """The place for verifiers' rooms; what is mounted for it goes with the host's tree."""
    with step("making a place for verifiers' rooms"):
        os.makedirs(place, mode=0o700, exist_ok=True)
        if os.statvfs(place).f_flag & os.ST_NOEXEC:
            # Tests have to be executable there, whatever the host thinks of its scratch.
            mount("tmpfs", place, "tmpfs", PLAIN, "mode=700")
        else:
            mount(place, place, flags=MS_BIND)
            mount("none", place, flags=MS_REMOUNT | MS_BIND | PLAIN)
        fd = os.open(place, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            return clone_tree(fd)
        finally:
            os.close(fd)


def _mount_part(root: str, part: Part, *, in_user_namespace: bool) -> None:
    target = root if part.target == "/" else root.rstrip("/") + part.target
    with step(f"mounting an overlay on {part.target}"):
        _make_real_directories(root, part.target)
        if part.mounted:
            mount(part.mounted, target, flags=MS_BIND)
    if not part.mounted:
        mount_overlay(part, target, in_user_namespace=in_user_namespace)


def mount_overlay(part: Part, target: str, *, in_user_namespace: bool) -> None:
    """Mount one overlay on a directory.

    Raises:
        StepError: it cannot be mounted.
    """
    where = f"mounting an overlay on {part.target}"
    with step(where):
        lowers = [os.open(lower, os.O_PATH | os.O_DIRECTORY) for lower in part.lowers]
        upper = os.open(part.upper, os.O_PATH | os.O_DIRECTORY)
        work = os.open(part.work, os.O_PATH | os.O_DIRECTORY)
    # By descriptor: no path of the host is to be read in /proc/mounts, and the options stay short.
    below = ":".join(f"/proc/self/fd/{fd}" for fd in lowers)
    options = f"lowerdir={below},upperdir=/proc/self/fd/{upper},workdir=/proc/self/fd/{work}"
    if in_user_namespace:
        options += ",userxattr"
    try:
        with step(where, _overlay_hint(part, in_user_namespace=in_user_namespace)):
            try:
                # Without `volatile` every sandbox that ends would sync the whole file system.
                mount("overlay", target, "overlay", PLAIN, options + ",volatile")
            except OSError:
                mount("overlay", target, "overlay", PLAIN, options)
    finally:
        for fd in (*lowers, upper, work):
            os.close(fd)


def _overlay_hint(part: Part, *, in_user_namespace: bool) -> str:
    allowed = (
        "; in a user namespace it takes Linux 5.11 and no rule of AppArmor against it"
        if in_user_namespace
        else ""
    )
    return (
        f"the file system of {part.upper} has to support overlays (ext4, xfs, btrfs and tmpfs do), "
        f"and no other mount may be using that directory{allowed}"
    )


def _make_real_directories(root: str, target: str, *, for_all: bool = False) -> None:
    """Make the directories down to a path; none may be a link, which could lead out."""
    path = root.rstrip("/")
    names = target.strip("/").split("/")
    for depth, name in enumerate(names, 1):
        path = f"{path}/{name}" if name else path or "/"
        is_for_all = for_all and depth == len(names)
        try:
            os.mkdir(path, 0o777 if is_for_all else 0o755)
        except FileExistsError:
            mode = os.lstat(path).st_mode
            if not stat.S_ISDIR(mode):
                raise NotADirectoryError(20, "not a directory, or a link", path) from None
            # Not without need: that would copy it into the upper directory.
            if is_for_all and stat.S_IMODE(mode) != 0o777:
                os.chmod(path, 0o777)  # noqa: S103 - whoever the agent is, it writes there


def _mount_proc() -> None:
    with step("mounting /proc", "in a container, its own /proc must not be masked"):
        os.makedirs("/proc", 0o755, exist_ok=True)
        # All of it read-only: even the mode of /proc/meminfo is that of everybody's on the machine.
        mount("proc", "/proc", "proc", _STRICT | MS_RDONLY)


def _mount_devices(hosts: dict[str, int], premade: Premade | None) -> None:
    with step("making /dev"):
        os.makedirs("/dev", 0o755, exist_ok=True)
        has_own = _mount_dev(premade)
        for name in _DEVICES:
            node = f"/dev/{name}"
            mount(node if has_own else f"/proc/self/fd/{hosts[name]}", node, flags=MS_BIND)
            # A mount point that is read-only: nobody puts another file, mode or owner there.
            flags = MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NOEXEC
            mount("none", node, flags=flags)
        close_all(list(hosts.values()))
        mount("none", "/dev", flags=MS_REMOUNT | MS_BIND | _STRICT)
        for number, name in enumerate(("stdin", "stdout", "stderr")):
            os.symlink(f"/proc/self/fd/{number}", f"/dev/{name}")
        os.symlink("/proc/self/fd", "/dev/fd")
        os.symlink("pts/ptmx", "/dev/ptmx")


def _mount_dev(premade: Premade | None) -> bool:
    """Mount /dev; whether devices of its own are there."""
    if premade is not None:
        attach_tree(premade.devices, "/dev")
        os.close(premade.devices)
        return True
    options = ",".join(f"{name}={value}" for name, value in DEVICES_OPTIONS.items())
    mount("tmpfs", "/dev", "tmpfs", MS_NOSUID | MS_NOEXEC, options)
    return _make_own_nodes()


def _make_own_nodes() -> bool:
    """Make devices in /dev; False, with files in their place, where only the host's can be had."""
    fd = os.open("/dev", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        make_nodes(fd)
    except PermissionError:
        # An ordinary user's namespace, or a container that may not make devices.
        for name in _DEVICES:
            os.close(os.open(name, os.O_CREAT | os.O_WRONLY, 0o666, dir_fd=fd))
        return False
    finally:
        os.close(fd)
    return True


def make_nodes(directory: int) -> None:
    """Make the devices of a sandbox in an open directory.

    Raises:
        OSError: this process may not.
    """
    for name, (major, minor) in _DEVICES.items():
        os.mknod(name, stat.S_IFCHR | 0o666, os.makedev(major, minor), dir_fd=directory)
        os.chmod(name, 0o666, dir_fd=directory)  # noqa: S103 - as devices have it


def _mount_terminals(*, has_groups: bool) -> None:
    with step("making /dev/shm and /dev/pts"):
        os.mkdir(_SHARED_MEMORY)
        mount("tmpfs", _SHARED_MEMORY, "tmpfs", PLAIN, "mode=1777,size=268435456")
        os.mkdir("/dev/pts")
        group = f",gid={_TERMINALS_GROUP}" if has_groups else ""
        options = f"newinstance,ptmxmode=0666,mode=0620{group}"
        mount("devpts", "/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, options)


def _mount_sys() -> None:
    with step("making /sys"):
        os.makedirs("/sys", 0o755, exist_ok=True)
        mount("tmpfs", "/sys", "tmpfs", _STRICT | MS_RDONLY, "mode=555,size=4096")


def _mask_proc() -> None:
    with step("masking parts of /proc"):
        for name in _MASKED:
            path = f"/proc/{name}"
            if os.path.exists(path):
                mount("/sys" if os.path.isdir(path) else "/dev/null", path, flags=MS_BIND)


def _make_directories(blueprint: Blueprint) -> None:
    with step("making directories"):
        for path, mode in _USUAL:
            if not os.path.lexists(path):
                os.mkdir(path, mode)
        for path in (*blueprint.directories, *blueprint.guarded):
            _make_real_directories("/", path, for_all=True)
    with step("guarding the verifier's directories"):
        done: set[str] = set()
        for path in blueprint.guarded:
            _guard(path, done)


def _guard(path: str, done: set[str]) -> None:
    """Mount a directory and those above it on themselves: mount points stay where they are."""
    names = path.strip("/").split("/")
    for depth in range(len(names)):
        one = "/" + "/".join(names[: depth + 1])
        if one not in done:
            mount(one, one, flags=MS_BIND | MS_REC)
            done.add(one)
