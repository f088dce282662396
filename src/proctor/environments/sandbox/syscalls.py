"""Linux system calls that Python does not offer, each raising OSError on failure.

They are looked up on import, so that nothing is linked later, inside a sandbox.
"""

import ctypes
import os
from collections.abc import Iterable

MS_RDONLY = 0x1
MS_NOSUID = 0x2
MS_NODEV = 0x4
MS_NOEXEC = 0x8
MS_REMOUNT = 0x20
MS_BIND = 0x1000
MS_MOVE = 0x2000
MS_REC = 0x4000
MS_PRIVATE = 0x40000
MS_SLAVE = 0x80000
MNT_DETACH = 0x2

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_KEEPCAPS = 8
PR_SET_NAME = 15
PR_SET_SECCOMP = 22
PR_CAPBSET_DROP = 24
PR_SET_SECUREBITS = 28
PR_SET_NO_NEW_PRIVS = 38
PR_CAP_AMBIENT = 47
PR_CAP_AMBIENT_RAISE = 2
PR_CAP_AMBIENT_CLEAR_ALL = 4

_CLONE = {"x86_64": 56, "aarch64": 220}
# From 424 on, numbers are the same on all architectures.
_OPEN_TREE = 428
_MOVE_MOUNT = 429
_FSOPEN = 430
_FSCONFIG = 431
_FSMOUNT = 432
_MOUNT_SETATTR = 442
_OPEN_TREE_CLONE = 1
_AT_EMPTY_PATH = 0x1000
_AT_FDCWD = -100
_MOVE_MOUNT_F_EMPTY_PATH = 0x4
_MOVE_MOUNT_T_EMPTY_PATH = 0x40
_FSCONFIG_SET_FLAG = 0
_FSCONFIG_SET_STRING = 1
_FSCONFIG_CMD_CREATE = 6
_CLOSED_ON_EXEC = 1
_MOUNT_ATTR_IDMAP = 0x100000
# Index of arg_start in the fields of /proc/self/stat after the name.
_ARG_START = 45
_CAPABILITY_VERSION_3 = 0x20080522

_libc = ctypes.CDLL(None, use_errno=True)
_mount = _libc.mount
_umount2 = _libc.umount2
_pivot_root = _libc.pivot_root
_prctl = _libc.prctl
_prctl.argtypes = (ctypes.c_int,) + (ctypes.c_ulong,) * 4
_capget = _libc.capget
_capset = _libc.capset
_setfsuid = _libc.setfsuid
_setfsgid = _libc.setfsgid
_syscall = _libc.syscall
_syscall.restype = ctypes.c_long
# PyDLL keeps the GIL during the call: the forked process has to own it.
_clone = ctypes.PyDLL(None, use_errno=True).syscall
_clone.restype = ctypes.c_long
_clone.argtypes = (ctypes.c_long, ctypes.c_ulong) + (ctypes.c_ulong,) * 4
_before_fork = ctypes.pythonapi.PyOS_BeforeFork
_after_fork_parent = ctypes.pythonapi.PyOS_AfterFork_Parent
_after_fork_child = ctypes.pythonapi.PyOS_AfterFork_Child


class _CapabilityHeader(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _CapabilityWords(ctypes.Structure):
    _fields_ = (
        ("effective", ctypes.c_uint32),
        ("permitted", ctypes.c_uint32),
        ("inheritable", ctypes.c_uint32),
    )


class _MountAttributes(ctypes.Structure):
    _fields_ = (
        ("attr_set", ctypes.c_uint64),
        ("attr_clr", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("userns_fd", ctypes.c_uint64),
    )


def _check(result: int, name: str = "") -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), name or None)
    return result


def clone(flags: int) -> int:
    """Fork into new namespaces: 0 in the child, its pid in the parent."""
    number = _CLONE.get(os.uname().machine)
    if number is None:
        raise OSError(38, f"sandboxes are not made for {os.uname().machine} processors")
    _before_fork()
    pid: int = _clone(number, flags, 0, 0, 0, 0)
    if pid == 0:
        _after_fork_child()
        return 0
    _after_fork_parent()
    return _check(pid)


def mount(source: str, target: str, kind: str = "", flags: int = 0, options: str = "") -> None:
    """Mount something, or change a mount; see `man 2 mount`."""
    _check(
        _mount(
            os.fsencode(source),
            os.fsencode(target),
            kind.encode() or None,
            ctypes.c_ulong(flags),
            os.fsencode(options) or None,
        ),
        target,
    )


def unmount(target: str) -> None:
    """Detach a mount, with everything mounted on it, from this namespace."""
    _check(_umount2(os.fsencode(target), MNT_DETACH), target)


