"""Builds the root file system of a sandbox. Run by its PID 1 in a new mount namespace.

    1  make mounts private, so that the host does not see them; open the directory for rooms
    2  mount the overlays, or attach those that the zygote made (premade.py), and pivot into them
    3  mount /proc; all of it that is not of one process is read-only, or masked
    4  make a /dev with harmless devices
    5  mount an empty /sys
    6  create the requested directories, and make the guarded ones mount points
    7  unmount the host's tree

From step 3 on, paths are resolved inside the new root: a symlink in an image cannot lead out of it.
All mounts are nodev and nosuid, except the six devices.
"""

import os
import stat
from collections.abc import Iterator
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
_MASKED = {
    *("kcore", "keys", "key-users", "timer_list", "timer_stats", "sched_debug", "latency_stats"),
    *("kmsg", "kpagecgroup", "kpagecount", "kpageflags", "scsi", "acpi", "asound", "interrupts"),
    # The host's kernel parameters, the paths of its swap files, its exports and file systems.
    *("cmdline", "bootconfig", "swaps", "fs"),
}
PLAIN = MS_NOSUID | MS_NODEV
_STRICT = MS_NOSUID | MS_NODEV | MS_NOEXEC
_SHARED_MEMORY = "/dev/shm"  # noqa: S108 - the sandbox's own
_USUAL = (("/tmp", 0o1777), ("/run", 0o755), ("/mnt", 0o755), ("/root", 0o700))  # noqa: S108
# The group tty, which has this number in all common distributions.
_TERMINALS_GROUP = 5


class StepError(Exception):
    """A sandbox could not be built; the message names the step and the system's error."""


@contextmanager
def step(what: str, hint: str = "") -> Iterator[None]:
    """Turn an OSError into a StepError that names the step."""
    try:
        yield
    except OSError as error:
        place = f" ({error.filename})" if error.filename else ""
        reason = error.strerror or str(error)
        more = f"; {hint}" if hint else ""
        raise StepError(f"{what}: {reason}, errno {error.errno}{place}{more}") from error


@dataclass(frozen=True, slots=True)
class Premade:
    """Detached mounts, each an open file."""

    parts: tuple[int, ...]
    """Overlays, in the blueprint's order."""
    rooms: int
    devices: int
    """File system for /dev, with the devices."""


@dataclass(frozen=True, slots=True)
class Root:
    """What PID 1 needs of a root after building it."""

    rooms_fd: int
    """Directory for verifiers' rooms, as a detached mount: an attached one would show its host path
    in /proc/mounts."""
    guarded: frozenset[str]


