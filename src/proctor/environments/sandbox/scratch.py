"""Where sandboxes keep what is written in them, and who holds which part of it.

    <scratch>/                    $PROCTOR_SCRATCH, else scratch/ in the cache; mode 0700
      <run>/lock                  held while the run lives
      <run>/<session>.<random>/   one sandbox
        session.json              which trial it is of
        root/                     where the root file system is put together
        parts/<n>/{upper,work}    what was written, one pair for each overlay

Nothing here mounts anything, and nothing here deletes what another run left: that is reap.py.
"""

import atexit
import fcntl
import functools
import os
import pwd
import re
import stat
import struct
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from proctor.environments.sandbox.runs import RunId, this_run
from proctor.errors import SandboxError
from proctor.filesystems import NETWORK, file_system_of, find_stranger
from proctor.sentence import reason_of

LOCK = "lock"
NOTE = "session.json"
_RETIRED_NOTE = ".session.json"

_NO_UPPER = NETWORK | {
    *("overlay", "aufs", "ecryptfs", "squashfs", "ramfs"),
    *("vfat", "exfat", "msdos", "ntfs", "ntfs3", "hfsplus"),
}
_IN_MEMORY = (Path("/dev/shm"), Path("/tmp"))  # noqa: S108 - looked at, then used with a 0700 directory
_GET_FLAGS, _SET_FLAGS = 0x80086601, 0x40086602
_SPREAD_FLAG = 0x00020000
"""`chattr +T`: directories in this one are laid out far from each other."""
_UNFIT_FOR_A_NAME = re.compile(r"[^A-Za-z0-9._-]+")


class SessionNote(msgspec.Struct, frozen=True):
    """session.json: what must be known of a sandbox whose run was killed."""

    session: str
    """Name of the environment."""
    trial: str
    """Directory of the trial."""
    uppers: dict[str, str]
    """Where each overlay was mounted, and its upper directory below the session's."""
    attempt: tuple[int, int] | None = None
    """Device and inode of the config.json beside which the trial runs: both stay the same when the
    attempt is moved. None where there is none."""


@dataclass(frozen=True, slots=True)
class Place:
    """A directory that can hold what sandboxes write."""

    root: Path
    note: str | None = None
    """Why it is not the usual one; a sentence."""


