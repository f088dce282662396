"""The host's system directories as a root file system: `--base host`.

An allow-list: /usr, /bin, /sbin, /lib* and the package database are read-only layers; /etc is a
copy of its world-readable files, without keys and passwords; all other directories are new and
empty. Nothing else of the host is visible: no home, /opt, /srv, /mnt or /run, and of /var only the
package database. A sandbox of an unprivileged user cannot write to /usr, whose owner does not exist
in its namespace.

Its pin, `host:<id>-<version>@sha256:<digest>`, covers os-release and the package database. It does
not cover files that no package owns (/usr/local, configuration below /etc), files that were changed
after installation, or the kernel. Two machines with the same pin may differ there.
"""

import atexit
import fnmatch
import functools
import os
import re
import shutil
import stat
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from proctor.digest import sha256_hex
from proctor.environments.sandbox.delete import delete_tree
from proctor.environments.sandbox.locks import claimed, hold, locked, make_private
from proctor.errors import ImageError
from proctor.files import read_small
from proctor.sentence import reason_of

# Cache of copies of the host's public files
#
#     <root>/lock               locked while a copy is made or removed
#     <root>/<key>/             a complete copy; never changed
#     <root>/<key>.lease        locked by every process that uses it
#     <root>/building-*         a copy that is being made
#
# The key covers everything that determines a copy.


_LOCK = "lock"
_BUILDING = "building-"


def fingerprint(top: Path, is_left_out: Callable[[str], bool]) -> str:
    """Return a digest that changes with anything below a directory, without reading files."""
    return sha256_hex("\0".join(_lines(str(top), "", is_left_out)).encode(errors="surrogateescape"))


def _lines(directory: str, below: str, is_left_out: Callable[[str], bool]) -> Iterator[str]:
    try:
        with os.scandir(directory) as found:
            entries = sorted(found, key=lambda entry: entry.name)
    except OSError as error:
        yield f"{below} {error.errno}"
        return
    for entry in entries:
        path = f"{below}{entry.name}"
        if is_left_out(path):
            continue
        seen = entry.stat(follow_symlinks=False)
        # The kernel sets the ctime at every change, and no process can set it back.
        numbers = (seen.st_ino, seen.st_mode, seen.st_uid, seen.st_gid, seen.st_size)
        yield f"{path} {numbers} {seen.st_mtime_ns} {seen.st_ctime_ns}"
        if entry.is_dir(follow_symlinks=False):
            yield from _lines(entry.path, f"{path}/", is_left_out)


def load_copy(root: Path, key: str, make: Callable[[Path], None]) -> Path:
    """Return the copy of a key; if there is none, `make` makes it in an empty directory.

    It is not removed until this process ends.
    """
    make_private(root)
    home = root / key
    hold(root / f"{key}.lease")
    if home.is_dir():
        return home
    with locked(root / _LOCK):
        if not home.is_dir():
            fresh = Path(tempfile.mkdtemp(prefix=_BUILDING, dir=root))
            make(fresh)
            fresh.rename(home)
    return home


def reap_copies(root: Path, *, dry_run: bool = False) -> list[Path]:
    """Remove what killed processes left, and unused copies except the newest."""
    reaped: list[Path] = []
    with claimed(root / _LOCK) as is_free:
        if not is_free or not root.is_dir():
            return reaped
        copies = [path for path in root.iterdir() if path.is_dir()]
        left = [path for path in copies if path.name.startswith(_BUILDING)]
        whole = sorted(set(copies) - set(left), key=lambda path: path.stat().st_ctime_ns)
        reaped += [path for path in left if _is_removed(path, None, dry_run=dry_run)]
        for path in whole[:-1]:
            lease = root / f"{path.name}.lease"
            if _is_removed(path, lease, dry_run=dry_run):
                reaped.append(path)
    return reaped


