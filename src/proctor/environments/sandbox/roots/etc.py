"""A copy of the host's /etc that holds nothing secret.

Only files that everybody may read are taken, with every directory above them open to everybody;
of these, no keys, no passwords, and nothing that speaks of this machine and its user alone. What a
file is called is not trusted: one that holds a private key or a password in an address is left out
whatever its name.
"""

import fnmatch
import os
import re
import stat
from pathlib import Path

from proctor.files import read_small

NAME_OF_HOST = "sandbox\n"
HOSTS = "127.0.0.1 localhost sandbox\n::1 localhost ip6-localhost ip6-loopback\n"

_PLACES = (
    *(
        "shadow*",
        "gshadow*",
        "sudoers*",
        "security/opasswd*",
        "ssh",
        "ssl/private",
        "pki/*/private",
    ),
    *("machine-id", "hostid", "fstab", "crypttab", "mtab", "environment", "environment.d"),
    *("hosts", "hostname", "resolv.conf", "apt/auth.conf*", "docker", "containers", "kubernetes"),
    *("letsencrypt", "openvpn", "wireguard", "ipsec*", "swanctl", "ppp", "wpa_supplicant"),
    *("NetworkManager", "netplan", "samba", "sssd", "cloud"),
)
"""Paths below /etc that are left out."""
_NAMES = (
    *("*.key", "*.keytab", "*.kdbx", "*.p12", "*.pfx", "id_rsa*", "id_dsa*", "id_ecdsa*"),
    *("id_ed25519*", "*secret*", "*credential*", "*htpasswd*"),
)
"""Names that are left out wherever they are."""

_LARGEST = 32 << 20
"""No file of /etc that a task needs is larger; the largest there is, hwdb.bin, has 12 MiB."""
_SECRET = re.compile(rb"PRIVATE KEY-----|://[^/\s:@]+:[^/\s:@]+@|:_(auth|password)")
"""A key, an address with a password in it, a token for a package registry."""
RULES = (1, HOSTS, NAME_OF_HOST, _PLACES, _NAMES, _LARGEST, _SECRET.pattern)
"""What decides, besides the host, what a copy holds; its number changes with the code below."""


def copy_etc(there: Path, here: Path) -> None:
    """Copy what is public of an /etc into an empty directory.

    Raises:
        OSError: it cannot be written.
    """
    is_root = os.geteuid() == 0
    _copy_directory(there, here, "", is_root=is_root)
    (here / "hosts").write_text(HOSTS)
    (here / "hostname").write_text(NAME_OF_HOST)
    (here / "mtab").symlink_to("/proc/mounts")
    if (resolver := there / "resolv.conf").is_file():
        # Often a link into /run, which the sandbox has not.
        (here / "resolv.conf").write_bytes(read_small(str(resolver)))
    for name in ("hosts", "hostname", "resolv.conf"):
        if (here / name).exists():
            (here / name).chmod(0o644)


def is_left_out(path: str) -> bool:
    """Whether a path below /etc is left out for its name alone."""
    name = path.rpartition("/")[2]
    if name.startswith(".") and not path.startswith("skel/"):
        return True
    rules = ((path, _PLACES), (name, _NAMES))
    return any(fnmatch.fnmatchcase(text, rule) for text, ours in rules for rule in ours)


def _copy_directory(there: Path, here: Path, below: str, *, is_root: bool) -> None:
    try:
        entries = sorted(os.scandir(there), key=lambda entry: entry.name)
    except FileNotFoundError:
        return
    for entry in entries:
        path = f"{below}{entry.name}"
        if not is_left_out(path):
            _copy(entry, here / entry.name, path, is_root=is_root)


def _copy(entry: os.DirEntry[str], to: Path, path: str, *, is_root: bool) -> None:
    try:
        found = entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return  # gone since the directory was listed
    if stat.S_ISLNK(found.st_mode):
        to.symlink_to(Path(entry.path).readlink())
        return
    if (
        stat.S_ISDIR(found.st_mode)
        and found.st_mode & stat.S_IXOTH
        and found.st_mode & stat.S_IROTH
    ):
        to.mkdir()
        _copy_directory(Path(entry.path), to, f"{path}/", is_root=is_root)
    elif not _copy_file(entry.path, found, to):
        return
    _dress(to, found, is_root=is_root)


def _copy_file(source: str, found: os.stat_result, to: Path) -> bool:
    is_public = stat.S_ISREG(found.st_mode) and found.st_mode & stat.S_IROTH
    if not is_public or found.st_size > _LARGEST:
        return False
    try:
        data = read_small(source)
    except (FileNotFoundError, PermissionError):
        return False  # gone since, or closed to us by something that is not its mode
    if _SECRET.search(data):
        return False
    to.write_bytes(data)
    return True


def _dress(to: Path, like: os.stat_result, *, is_root: bool) -> None:
    if is_root:
        os.chown(to, like.st_uid, like.st_gid)
    to.chmod(stat.S_IMODE(like.st_mode) & ~(stat.S_ISUID | stat.S_ISGID))
    os.utime(to, ns=(like.st_atime_ns, like.st_mtime_ns))