@dataclass(frozen=True, slots=True)
class Session:
    """The scratch of one sandbox."""

    directory: Path

    @property
    def root(self) -> Path:
        """An empty directory on which the root file system is put together."""
        return self.directory / "root"

    @property
    def rooms(self) -> str:
        """Where what is written in verifiers' rooms lies, once there was one."""
        return f"{self.directory}/root.rooms"

    @property
    def names(self) -> frozenset[str]:
        """What is in the directory of a session that nobody uses."""
        return frozenset({"root", "root.rooms", "root.layers", "parts", _RETIRED_NOTE})

    def add_part(self, number: int, lower: Path) -> tuple[Path, Path]:
        """A new upper directory, with owner and mode of the layer below it, and its work."""
        part = self.directory / "parts" / str(number)
        upper, work = part / "upper", part / "work"
        work.mkdir(parents=True)
        upper.mkdir()
        below = lower.stat()
        if os.geteuid() == 0:
            os.chown(upper, below.st_uid, below.st_gid)
        upper.chmod(stat.S_IMODE(below.st_mode) | stat.S_IRWXU)
        return upper, work

    def write_note(self, session: str, trial: Path, uppers: Mapping[str, str]) -> None:
        """Write down whose it is. Not synced: after a power cut there is no evidence in it."""
        top = f"{self.directory}/"
        places = {to: upper.removeprefix(top) for to, upper in uppers.items()}
        note = SessionNote(session, str(trial.absolute()), places, find_attempt(trial))
        data, other = msgspec.json.encode(note), f"{self.directory}/{_RETIRED_NOTE}"
        fd = os.open(other, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.write(fd, data)
            os.ftruncate(fd, len(data))
        finally:
            os.close(fd)
        os.rename(other, f"{self.directory}/{NOTE}")

    def retire_note(self) -> None:
        """What is here is nobody's any more."""
        with suppress(FileNotFoundError):
            os.rename(f"{self.directory}/{NOTE}", f"{self.directory}/{_RETIRED_NOTE}")


def find_attempt(trial: Path) -> tuple[int, int] | None:
    """What tells the attempt in a directory from others, wherever that is moved."""
    try:
        status = os.lstat(f"{trial}/config.json")
    except OSError:
        return None
    return status.st_dev, status.st_ino


@dataclass(frozen=True, slots=True)
class Run:
    """The scratch of this run."""

    id: RunId
    directory: Path

    def open_session(self, name: str) -> Session:
        """A new directory for one sandbox."""
        prefix = f"{fit_name(name)}."
        session = Session(Path(tempfile.mkdtemp(prefix=prefix, dir=self.directory)))
        session.root.mkdir()
        return session


def fit_name(name: str) -> str:
    """A name that is fit for a directory and a mount option."""
    return _UNFIT_FOR_A_NAME.sub("-", name)[:100].lstrip(".") or "session"


def cache_directory(environ: Mapping[str, str] = os.environ) -> Path:
    """$PROCTOR_CACHE, else $XDG_CACHE_HOME/proctor, else ~/.cache/proctor.

    Raises:
        SandboxError: nothing says where this user's home is, or others can write there: what lies
            in a cache is run.
    """
    cache = _name_cache(environ)
    if stranger := find_stranger(cache):
        raise SandboxError(
            f"{stranger}, and what lies in a cache is run; set PROCTOR_CACHE to a directory that "
            "only you can write to"
        )
    return cache


def _name_cache(environ: Mapping[str, str]) -> Path:
    if chosen := environ.get("PROCTOR_CACHE"):
        return Path(chosen).absolute()
    shared = environ.get("XDG_CACHE_HOME", "")
    if shared.startswith("/"):
        return Path(shared) / "proctor"
    if home := environ.get("HOME") or _find_home():
        return Path(home).absolute() / ".cache" / "proctor"
    raise SandboxError(
        "there is no place for what sandboxes need: set PROCTOR_CACHE or HOME to a directory"
    )


def _find_home() -> str:
    """The home that the system knows of; services have no HOME."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_dir
    except KeyError:
        return ""


def scratch_roots(environ: Mapping[str, str] = os.environ) -> tuple[Path, ...]:
    """Every directory that may be the scratch: the usual one, then those in memory."""
    if chosen := environ.get("PROCTOR_SCRATCH"):
        return (Path(chosen).absolute(),)
    usual = cache_directory(environ) / "scratch"
    return (usual, *(place / f"proctor-{os.geteuid()}" for place in _IN_MEMORY))


def find_place(environ: Mapping[str, str] = os.environ) -> Place:
    """The scratch directory, made where it was missing.

    Raises:
        SandboxError: none can hold an overlay.
    """
    usual, *others = scratch_roots(environ)
    fault = find_fault(usual)
    if fault is None:
        return Place(usual)
    for other in others:
        if file_system_of(other.parent) == "tmpfs" and os.access(other.parent, os.W_OK):
            make_private(other)
            note = (
                f"{fault}; what sandboxes write is kept in memory instead, in {other}; "
                "PROCTOR_SCRATCH names another place"
            )
            return Place(other, note)
    raise SandboxError(f"{fault}; set PROCTOR_SCRATCH to a directory on ext4, xfs, btrfs or tmpfs")


def find_fault(directory: Path) -> str | None:
    """Why a directory cannot hold an overlay's layers; it is made where it is missing."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        return f"{directory}: cannot be made for what sandboxes write: {reason_of(error)}"
    if stranger := find_stranger(directory):
        return f"{stranger}, and sandboxes would write there"
    if not os.access(directory, os.W_OK | os.X_OK):
        return f"{directory}: cannot be written, and sandboxes would write there"
    kind = file_system_of(directory)
    if not can_hold_upper(kind):
        return f"{directory} is on {kind}, which cannot hold an overlay's upper directory"
    return None


def can_hold_upper(file_system: str) -> bool:
    """Whether an overlay's upper directory can be on such a file system."""
    return file_system not in _NO_UPPER and not file_system.startswith("fuse")


def make_private(directory: Path) -> None:
    """Make a directory that is ours alone, or see that it is.

    Raises:
        SandboxError: it cannot be made, or somebody else made it.
    """
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = directory.lstat()
        is_ours = stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()
        if is_ours and stat.S_IMODE(status.st_mode) & 0o077:
            directory.chmod(0o700)
    except OSError as error:
        raise SandboxError(f"{directory}: cannot be made: {reason_of(error)}") from error
    if not is_ours:
        raise SandboxError(f"{directory}: not a directory of this user; expected one that is")


def open_run(root: Path) -> Run:
    """The scratch of this process below a root; the same each time."""
    return _open_run(root, os.getpid())


@functools.lru_cache(maxsize=64)
def _open_run(root: Path, pid: int) -> Run:
    run = Run(this_run(), root / str(this_run()))
    # Under its own name only once the lock is held: a reaper never sees it without.
    fresh = Path(tempfile.mkdtemp(prefix=f".{run.id}.", dir=root))
    held = os.open(fresh / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(held, fcntl.LOCK_EX)
    _spread(fresh)
    fresh.rename(run.directory)
    atexit.register(_close_run, run, pid)
    return run


def _spread(directory: Path) -> None:
    """Have the file system lay out each sandbox's scratch in another place, if it can.

    On ext4, making a file where many were deleted within minutes takes a hundred times as long: it
    passes all of these over, one by one.
    """
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        (flags,) = struct.unpack("=q", fcntl.ioctl(fd, _GET_FLAGS, bytes(8)))
        fcntl.ioctl(fd, _SET_FLAGS, struct.pack("=q", flags | _SPREAD_FLAG))
    except OSError:
        # Another file system, without such flags and without the need.
        return
    finally:
        os.close(fd)


def _close_run(run: Run, pid: int) -> None:
    """Leave nothing behind; what a sandbox left that was not stopped stays for the reaper."""
    if os.getpid() != pid:
        return
    with suppress(OSError):
        if [entry.name for entry in run.directory.iterdir()] == [LOCK]:
            (run.directory / LOCK).unlink()
            run.directory.rmdir()