def pivot_root(new: str, old: str) -> None:
    """Make a mount the root of this namespace, with the old root mounted at `old`."""
    _check(_pivot_root(os.fsencode(new), os.fsencode(old)), new)


def clone_tree(directory_fd: int) -> int:
    """Make a detached mount of an open directory; return its descriptor."""
    flags = _OPEN_TREE_CLONE | os.O_CLOEXEC | _AT_EMPTY_PATH
    return _check(_syscall(_OPEN_TREE, directory_fd, b"", flags))


def attach_tree(tree_fd: int, target: str) -> None:
    """Attach a detached mount; with an empty target, to the working directory."""
    flags = _MOVE_MOUNT_F_EMPTY_PATH | (0 if target else _MOVE_MOUNT_T_EMPTY_PATH)
    _check(_syscall(_MOVE_MOUNT, tree_fd, b"", _AT_FDCWD, os.fsencode(target), flags), target)


def make_tree(kind: str, options: Iterable[tuple[str, str]], flags: int) -> int:
    """Make a file system as a detached mount; an option without a value is a flag.

    `flags` may contain MS_NOSUID, MS_NODEV and MS_NOEXEC.
    """
    context = _check(_syscall(_FSOPEN, kind.encode(), _CLOSED_ON_EXEC), kind)
    try:
        for name, value in (("source", kind), *options):
            how = _FSCONFIG_SET_STRING if value else _FSCONFIG_SET_FLAG
            given = os.fsencode(value) or None
            _check(_syscall(_FSCONFIG, context, how, name.encode(), given, 0), name)
        _check(_syscall(_FSCONFIG, context, _FSCONFIG_CMD_CREATE, None, None, 0), kind)
        # MOUNT_ATTR_* has the same values for these flags.
        return _check(_syscall(_FSMOUNT, context, _CLOSED_ON_EXEC, flags), kind)
    finally:
        os.close(context)


def map_tree(tree_fd: int, namespace_fd: int, flags: int = 0, cleared: int = 0) -> None:
    """Map the owners of files in a detached mount by a user namespace (idmapped mount).

    Also sets and clears flags of MS_NOSUID, MS_NODEV and MS_NOEXEC.
    """
    wanted = _MountAttributes(_MOUNT_ATTR_IDMAP | flags, cleared, 0, namespace_fd)
    size = ctypes.c_size_t(ctypes.sizeof(wanted))
    _check(
        _syscall(_MOUNT_SETATTR, tree_fd, b"", _AT_EMPTY_PATH, ctypes.byref(wanted), size),
        "mount_setattr",
    )


def prctl(option: int, first: int = 0, second: int = 0) -> int:
    """Change attributes of this process; see `man 2 prctl`."""
    return _check(_prctl(option, first, second, 0, 0))


def name_process(name: str) -> None:
    """Set the name of this process that ps shows, cut to 15 bytes."""
    prctl(PR_SET_NAME, ctypes.addressof(ctypes.create_string_buffer(name.encode())))


def hide_arguments(name: str) -> None:
    """Replace the command line of this process, and of its forks, by a name."""
    with open("/proc/self/stat", encoding="ascii", errors="replace") as file:
        fields = file.read().rpartition(")")[2].split()
    start, end = int(fields[_ARG_START]), int(fields[_ARG_START + 1])
    size = end - start
    if size > len(name) + 1:
        # If the last byte is not zero, the kernel shows the arguments only up to the first zero,
        # to support programs that change their title.
        ctypes.memmove(start, name.encode().ljust(size - 1, b"\0") + b" ", size)


def effective_capabilities() -> int:
    """Return the effective capabilities of this process, as a mask."""
    header, words = _CapabilityHeader(_CAPABILITY_VERSION_3, 0), (_CapabilityWords * 2)()
    _check(_capget(ctypes.byref(header), words))
    return int(words[0].effective) | int(words[1].effective) << 32


def set_capabilities(permitted: int, inheritable: int) -> None:
    """Set the permitted and effective capabilities to one mask, the inheritable ones to another."""
    header, words = _CapabilityHeader(_CAPABILITY_VERSION_3, 0), (_CapabilityWords * 2)()
    for number, word in enumerate(words):
        word.permitted = word.effective = permitted >> 32 * number & 0xFFFFFFFF
        word.inheritable = inheritable >> 32 * number & 0xFFFFFFFF
    _check(_capset(ctypes.byref(header), words))


def set_file_ids(user: int, group: int) -> None:
    """Set the ids that the kernel checks for file access, including /proc.

    These calls report no error: without permission, nothing changes.
    """
    _setfsgid(group)
    _setfsuid(user)


def address_of(data: ctypes.Array[ctypes.c_char] | ctypes.Structure) -> int:
    """Return the address of a value, for prctl."""
    return ctypes.addressof(data)
