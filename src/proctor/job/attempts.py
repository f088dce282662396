"""Move a trial's files to its job's directory, and earlier attempts to `<trial>/attempts/N`.

An attempt is moved completely, by renames, before the trial is restarted under the same name:

    (1) attempts/.N is created; from here on the attempt will be kept
    (2) everything except attempts/ is renamed into it
    (3) in its record.json the trial_id becomes `<trial>.attempt-N`
    (4) attempts/.N is renamed to attempts/N

A crash leaves an attempts/.N, which the next call completes: two attempts are never mixed, since a
new one begins only after (4). All other bytes stay unchanged.
"""

import asyncio
import errno
import os
import shutil
from pathlib import Path

import msgspec

from proctor.files import read_small, write_atomic
from proctor.ledger.counting import ATTEMPT
from proctor.ledger.submission import ATTEMPTS
from proctor.record.read import replace_id

RESULT = "result.json"


def count_attempts(trial_dir: str) -> int:
    """The highest number of an attempt that is kept or being moved; 0 if there is none."""
    return max(map(_number_of, list_names(f"{trial_dir}/{ATTEMPTS}")), default=0)


def is_being_kept(trial_dir: str) -> bool:
    """Whether a crash interrupted the keeping of an attempt."""
    return _find_begun(trial_dir) is not None


def keep_attempt(trial_dir: Path) -> int:
    """Move an attempt's files to attempts/N; return N, or 0 if there are none.

    Raises:
        OSError: something cannot be moved; the next call continues.
    """
    # Following it would move files out of the job.
    if (trial_dir / ATTEMPTS).is_symlink():
        raise OSError(errno.ELOOP, "is a link, which is not followed", str(trial_dir / ATTEMPTS))
    begun = _find_begun(str(trial_dir))
    left = [name for name in list_names(str(trial_dir)) if name != ATTEMPTS]
    if begun is not None and any(os.path.lexists(begun / name) for name in left):
        # Files that appeared meanwhile are another attempt.
        _finish(trial_dir, begun)
        begun = None
    if begun is None:
        if not left:
            return 0
        number = count_attempts(str(trial_dir)) + 1
        begun = trial_dir / ATTEMPTS / f".{number}"
        begun.mkdir(parents=True)  # (1)
    for name in left:  # (2)
        (trial_dir / name).rename(begun / name)
    return _finish(trial_dir, begun)


async def take_over(left: Path, trial_dir: Path) -> None:
    """Move a trial's files to its job's directory, unless they are there already."""
    if left.exists() and not (trial_dir.exists() and left.samefile(trial_dir)):
        # In a thread: it waits for the disk.
        await asyncio.to_thread(_move, left, trial_dir)


def _move(left: Path, trial_dir: Path) -> None:
    trial_dir.mkdir(parents=True, exist_ok=True)
    for name in list_names(str(left)):
        if os.path.lexists(trial_dir / name):
            raise OSError(errno.EEXIST, "is there already", str(trial_dir / name))
        if name != RESULT:
            shutil.move(left / name, trial_dir / name)
    # Last, and atomically even across file systems: a trial with a result must be complete.
    if os.path.lexists(left / RESULT):
        write_atomic(trial_dir / RESULT, read_small(str(left / RESULT)))
    shutil.rmtree(left)


def _finish(trial_dir: Path, begun: Path) -> int:
    number = _number_of(begun.name)
    _rename_record(begun / "record.json", f"{trial_dir.name}{ATTEMPT}{number}")  # (3)
    begun.rename(begun.with_name(str(number)))  # (4)
    return number


def _rename_record(path: Path, trial_id: str) -> None:
    """Change a record's trial_id; an unreadable record is left unchanged."""
    try:
        renamed = replace_id(read_small(str(path)), "trial_id", trial_id)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return
    if renamed is not None:
        write_atomic(path, renamed)


def list_names(directory: str) -> list[str]:
    """The names in a directory; empty if it does not exist."""
    try:
        with os.scandir(directory) as entries:
            return [entry.name for entry in entries]
    except (FileNotFoundError, NotADirectoryError):
        return []


def _find_begun(trial_dir: str) -> Path | None:
    names = list_names(f"{trial_dir}/{ATTEMPTS}")
    begun = [name for name in names if name.startswith(".") and _number_of(name)]
    return Path(trial_dir, ATTEMPTS, begun[0]) if begun else None


def _number_of(name: str) -> int:
    digits = name.removeprefix(".")
    return int(digits) if digits.isascii() and digits.isdigit() else 0
