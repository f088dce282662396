"""Scratch directories, in which sandboxes keep what is written in them.

    <scratch>/                    $PROCTOR_SCRATCH, or else scratch/ in the cache; mode 0700
      <run>/lock                  locked while the run lives
      <run>/<session>.<random>/   one sandbox
        session.json              names its trial
        root/                     mount point of the root file system
        parts/<n>/{upper,work}    what was written, one pair for each overlay; if that is limited,
                                  parts/ is a file system of its own

Does not delete what other runs left: reap.py does.
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

from proctor.errors import SandboxError
from proctor.filesystems import NETWORK, file_system_of, find_stranger
from proctor.sentence import reason_of

# Names of runs, and whether a run is alive
#
# A run is one process that starts sandboxes. Its name identifies the process, so that the reaper
# needs no other file to tell a dead run from a live one.


_NAME = re.compile(r"(\d+)-(\d+)-(\d+)")
_DEAD_STATES = "ZX"


@dataclass(frozen=True, slots=True)
class RunId:
    """The name of a run."""

    pid: int
    started: int
    """Start time of the process, in clock ticks since boot."""
    namespace: int
    """Inode of its pid namespace."""

    def __str__(self) -> str:
        return f"{self.pid}-{self.started}-{self.namespace}"

    @property
    def is_living(self) -> bool:
        """Whether the process may be alive; always true for another pid namespace."""
        return self.namespace != _namespace() or _started(self.pid) == self.started


def this_run() -> RunId:
    """Return the name of this process."""
    pid = os.getpid()
    return RunId(pid, _started(pid) or 0, _namespace())


def parse_run_id(text: str) -> RunId | None:
    """Parse the name of a run; None if it is not one."""
    found = _NAME.fullmatch(text)
    return RunId(int(found[1]), int(found[2]), int(found[3])) if found else None


def _namespace() -> int:
    return Path("/proc/self/ns/pid").stat().st_ino


def _started(pid: int) -> int | None:
    """Return the start time of a process; None if it does not exist or is a zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The program's name is in parentheses, and may itself contain parentheses and spaces.
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in _DEAD_STATES else int(fields[19])


LOCK = "lock"
NOTE = "session.json"
TEMPORARY = "proctor-job-"
"""How the names of temporary directories begin; the name of a run follows."""
_RETIRED_NOTE = ".session.json"

# File systems that overlayfs cannot use for an upper directory.
_NO_UPPER = NETWORK | {
    *("overlay", "aufs", "ecryptfs", "squashfs", "ramfs"),
    *("vfat", "exfat", "msdos", "ntfs", "ntfs3", "hfsplus"),
}
_IN_MEMORY = (Path("/dev/shm"), Path("/tmp"))  # noqa: S108 - looked at, then used with a 0700 directory
# FS_IOC_GETFLAGS and FS_IOC_SETFLAGS.
_GET_FLAGS, _SET_FLAGS = 0x80086601, 0x40086602
# `chattr +T`: subdirectories are placed far apart on the disk.
_SPREAD_FLAG = 0x00020000
_UNFIT_FOR_A_NAME = re.compile(r"[^A-Za-z0-9._-]+")


class SessionNote(msgspec.Struct, frozen=True):
    """session.json: what the reaper needs to know about a sandbox whose run was killed."""

    session: str
    """Name of the environment."""
    trial: str
    """Directory of the trial."""
    uppers: dict[str, str]
    """Mount point of each overlay, and its upper directory relative to the session's."""
    attempt: tuple[int, int] | None = None
    """Device and inode of the attempt's config.json, which stay the same when the attempt is
    moved; None if there is none."""


@dataclass(frozen=True, slots=True)
class Place:
    """A directory for scratch."""

    root: Path
    note: str | None = None
    """Why it is not the default; None if it is."""


@dataclass(frozen=True, slots=True)
class Session:
    """The scratch of one sandbox."""

    directory: Path

    @property
    def root(self) -> Path:
        """Empty directory on which the root file system is mounted."""
        return self.directory / "root"

    @property
    def parts(self) -> Path:
        """Directory for what is written."""
        return self.directory / "parts"

    @property
    def rooms(self) -> str:
        """Directory for files of verifiers' rooms; exists after the first was opened."""
        return f"{self.directory}/root.rooms"

    @property
    def names(self) -> frozenset[str]:
        """Names in the directory of an idle session."""
        return frozenset({"root", "root.rooms", "root.layers", "parts", _RETIRED_NOTE})

    def add_part(self, number: int, lower: Path) -> tuple[Path, Path]:
        """Make an upper directory, with owner and mode of the layer below it, and a work one."""
        part = self.parts / str(number)
        upper, work = part / "upper", part / "work"
        work.mkdir(parents=True)
        upper.mkdir()
        below = lower.stat()
        if os.geteuid() == 0:
            os.chown(upper, below.st_uid, below.st_gid)
        upper.chmod(stat.S_IMODE(below.st_mode) | stat.S_IRWXU)
        return upper, work

    def write_note(self, session: str, trial: Path, uppers: Mapping[str, str]) -> None:
        """Write session.json. Not synced: after a power cut the evidence is lost anyway."""
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
        """Remove session.json: the session no longer belongs to a trial."""
        with suppress(FileNotFoundError):
            os.rename(f"{self.directory}/{NOTE}", f"{self.directory}/{_RETIRED_NOTE}")