def _is_removed(path: Path, lease: Path | None, *, dry_run: bool) -> bool:
    if lease is None:
        if not dry_run:
            delete_tree(path)
        return True
    with claimed(lease) as is_free:
        if is_free and not dry_run:
            # Renamed first, so that no process finds half of it.
            leaving = path.with_name(f"{_BUILDING}old-{path.name}")
            path.rename(leaving)
            delete_tree(leaving)
            lease.unlink(missing_ok=True)
    return is_free


# A copy of the host's /etc without secrets
#
# Only world-readable files in world-readable directories are copied, without keys, passwords, and
# what identifies this machine or its user. Names alone are not trusted: a file that contains a
# private key, or a URL with a password, is left out whatever its name.


NAME_OF_HOST = "sandbox\n"
HOSTS = "127.0.0.1 localhost sandbox\n::1 localhost ip6-localhost ip6-loopback\n"

# Paths below /etc that are not copied.
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
# Names that are not copied, in any directory.
_NAMES = (
    *("*.key", "*.keytab", "*.kdbx", "*.p12", "*.pfx", "id_rsa*", "id_dsa*", "id_ecdsa*"),
    *("id_ed25519*", "*secret*", "*credential*", "*htpasswd*"),
)

# Largest file that is copied. The largest that a distribution has there, hwdb.bin, has 12 MiB.
_LARGEST = 32 << 20
# A private key, a URL with a password, a token for a package registry.
_SECRET = re.compile(rb"PRIVATE KEY-----|://[^/\s:@]+:[^/\s:@]+@|:_(auth|password)")
RULES = (1, HOSTS, NAME_OF_HOST, _PLACES, _NAMES, _LARGEST, _SECRET.pattern)
"""What determines a copy, with the host; increase the number when the code below changes."""


def copy_etc(there: Path, here: Path) -> None:
    """Copy the public files of an /etc to an empty directory."""
    is_root = os.geteuid() == 0
    _copy_directory(there, here, "", is_root=is_root)
    (here / "hosts").write_text(HOSTS)
    (here / "hostname").write_text(NAME_OF_HOST)
    (here / "mtab").symlink_to("/proc/mounts")
    if (resolver := there / "resolv.conf").is_file():
        # Often a symlink to /run, which the sandbox does not have, so copy its content.
        (here / "resolv.conf").write_bytes(read_small(str(resolver)))
    for name in ("hosts", "hostname", "resolv.conf"):
        if (here / name).exists():
            (here / name).chmod(0o644)


def is_left_out(path: str) -> bool:
    """Whether a path below /etc is left out because of its name."""
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
        return  # removed since the directory was listed
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
    if is_root:
        os.chown(to, found.st_uid, found.st_gid)
    # After chown, which may clear bits of the mode.
    to.chmod(stat.S_IMODE(found.st_mode) & ~(stat.S_ISUID | stat.S_ISGID))
    os.utime(to, ns=(found.st_atime_ns, found.st_mtime_ns))


def _copy_file(source: str, found: os.stat_result, to: Path) -> bool:
    is_public = stat.S_ISREG(found.st_mode) and found.st_mode & stat.S_IROTH
    if not is_public or found.st_size > _LARGEST:
        return False
    try:
        data = read_small(source)
    except (FileNotFoundError, PermissionError):
        return False  # removed since, or protected by something other than its mode
    if _SECRET.search(data):
        return False
    to.write_bytes(data)
    return True


