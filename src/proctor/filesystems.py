"""What is mounted where, read from the kernel, and which file systems are of a network.

Nothing here mounts or unmounts.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

NETWORK = frozenset(
    {
        *("nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "ceph", "coda", "ncpfs", "davfs"),
        *("lustre", "gpfs", "beegfs", "panfs", "pvfs2", "wekafs"),
        *("fuse.sshfs", "fuse.s3fs", "fuse.rclone", "fuse.glusterfs", "fuse.ceph-fuse"),
        *("fuse.ceph", "fuse.gcsfuse", "fuse.juicefs", "fuse.goofys", "fuse.blobfuse"),
        *("fuse.blobfuse2", "fuse.davfs2", "fuse.curlftpfs", "fuse.mfs", "fuse.seaweedfs"),
        # A directory of the host in a virtual machine or container: the host has a kernel of its
        # own, which does not see the locks of this one. So it is with Docker Desktop and WSL.
        *("9p", "virtiofs", "drvfs", "vboxsf", "prl_fs", "fuse.grpcfuse", "fuse.osxfs"),
        "fuse.vmhgfs-fuse",
    }
)
"""File systems that another machine writes too, as the kernel names them."""
_ESCAPE = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Mount:
    """One line of mountinfo."""

    root: str
    """Which directory of the file system is mounted."""
    target: str
    kind: str
    """The file system: ext4, overlay, cgroup2."""
    options: str
    """Options of the file system itself, joined by commas."""


def list_mounts(pid: int | str = "self") -> list[Mount]:
    """The mounts of a process's namespace, in order; later ones cover earlier ones.

    Raises:
        OSError: there is no such process, or it may not be looked at.
    """
    return list(
        _parse(Path(f"/proc/{pid}/mountinfo").read_text(encoding="utf-8", errors="replace"))
    )


def _parse(text: str) -> Iterator[Mount]:
    for line in text.splitlines():
        before, dash, after = line.partition(" - ")
        first, last = before.split(" "), after.split(" ")
        if dash and len(first) > 4 and len(last) > 2:
            yield Mount(_plain(first[3]), _plain(first[4]), last[0], _plain(last[2]))


def _plain(text: str) -> str:
    return _ESCAPE.sub(lambda found: chr(int(found[1], 8)), text)


def file_system_of(path: Path) -> str:
    """The kind of file system that a path is on."""
    real = path.resolve()
    best = Mount("/", "/", "unknown", "")
    for mount in list_mounts():
        if real.is_relative_to(mount.target) and len(mount.target) >= len(best.target):
            best = mount
    return best.kind


def find_network(path: Path) -> str | None:
    """The kind of network file system that a path is on; None where it is on none, or not known."""
    try:
        kind = file_system_of(path)
    except OSError:
        # Without /proc the kernel does not say.
        return None
    return kind if kind in NETWORK else None