def build_root(blueprint: Blueprint, premade: Premade | None, *, in_user_namespace: bool) -> Root:
    """Build the root and enter it; premade overlays are attached to the working directory.

    `in_user_namespace`: the sandbox is an unprivileged user's, and mounts its overlays itself.
    """
    with step("keeping mounts apart from the host's"):
        mount("none", "/", flags=MS_REC | MS_PRIVATE)
    hosts: dict[str, int] = {}
    if premade is not None:
        rooms_fd = premade.rooms
        for part, tree in zip(blueprint.parts, premade.parts, strict=True):
            with step(f"attaching the overlay on {part.target}"):
                if part.target == "/":
                    attach_tree(tree, "")
                    os.fchdir(tree)
                else:
                    _make_real_directories(".", part.target)
                    attach_tree(tree, f".{part.target}")
                os.close(tree)
    else:
        with step("opening the host's devices"):
            hosts = {name: os.open(f"/dev/{name}", os.O_PATH) for name in _DEVICES}
        rooms_fd = _open_rooms(blueprint.rooms)
        for part in blueprint.parts:
            target = (
                blueprint.root if part.target == "/" else blueprint.root.rstrip("/") + part.target
            )
            with step(f"mounting an overlay on {part.target}"):
                _make_real_directories(blueprint.root, part.target)
                if part.mounted:
                    mount(part.mounted, target, flags=MS_BIND)
            if not part.mounted:
                mount_overlay(part, target, in_user_namespace=in_user_namespace)
        with step("entering the new root"):
            os.chdir(blueprint.root)
    with step("entering the new root"):
        # This stacks the old root on the new one, so it needs no directory; step 7 unmounts it.
        pivot_root(".", ".")
    os.umask(0)
    with step("mounting /proc", "in a container, its own /proc must not be masked"):
        os.makedirs("/proc", 0o755, exist_ok=True)
        try:
            mount("proc", "/proc", "proc", _STRICT)
        except PermissionError:
            # A user namespace may not make it more writable than the one it can see.
            mount("proc", "/proc", "proc", _STRICT | MS_RDONLY)
    _mount_devices(hosts, premade)
    with step("making /dev/shm and /dev/pts"):
        os.mkdir(_SHARED_MEMORY)
        mount("tmpfs", _SHARED_MEMORY, "tmpfs", PLAIN, "mode=1777,size=268435456")
        os.mkdir("/dev/pts")
        # devpts refuses a group that is not mapped in the user namespace.
        group = f",gid={_TERMINALS_GROUP}" if not in_user_namespace else ""
        options = f"newinstance,ptmxmode=0666,mode=0620{group}"
        mount("devpts", "/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, options)
    with step("making /sys"):
        os.makedirs("/sys", 0o755, exist_ok=True)
        # The real /sys would show the host's hardware and let root change its settings.
        mount("tmpfs", "/sys", "tmpfs", _STRICT | MS_RDONLY, "mode=555,size=4096")
    _protect_proc()
    _make_directories(blueprint)
    with step("taking the host's tree away"):
        unmount(".")
        os.chdir("/")
    return Root(rooms_fd, frozenset(blueprint.guarded))


def _open_rooms(place: str) -> int:
    """Open the directory for verifiers' rooms; its mount is removed with the host's tree."""
    with step("making a place for verifiers' rooms"):
        os.makedirs(place, mode=0o700, exist_ok=True)
        if os.statvfs(place).f_flag & os.ST_NOEXEC:
            # Tests have to be executable there, even if the host's scratch is noexec.
            mount("tmpfs", place, "tmpfs", PLAIN, "mode=700")
        else:
            mount(place, place, flags=MS_BIND)
            mount("none", place, flags=MS_REMOUNT | MS_BIND | PLAIN)
        fd = os.open(place, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            return clone_tree(fd)
        finally:
            os.close(fd)


def mount_overlay(part: Part, target: str, *, in_user_namespace: bool) -> None:
    """Mount one overlay on a directory."""
    where = f"mounting an overlay on {part.target}"
    with step(where):
        lowers = [os.open(lower, os.O_PATH | os.O_DIRECTORY) for lower in part.lowers]
        upper = os.open(part.upper, os.O_PATH | os.O_DIRECTORY)
        work = os.open(part.work, os.O_PATH | os.O_DIRECTORY)
    # By descriptor, so that /proc/mounts shows no host paths, and the options stay within a page.
    below = ":".join(f"/proc/self/fd/{fd}" for fd in lowers)
    options = f"lowerdir={below},upperdir=/proc/self/fd/{upper},workdir=/proc/self/fd/{work}"
    if in_user_namespace:
        options += ",userxattr"
    try:
        with step(where, _overlay_hint(part, in_user_namespace=in_user_namespace)):
            try:
                # Without `volatile`, unmounting would sync the whole file system.
                mount("overlay", target, "overlay", PLAIN, options + ",volatile")
            except OSError:
                mount("overlay", target, "overlay", PLAIN, options)
    finally:
        for fd in (*lowers, upper, work):
            os.close(fd)


def _overlay_hint(part: Part, *, in_user_namespace: bool) -> str:
    allowed = (
        "; in a user namespace it requires Linux 5.11 and no AppArmor rule against it"
        if in_user_namespace
        else ""
    )
    return (
        f"the file system of {part.upper} has to support overlays (ext4, xfs, btrfs and tmpfs do), "
        f"and no other mount may be using that directory{allowed}"
    )


def _make_real_directories(root: str, target: str, *, for_all: bool = False) -> None:
    """Create the directories down to a path; none may be a symlink, which could lead out."""
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
            # Only if needed: chmod copies the directory into the upper layer.
            if is_for_all and stat.S_IMODE(mode) != 0o777:
                os.chmod(path, 0o777)  # noqa: S103 - the agent may be any user


def _mount_devices(hosts: dict[str, int], premade: Premade | None) -> None:
    with step("making /dev"):
        os.makedirs("/dev", 0o755, exist_ok=True)
        # Return whether it has its own device nodes.
        if premade is not None:
            attach_tree(premade.devices, "/dev")
            os.close(premade.devices)
            has_own = True
        else:
            options = ",".join(f"{name}={value}" for name, value in DEVICES_OPTIONS.items())
            mount("tmpfs", "/dev", "tmpfs", MS_NOSUID | MS_NOEXEC, options)
            has_own = _make_own_nodes()
        for name in _DEVICES:
            node = f"/dev/{name}"
            mount(node if has_own else f"/proc/self/fd/{hosts[name]}", node, flags=MS_BIND)
            # A read-only mount point, so that no process can replace it or change mode or owner.
            flags = MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NOEXEC
            mount("none", node, flags=flags)
        close_all(list(hosts.values()))
        mount("none", "/dev", flags=MS_REMOUNT | MS_BIND | _STRICT)
        for number, name in enumerate(("stdin", "stdout", "stderr")):
            os.symlink(f"/proc/self/fd/{number}", f"/dev/{name}")
        os.symlink("/proc/self/fd", "/dev/fd")
        os.symlink("pts/ptmx", "/dev/ptmx")


def _make_own_nodes() -> bool:
    """Make device nodes in /dev; if not permitted, make files to mount the host's on."""
    fd = os.open("/dev", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        make_nodes(fd)
    except PermissionError:
        # An unprivileged user's namespace, or a container that may not make devices.
        for name in _DEVICES:
            os.close(os.open(name, os.O_CREAT | os.O_WRONLY, 0o666, dir_fd=fd))
        return False
    finally:
        os.close(fd)
    return True


def make_nodes(directory: int) -> None:
    """Make the device nodes of a sandbox in an open directory."""
    for name, (major, minor) in _DEVICES.items():
        os.mknod(name, stat.S_IFCHR | 0o666, os.makedev(major, minor), dir_fd=directory)
        os.chmod(name, 0o666, dir_fd=directory)  # noqa: S103 - as devices have it


def _protect_proc() -> None:
    """Make everything in /proc read-only that is not of one process, and mask some of it.

    Processes may write their own files there, such as loginuid. The rest is the host's: even the
    mode of /proc/meminfo is, and root with the host's ids could change it.
    """
    with step("protecting parts of /proc"):
        with os.scandir("/proc") as entries:
            kinds = {
                entry.name: entry.is_dir(follow_symlinks=False)
                for entry in entries
                if not entry.name.isdecimal() and not entry.is_symlink()
            }
        # Mounts inherit these flags from where they are bound; /sys is empty, and a place to be.
        mount("/proc", "/sys", flags=MS_BIND)
        mount("none", "/sys", flags=MS_REMOUNT | MS_BIND | _STRICT | MS_RDONLY)
        for name in kinds.keys() - _MASKED:
            mount(f"/sys/{name}", f"/proc/{name}", flags=MS_BIND)
        unmount("/sys")
        for name in kinds.keys() & _MASKED:
            # The empty /sys masks directories.
            mount("/sys" if kinds[name] else "/dev/null", f"/proc/{name}", flags=MS_BIND)


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
            # Bind-mount a directory and its parents on themselves, so that they cannot be renamed.
            names = path.strip("/").split("/")
            for depth in range(len(names)):
                one = "/" + "/".join(names[: depth + 1])
                if one not in done:
                    mount(one, one, flags=MS_BIND | MS_REC)
                    done.add(one)
