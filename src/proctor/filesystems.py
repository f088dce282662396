"""Mount points, network file systems, and who can write to a directory. Does not mount anything."""

import grp
import os
import pwd
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

NETWORK = frozenset(
    {
        *("nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "ceph", "coda", "ncpfs", "davfs"),
        *("lustre", "gpfs", "beegfs", "panfs", "pvfs2", "wekafs"),
        *("fuse.sshfs", "fuse.s3fs", "fuse.rclone", "fuse.glusterfs", "fuse.ceph-fuse"),
        *("fuse.ceph", "fuse.gcsfuse", "fuse.juicefs", "fuse.goofys", "fuse.blobfuse"),
        *("fuse.blobfuse2", "fuse.davfs2", "fuse.curlftpfs", "fuse.mfs", "fuse.seaweedfs"),
        # A directory of the host, seen from a virtual machine or container (Docker Desktop, WSL):
        # the host's kernel does not see the locks that this kernel takes.
        *("9p", "virtiofs", "drvfs", "vboxsf", "prl_fs", "fuse.grpcfuse", "fuse.osxfs"),
        "fuse.vmhgfs-fuse",
    }
)
"""File systems that other machines may write to, by the kernel's names."""
# mountinfo writes spaces, tabs, newlines and backslashes as octal escapes.
_ESCAPE = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Mount:
    """One line of mountinfo."""

    root: str
    """The directory of the file system that is mounted."""
    target: str
    kind: str
    """The file system: ext4, overlay, cgroup2."""
    options: str
    """Options of the file system itself, joined by commas."""


def list_mounts() -> list[Mount]:
    """List the mounts of this process's namespace, in order; later ones cover earlier ones."""
    return list(_parse(Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace")))


def _parse(text: str) -> Iterator[Mount]:
    for line in text.splitlines():
        before, dash, after = line.partition(" - ")
        first, last = before.split(" "), after.split(" ")
        if dash and len(first) > 4 and len(last) > 2:
            yield Mount(_plain(first[3]), _plain(first[4]), last[0], _plain(last[2]))


def _plain(text: str) -> str:
    return _ESCAPE.sub(lambda found: chr(int(found[1], 8)), text)


def file_system_of(path: Path) -> str:
    """Name the kind of file system that a path is on."""
    real = path.resolve()
    above = {str(real), *map(str, real.parents)}
    best = Mount("/", "/", "unknown", "")
    for mount in list_mounts():
        if mount.target in above and len(mount.target) >= len(best.target):
            best = mount
    return best.kind


def find_network(path: Path) -> str | None:
    """Name the network file system that a path is on; None if it is local or unknown."""
    try:
        device = path.stat().st_dev
    except OSError:
        device = None
    return _find_network(path.absolute(), device)


@cache
def _find_network(path: Path, _device: int | None) -> str | None:
    """Look up once per path and device: every append to a ledger asks."""
    try:
        kind = file_system_of(path)
    except OSError:
        # Without /proc the kernel does not tell.
        return None
    return kind if kind in NETWORK else None


def find_stranger(directory: Path) -> str | None:
    """Say who other than this user and root can write to a directory; None if nobody can."""
    try:
        found = directory.stat()
    except OSError:
        return None
    if found.st_uid not in (os.geteuid(), 0):
        try:
            name_of = pwd.getpwuid(found.st_uid).pw_name
        except KeyError:
            name_of = f"user {found.st_uid}"
        return f"{directory}: belongs to {name_of}, not to this user"
    if found.st_mode & stat.S_IWOTH:
        return f"{directory}: world-writable"
    if found.st_mode & stat.S_IWGRP and not _is_own_group(found):
        return f"{directory}: writable by its group, {found.st_gid}"
    return None


def _is_own_group(found: os.stat_result) -> bool:
    """Whether the group is the owner's private group, as most systems create one per user."""
    try:
        group = grp.getgrgid(found.st_gid)
        owner = pwd.getpwuid(found.st_uid).pw_name
    except KeyError:
        return False
    return group.gr_name == owner and set(group.gr_mem) <= {owner}