_SYSTEM = ("usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "libo32")
_PACKAGES = ("var/lib/dpkg", "var/lib/rpm", "var/lib/pacman")

# Directories to which every trial writes, made here once instead of in each sandbox.
_TRIAL_DIRECTORIES = dict.fromkeys(
    ("logs/agent", "logs/artifacts", "logs/verifier", "tests"), 0o777
)
_DIRECTORIES = {
    **dict.fromkeys(("home", "mnt", "opt", "srv", "media", "logs", "run", "etc", "var"), 0o755),
    **dict.fromkeys(("proc", "dev", "sys"), 0o755),
    "root": 0o700,
    "tmp": 0o1777,
    "run/lock": 0o1777,
    **dict.fromkeys(("var/lib", "var/cache", "var/log", "var/spool", "var/opt"), 0o755),
    "var/tmp": 0o1777,
    # Package managers expect these to exist.
    **dict.fromkeys(("var/lib/apt", "var/lib/apt/lists", "var/lib/apt/lists/partial"), 0o755),
    **dict.fromkeys(("var/cache/apt", "var/cache/apt/archives"), 0o755),
    "var/cache/apt/archives/partial": 0o700,
    **dict.fromkeys(("var/cache/debconf", "var/lib/misc", "var/lib/pam"), 0o755),
    **_TRIAL_DIRECTORIES,
}


@dataclass(frozen=True, slots=True)
class HostBase:
    """The host as a root file system."""

    parts: tuple[tuple[str, tuple[str, ...]], ...]
    """(target, layers) of each overlay; one for each directory, because an unprivileged user
    cannot mount an overlay over the host's whole root."""
    pin: str


_LOADED: dict[tuple[Path, Path, int], HostBase] = {}
_LOADING = threading.Lock()


def is_loaded(scratch: Path, host: Path = Path("/")) -> bool:
    """Whether this process has loaded the host base already."""
    return (scratch, host, os.getpid()) in _LOADED


def load_host_base(scratch: Path, host: Path = Path("/"), cache: Path | None = None) -> HostBase:
    """Return the host's system directories as a root.

    Files are copied once per scratch, or with a cache once until they change.
    """
    with _LOADING:
        known = scratch, host, os.getpid()
        if known not in _LOADED:
            _LOADED[known] = _load(scratch, host, cache)
        return _LOADED[known]


def _load(scratch: Path, host: Path, cache: Path | None) -> HostBase:
    if not (host / "usr").is_dir():
        raise ImageError(
            f"{host}: has no directory usr; `--base host` needs one. Import a root file system "
            "with `proctor image import` and name it with --base"
        )
    pin = host_pin(host)
    try:
        skeleton = _load_skeleton(scratch, host, cache, pin)
    except OSError as error:
        raise ImageError(
            f"{error.filename or scratch}: the host's /etc cannot be copied: {reason_of(error)}"
        ) from error
    parts = [("/", (str(skeleton),))]
    parts += [(f"/{name}", (str(host / name),)) for name in _own_directories(host)]
    return HostBase(tuple(parts), pin)


def _load_skeleton(scratch: Path, host: Path, cache: Path | None, pin: str) -> Path:
    if cache is not None:
        with suppress(ImageError):
            links = [(name, (host / name).is_symlink()) for name in (*_SYSTEM, *_PACKAGES)]
            try:
                resolver = sha256_hex(read_small(str(host / "etc/resolv.conf")))
            except OSError:
                resolver = ""
            etc = fingerprint(host / "etc", is_left_out)
            said = (os.geteuid(), pin, links, _DIRECTORIES, RULES, resolver, etc)
            key = sha256_hex(repr(said).encode())
            return load_copy(cache, key, lambda fresh: _furnish(fresh, host))
    skeleton = Path(tempfile.mkdtemp(prefix="host-base.", dir=scratch))
    atexit.register(_forget, skeleton, os.getpid())
    _furnish(skeleton, host)
    return skeleton


def _forget(skeleton: Path, pid: int) -> None:
    """Delete a skeleton at exit; not in a fork, which inherits the registration."""
    if os.getpid() == pid:
        delete_tree(skeleton)


def _own_directories(host: Path) -> Iterator[str]:
    """Yield directories that get their own overlay; symlinks are in the skeleton."""
    for name in (*_SYSTEM, *_PACKAGES):
        path = host / name
        if path.is_dir() and not path.is_symlink():
            yield name


def _furnish(skeleton: Path, host: Path) -> None:
    skeleton.chmod(0o755)
    for name, mode in _DIRECTORIES.items():
        path = skeleton / name
        path.mkdir()
        path.chmod(mode)
    (skeleton / "var/run").symlink_to("/run")
    (skeleton / "var/lock").symlink_to("/run/lock")
    for name in (*_SYSTEM, *_PACKAGES):
        inside = skeleton / name
        there = host / name
        if there.is_symlink():
            inside.symlink_to(there.readlink())
        elif there.is_dir():
            inside.mkdir()
            inside.chmod(stat.S_IMODE(there.stat().st_mode))
    copy_etc(host / "etc", skeleton / "etc")


def load_furnishing(scratch: Path) -> Path:
    """Return a layer for imported images with what Docker adds to every container.

    Images have no working /etc/resolv.conf, and often lack directories to mount on.
    """
    return _load_furnishing(scratch, os.getpid())


@functools.lru_cache(maxsize=64)
def _load_furnishing(scratch: Path, pid: int) -> Path:
    try:
        layer = Path(tempfile.mkdtemp(prefix="furnishing.", dir=scratch))
        atexit.register(_forget, layer, pid)
        layer.chmod(0o755)
        usual = dict.fromkeys(("etc", "proc", "dev", "sys", "logs"), 0o755)
        for name, mode in {**usual, **_TRIAL_DIRECTORIES}.items():
            (layer / name).mkdir()
            (layer / name).chmod(mode)
        (layer / "etc" / "hosts").write_text(HOSTS)
        (layer / "etc" / "hostname").write_text(NAME_OF_HOST)
        if (resolver := Path("/etc/resolv.conf")).is_file():
            (layer / "etc" / "resolv.conf").write_bytes(read_small(str(resolver)))
    except OSError as error:
        raise ImageError(f"{scratch}: cannot be written: {reason_of(error)}") from error
    return layer


# The pin


def host_pin(host: Path = Path("/")) -> str:
    """Return `host:<id>-<version>@sha256:<digest>`, over os-release and the package database.

    Raises:
        ImageError: neither can be read.
    """
    try:
        release = _find_release(host)
        database = _find_packages(host)
    except (OSError, subprocess.SubprocessError) as error:
        raise ImageError(f"the host's packages cannot be listed: {error}") from error
    fields = _fields(release.decode("utf-8", errors="replace"))
    name = "-".join(filter(None, (fields.get("ID", "linux"), fields.get("VERSION_ID"))))
    digest = sha256_hex(b"%d\n%s%s" % (len(release), release, database))
    return f"host:{name}@sha256:{digest}"


def _find_release(host: Path) -> bytes:
    for name in ("etc/os-release", "usr/lib/os-release"):
        if (host / name).is_file():
            return read_small(str(host / name))
    return b""


def _fields(release: str) -> dict[str, str]:
    pairs = (line.partition("=") for line in release.splitlines() if "=" in line)
    return {key.strip(): value.strip().strip("\"'") for key, _, value in pairs}


def _find_packages(host: Path) -> bytes:
    """Return bytes of the package database that change with every package; empty if none."""
    for name in ("var/lib/dpkg/status", "lib/apk/db/installed"):
        if (host / name).is_file():
            return read_small(str(host / name))
    if (pacman := host / "var/lib/pacman/local").is_dir():
        return "\n".join(sorted(path.name for path in pacman.iterdir())).encode()
    return _list_rpms(host) if shutil.which("rpm") else b""


def _list_rpms(host: Path) -> bytes:
    wanted = "%{NAME}-%{EPOCHNUM}:%{VERSION}-%{RELEASE}.%{ARCH} %{SHA256HEADER}\n"
    command = ["rpm", "--root", str(host), "-qa", "--qf", wanted]
    listed = subprocess.run(command, capture_output=True, check=True, timeout=120)
    return b"\n".join(sorted(listed.stdout.splitlines()))
