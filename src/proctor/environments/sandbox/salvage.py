"""Copies what a killed trial left in its sandbox into the trial's directory, as evidence.

    /logs/agent                    <trial>/agent
    /logs/artifacts                <trial>/artifacts
    /workspace/trajectory.jsonl    <trial>/agent/trajectory.jsonl
    /workspace/artifacts           <trial>/agent/artifacts: the media of such a trace

The targets are those of a trial that ends normally.

The files are untrusted. Only regular files are copied, no symlink is followed, no file of the trial
is replaced, and files beyond the limits are listed instead.
"""

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path, PurePosixPath

import msgspec

from proctor.digest import sha256_file
from proctor.environments.sandbox.scratch import NOTE, SessionNote, find_attempt
from proctor.files import read_small
from proctor.sentence import reason_of

_TREES = (
    ("/logs/agent", "agent"),
    ("/logs/artifacts", "artifacts"),
    ("/workspace/artifacts", "agent/artifacts"),
)
_TRACE = "/workspace/trajectory.jsonl"
PLACES = (*(inside for inside, _ in _TREES), _TRACE)
"""Paths of evidence, inside."""
_MOST_BYTES = 1 << 30
_MOST_FILES = 20_000
# Depth of directories, the same as for downloads from a running sandbox.
_DEEPEST = 200
_BLOCK = 1 << 20
# NONBLOCK, because a pipe in place of a file would block.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(slots=True)
class Salvaged:
    """Result of salvaging one session."""

    copied: list[Path] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    """Files that were not copied, each with the reason: symlink, device, too large."""
    is_safe_to_delete: bool = True
    """False if evidence could not be copied, because the trial is missing or the disk is full."""
    n_bytes: int = 0


def salvage(session: Path) -> Salvaged:
    """Copy what a session's sandbox left into its trial. Idempotent."""
    done = Salvaged()
    session = session.resolve()
    # None if it has none.
    try:
        note = msgspec.json.decode(read_small(str(session / NOTE)), type=SessionNote)
    except (OSError, msgspec.DecodeError):
        note = None
    if note is None:
        return done
    trial = _find_home(note)
    found = list(islice(_find(session, note), _MOST_FILES + 1))
    if trial is None:
        if found:
            done.is_safe_to_delete = False
            done.refused.append(
                f"{note.trial}: the trial no longer exists, so its files cannot be copied to it"
            )
        return done
    for source, target in found[:_MOST_FILES]:
        if _is_below_link(source, session) or _is_below_link(trial / target, trial):
            done.refused.append(f"{source.name}: below a link, which is not followed")
        else:
            _copy_into(source, trial / target, done)
    if len(found) > _MOST_FILES:
        done.refused.append(f"more than {_MOST_FILES:,} files; the rest was not copied")
    return done


def _find_home(note: SessionNote) -> Path | None:
    """Return the directory of the sandbox's attempt, which may have been moved since."""
    trial = Path(note.trial)
    if note.attempt is None:
        return trial if trial.is_dir() else None
    places = (trial, *trial.glob("attempts/*"))
    return next((place for place in places if find_attempt(place) == note.attempt), None)


def _find(session: Path, note: SessionNote) -> Iterator[tuple[Path, PurePosixPath]]:
    """Yield every file of evidence, with its path in the trial."""
    for inside, home in _TREES:
        top = _place(session, note, inside)
        for path in _list_files(top, session):
            yield path, PurePosixPath(home, path.relative_to(top))
    trace = _place(session, note, _TRACE)
    if os.path.lexists(trace):
        yield trace, PurePosixPath("agent", trace.name)


def _place(session: Path, note: SessionNote, inside: str) -> Path:
    """Return where on the host a path of the sandbox would be, if it was written."""
    target = max(
        (to for to in note.uppers if PurePosixPath(inside).is_relative_to(to)), key=len, default="/"
    )
    upper = session / note.uppers.get(target, "none")
    return upper / PurePosixPath(inside).relative_to(target)


def _is_below_link(path: Path, top: Path) -> bool:
    """Whether a directory between `top` and a path below it is a symlink."""
    parent = path.parent
    while not os.path.lexists(parent):
        # Does not exist yet; we will create it.
        parent = parent.parent
    real = Path(os.path.realpath(top), parent.relative_to(top))
    return os.path.realpath(parent) != str(real)


def _list_files(top: Path, session: Path) -> Iterator[Path]:
    """Yield the files below a directory, sorted, without following symlinks."""
    if top.is_symlink() or _is_below_link(top, session):
        return
    for directory, folders, files in os.walk(top):
        folders.sort()
        if directory.count("/", len(str(top))) >= _DEEPEST:
            # Yield the deeper directories as if they were files, so that they are refused.
            files += folders
            folders.clear()
        yield from (Path(directory, name) for name in sorted(files))


def _copy_into(source: Path, target: Path, done: Salvaged) -> None:
    try:
        try:
            fd = os.open(source, _FILE)
        except PermissionError:
            # The agent chose its mode, but the file is ours.
            if stat.S_ISREG(source.lstat().st_mode):
                source.chmod(0o600)
            fd = os.open(source, _FILE)
    except OSError as error:
        done.refused.append(f"{source.name}: {reason_of(error)}; links and devices are not copied")
        return
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            done.refused.append(f"{source.name}: not a regular file")
        elif os.readlink(f"/proc/self/fd/{fd}") != str(source):  # noqa: PTH115 - the text as it is
            # A dying process of the sandbox has replaced a directory of the path by a symlink.
            done.refused.append(f"{source.name}: below a link, which is not followed")
        elif done.n_bytes + status.st_size > _MOST_BYTES:
            done.refused.append(f"{source.name}: over the limit of bytes for one sandbox")
        else:
            _copy_file(fd, source, target, done)
    except OSError as error:
        done.is_safe_to_delete = False
        done.refused.append(f"{target}: cannot be written: {reason_of(error)}")
    finally:
        os.close(fd)


def _copy_file(fd: int, source: Path, target: Path, done: Salvaged) -> None:
    if (free := _free_name(source, target)) is None:
        return
    free.parent.mkdir(parents=True, exist_ok=True)
    # Renamed when complete, so that a kill leaves no half file under its name.
    half = free.with_name(f".{os.urandom(8).hex()}.salvaged")
    to = os.open(half, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    try:
        with os.fdopen(to, "wb") as file:
            while block := os.read(fd, _BLOCK):
                file.write(block)
                done.n_bytes += len(block)
        half.rename(free)
    except OSError:
        half.unlink()
        raise
    done.copied.append(free)


def _free_name(source: Path, target: Path) -> Path | None:
    """Return the target or a free name next to it; None if the same bytes are there already."""
    for number in range(_MOST_FILES):
        suffix = "" if number == 0 else ".salvaged" if number == 1 else f".salvaged-{number}"
        name = target.with_name(target.name + suffix)
        if not os.path.lexists(name):
            return name
        if _same_bytes(source, name):
            return None
    return None


def _same_bytes(source: Path, there: Path) -> bool:
    if there.is_symlink() or not there.is_file():
        return False
    if there.stat().st_size != source.stat().st_size:
        return False
    return sha256_file(there) == sha256_file(source)