def find_attempt(trial: Path) -> tuple[int, int] | None:
    """Return device and inode that identify the attempt in a directory, even if it is moved."""
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
        """Make a directory for one sandbox."""
        prefix = f"{fit_name(name)}."
        session = Session(Path(tempfile.mkdtemp(prefix=prefix, dir=self.directory)))
        session.root.mkdir()
        return session


def fit_name(name: str) -> str:
    """Return a name that is valid for a directory and in a mount option."""
    return _UNFIT_FOR_A_NAME.sub("-", name)[:100].lstrip(".") or "session"


def make_temporary() -> Path:
    """Make a temporary directory for the files of a job that nobody keeps.

    It is named after this run: if the run is killed, the reaper recognises it.
    """
    return Path(tempfile.mkdtemp(prefix=f"{TEMPORARY}{this_run()}."))


def cache_directory(environ: Mapping[str, str] = os.environ) -> Path:
    """Return $PROCTOR_CACHE, or else $XDG_CACHE_HOME/proctor, or else ~/.cache/proctor.

    Raises:
        SandboxError: this user has no home directory, or others can write to the cache, whose
            files are executed.
    """
    cache = _name_cache(environ)
    if stranger := find_stranger(cache):
        raise SandboxError(
            f"{stranger}, and files in the cache are executed; set PROCTOR_CACHE to a directory "
            "that only you can write to"
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
        "there is no cache directory for sandboxes: set PROCTOR_CACHE or HOME to a directory"
    )


def _find_home() -> str:
    """Return the home directory from the user database, because services have no HOME."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_dir
    except KeyError:
        return ""


def scratch_roots(environ: Mapping[str, str] = os.environ) -> tuple[Path, ...]:
    """Return every directory that may be the scratch: the default, then those in memory."""
    if chosen := environ.get("PROCTOR_SCRATCH"):
        return (Path(chosen).absolute(),)
    usual = cache_directory(environ) / "scratch"
    return (usual, *(place / f"proctor-{os.geteuid()}" for place in _IN_MEMORY))


def find_place(environ: Mapping[str, str] = os.environ) -> Place:
    """Return the scratch directory, created if missing.

    Raises:
        SandboxError: none supports overlays.
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
    """Return why a directory cannot be used for overlays; creates it if missing."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        return f"{directory}: cannot be created for sandboxes' files: {reason_of(error)}"
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
    """Create a directory that only this user can access, or check that it is.

    Raises:
        SandboxError: it cannot be created, or belongs to another user.
    """
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = directory.lstat()
        is_ours = stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()
        if is_ours and stat.S_IMODE(status.st_mode) & 0o077:
            directory.chmod(0o700)
    except OSError as error:
        raise SandboxError(f"{directory}: cannot be created: {reason_of(error)}") from error
    if not is_ours:
        raise SandboxError(f"{directory}: expected a directory that belongs to this user")


def open_run(root: Path) -> Run:
    """Return the scratch of this process below a root, created on the first call."""
    return _open_run(root, os.getpid())


@functools.lru_cache(maxsize=64)
def _open_run(root: Path, pid: int) -> Run:
    run = Run(this_run(), root / str(this_run()))
    # Renamed after it is locked, so that a reaper never sees it unlocked.
    fresh = Path(tempfile.mkdtemp(prefix=f".{run.id}.", dir=root))
    held = os.open(fresh / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(held, fcntl.LOCK_EX)
    _spread(fresh)
    fresh.rename(run.directory)
    atexit.register(_close_run, run, pid)
    return run


def _spread(directory: Path) -> None:
    """Place the scratch of each sandbox in another part of the disk, if the file system can."""
    # ext4 takes a hundred times as long to create a file where many were deleted within the last
    # minutes, because it skips their inodes one by one.
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        (flags,) = struct.unpack("=q", fcntl.ioctl(fd, _GET_FLAGS, bytes(8)))
        fcntl.ioctl(fd, _SET_FLAGS, struct.pack("=q", flags | _SPREAD_FLAG))
    except OSError:
        # Another file system, which neither has nor needs this flag.
        return
    finally:
        os.close(fd)


def _close_run(run: Run, pid: int) -> None:
    """Remove the scratch of the run, unless a sandbox was not stopped: the reaper handles that."""
    if os.getpid() != pid:
        return
    with suppress(OSError):
        if [entry.name for entry in run.directory.iterdir()] == [LOCK]:
            (run.directory / LOCK).unlink()
            run.directory.rmdir()
