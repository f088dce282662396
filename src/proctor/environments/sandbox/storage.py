"""Limits what a sandbox stores: its writable layers are on a file system of that size.

    find_obstacle    why this machine cannot do that
    mount_storage    make an ext4 file system in a file, and mount it on a directory
    free_storage     unmount it

The file has no name: with the last mount, the kernel frees the loop device and the file, even after
a kill. Its space is allocated at once. Otherwise a disk that becomes full would lose data after
programs inside were told that it is written.
"""

import errno
import fcntl
import os
import shutil
import struct
import subprocess
from pathlib import Path

from proctor.environments.sandbox.privileges import is_all_powerful
from proctor.environments.sandbox.rootfs import PLAIN, StepError, step
from proctor.environments.sandbox.syscalls import mount, unmount
from proctor.filesystems import file_system_of
from proctor.sentence import render_size

_CONTROL = "/dev/loop-control"
# LOOP_CTL_GET_FREE, LOOP_CONFIGURE, and the flag that frees the device with its last user.
_GET_FREE, _CONFIGURE, _AUTOCLEAR = 0x4C82, 0x4C0A, 4
# struct loop_config: file, block size, five fields of 8 bytes and three of 4, flags, the rest.
_CONFIG = struct.Struct("=II52xI176x64x")
_MOST_TRIES = 16
# File systems that keep a promise of space, also for blocks that are written twice.
_ALLOCATING = frozenset({"ext4", "xfs"})
# The allocation, and twice as much: a copy for the clean room may take half of what is free.
_SHARE = 3
_BLOCK, _INODE = 4096, 256
# Inodes for files of 8 KiB on average; the least is enough for the overlays of a tiny limit.
_BYTES_PER_INODE, _LEAST_INODES = 8192, 8192
# ext4 withholds 2% of its blocks, at most 4,096, and needs some for its own structures.
_MOST_WITHHELD, _OWN = 4096 * _BLOCK, 1 << 19
# No journal, barriers or zeroing: the file system does not outlive the machine, and the file is
# zero. An error makes it read-only instead of being ignored.
_FEATURES = "^has_journal,^resize_inode"
_OPTIONS = "noinit_itable,nobarrier,errors=remount-ro"
_TIMEOUT_SEC = 60


def find_obstacle(directory: Path, storage_mb: int) -> str | None:
    """Return why storage in a scratch directory cannot be limited to a size, or None."""
    if not is_all_powerful():
        return "only root can give a sandbox a file system of that size"
    if storage_mb < 1:
        return "no file system has that size"
    if _find_mkfs() is None:
        return "mkfs.ext4 is not installed"
    if not os.access(_CONTROL, os.R_OK | os.W_OK):
        return f"there are no loop devices: {_CONTROL} cannot be opened"
    n_needed = _SHARE * _size_of(storage_mb)
    if (kind := file_system_of(directory)) not in _ALLOCATING:
        return f"the scratch is on {kind}, where space cannot be reserved as on ext4 and xfs"
    found = os.statvfs(directory)
    if (n_free := found.f_bavail * found.f_frsize) < n_needed:
        free, needed = render_size(n_free), render_size(n_needed)
        return f"the disk of the scratch has {free} free, and the limit requires {needed}"
    return None


def mount_storage(directory: Path, storage_mb: int) -> str:
    """Mount a new file system, with that much free space, on a directory; return its device."""
    size = _size_of(storage_mb)
    with step(f"reserving {render_size(size)}"):
        file = os.open(directory.parent, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        with step(f"reserving {render_size(size)}"):
            os.posix_fallocate(file, 0, size)
        _format(file, _inodes_of(storage_mb))
        with step("opening a loop device"):
            loop, device = _attach(file)
        try:
            with step(f"mounting {device}"):
                mount(device, str(directory), "ext4", PLAIN, _OPTIONS)
        finally:
            # Frees the device, unless it is mounted.
            os.close(loop)
    finally:
        os.close(file)
    return device


def free_storage(directory: Path) -> None:
    """Unmount what is mounted on a directory of this user's scratch, if anything is."""
    while os.path.ismount(directory):
        unmount(str(directory))


def _inodes_of(storage_mb: int) -> int:
    return max((storage_mb << 20) // _BYTES_PER_INODE, _LEAST_INODES)


def _size_of(storage_mb: int) -> int:
    """Return the size of a file system that has so much free space."""
    free = storage_mb << 20
    withheld = min(free // 48, _MOST_WITHHELD)
    return free + withheld + _inodes_of(storage_mb) * _INODE + storage_mb * _INODE + _OWN


def _find_mkfs() -> str | None:
    # Not every PATH includes the directories for administrators.
    return shutil.which("mkfs.ext4") or shutil.which("mkfs.ext4", path="/usr/sbin:/sbin")


def _format(file: int, n_inodes: int) -> None:
    layout = ("-b", _BLOCK, "-I", _INODE, "-N", n_inodes, "-m", 0, "-O", _FEATURES)
    # `nodiscard`, because discarding would give the allocated space back.
    options = (*layout, "-E", "lazy_itable_init=1,nodiscard", f"/proc/self/fd/{file}")
    try:
        done = subprocess.run(
            [_find_mkfs() or "mkfs.ext4", "-q", "-F", *map(str, options)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            env={},
            pass_fds=(file,),
            timeout=_TIMEOUT_SEC,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise StepError(f"mkfs.ext4: {error}") from error
    if done.returncode != 0:
        last = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise StepError(f"mkfs.ext4: {last or f'exit code {done.returncode}'}")


def _attach(file: int) -> tuple[int, str]:
    """Attach a file to a free loop device; return the device, open, and its path."""
    control = os.open(_CONTROL, os.O_RDWR | os.O_CLOEXEC)
    try:
        for _ in range(_MOST_TRIES):
            device = f"/dev/loop{fcntl.ioctl(control, _GET_FREE)}"
            loop = os.open(device, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.ioctl(loop, _CONFIGURE, _CONFIG.pack(file, _BLOCK, _AUTOCLEAR))
            except OSError as error:
                os.close(loop)
                # Another process may have taken it meanwhile.
                if error.errno != errno.EBUSY:
                    raise
            else:
                return loop, device
    finally:
        os.close(control)
    raise BlockingIOError(errno.EBUSY, "other processes take every free one", _CONTROL)
