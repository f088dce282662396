"""What a killed trial left in its sandbox, brought into the trial's directory: it is evidence.

    /logs/agent                    <trial>/agent
    /logs/artifacts                <trial>/artifacts
    /workspace/trajectory.jsonl    <trial>/agent/trajectory.jsonl
    /workspace/artifacts           <trial>/agent/artifacts: the media of such a trace

The places are those into which a trial that ends by itself collects the same things.

Everything here was written by a stranger. Only regular files are copied, no link is followed,
nothing that is in the trial is replaced, and what is too much is left and listed.
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
"""Where evidence lies, inside."""
_MOST_BYTES = 1 << 30
_MOST_FILES = 20_000
_DEEPEST = 200
"""Directories in directories, as in what is fetched from a sandbox that lives."""
_BLOCK = 1 << 20
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(slots=True)
class Salvaged:
    """What came of one session."""

    copied: list[Path] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    """What was not copied, each with its reason: links, devices, too large."""
    is_safe_to_delete: bool = True
    """False: evidence lies there that could not be copied, because the trial is gone or full."""
    n_bytes: int = 0


def load_note(session: Path) -> SessionNote | None:
    """Whose scratch a session's directory is; None where it does not say."""
    try:
        return msgspec.json.decode(read_small(str(session / NOTE)), type=SessionNote)
    except (OSError, msgspec.DecodeError):
        return None


def salvage(session: Path) -> Salvaged:
    """Copy what a session's sandbox left into its trial. A second time copies nothing twice."""
    done = Salvaged()
    session = session.resolve()
    note = load_note(session)
    if note is None:
        return done
    trial = _find_home(note)
    found = list(islice(_find(session, note), _MOST_FILES + 1))
    if trial is None:
        if found:
            done.is_safe_to_delete = False
            done.refused.append(
                f"{note.trial}: the trial is gone, so there is no place for what it left"
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
    """Where the attempt lies that the sandbox was of: it may have been moved since."""
    trial = Path(note.trial)
    if note.attempt is None:
        return trial if trial.is_dir() else None
    places = (trial, *trial.glob("attempts/*"))
    return next((place for place in places if find_attempt(place) == note.attempt), None)


def _find(session: Path, note: SessionNote) -> Iterator[tuple[Path, PurePosixPath]]:
    """Every file that should be kept, and its place in the trial."""
    for inside, home in _TREES:
        top = _place(session, note, inside)
        for path in _list_files(top, session):
            yield path, PurePosixPath(home, path.relative_to(top))
    trace = _place(session, note, _TRACE)
    if os.path.lexists(trace):
        yield trace, PurePosixPath("agent", trace.name)


def _place(session: Path, note: SessionNote, inside: str) -> Path:
    """Where a path of the sandbox lies on the host, were it written."""
    target = max(
        (to for to in note.uppers if PurePosixPath(inside).is_relative_to(to)),
        key=len,
        default="/",
    )
    upper = session / note.uppers.get(target, "none")
    return upper / PurePosixPath(inside).relative_to(target)


def _is_below_link(path: Path, top: Path) -> bool:
    """Whether a directory between one and a path below it is a link."""
    parent = path.parent
    while not os.path.lexists(parent):
        # Still to be made, and by us.
        parent = parent.parent
    real = Path(os.path.realpath(top), parent.relative_to(top))
    return os.path.realpath(parent) != str(real)


def _list_files(top: Path, session: Path) -> Iterator[Path]:
    """All but directories below a directory, links not followed, by name."""
    if top.is_symlink() or _is_below_link(top, session):
        return
    for directory, folders, files in os.walk(top):
        folders.sort()
        if directory.count("/", len(str(top))) >= _DEEPEST:
            # Listed as what it is, which is not copied.
            files += folders
            folders.clear()
        yield from (Path(directory, name) for name in sorted(files))


def _copy_into(source: Path, target: Path, done: Salvaged) -> None:
    try:
        fd = _open(source)
    except OSError as error:
        done.refused.append(f"{source.name}: {reason_of(error)}; links and devices are not copied")
        return
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            done.refused.append(f"{source.name}: not a regular file")
        elif os.readlink(f"/proc/self/fd/{fd}") != str(source):  # noqa: PTH115 - the text as it is
            # A process of a sandbox that is only just dying put a link on the way.
            done.refused.append(f"{source.name}: below a link, which is not followed")
        elif done.n_bytes + status.st_size > _MOST_BYTES:
            done.refused.append(f"{source.name}: more than is copied from one sandbox")
        else:
            _copy_file(fd, source, target, done)
    except OSError as error:
        done.is_safe_to_delete = False
        done.refused.append(f"{target}: cannot be written: {reason_of(error)}")
    finally:
        os.close(fd)


def _open(source: Path) -> int:
    try:
        return os.open(source, _FILE)
    except PermissionError:
        # Its mode is the stranger's; the file is ours.
        if stat.S_ISREG(source.lstat().st_mode):
            source.chmod(0o600)
        return os.open(source, _FILE)


def _copy_file(fd: int, source: Path, target: Path, done: Salvaged) -> None:
    if (free := _free_name(source, target)) is None:
        return
    free.parent.mkdir(parents=True, exist_ok=True)
    # Under its own name only when it is whole: whoever is killed here leaves no half of a file.
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
    """The target, or a name beside it that is free; None where the same bytes are there already."""
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
