"""A ledger that was begun and never signed: what is left of its first entry is put aside.

A kill between the first entry and the first checkpoint leaves it, and nobody was told of a ledger.
Whatever holds more than that is none of this.
"""

from pathlib import Path

from proctor.errors import DamageError
from proctor.ledger.entry import KeyEntry, decode_line
from proctor.ledger.segments import Place, find_segments, open_segment
from proctor.ledger.torn import put_tail_aside

_LARGEST = 1 << 16
"""Bytes; the first entry, which names a key, has some three hundred."""


def clear_unfinished(directory: Path) -> bool:
    """Put aside a first entry that no checkpoint signs; False where there is more than that.

    Raises:
        OSError: it cannot be read or put aside.
    """
    segments = find_segments(directory / "entries")
    if not segments:
        return True
    if segments != [0]:
        return False
    with open_segment(directory / "entries", 0) as file:
        data = file.read(_LARGEST)
    if not _is_first(data):
        return False
    put_tail_aside(directory, Place())
    return True


def _is_first(data: bytes) -> bool:
    """Whether this is the entry that names a key, or the beginning of one."""
    line, newline, rest = data.partition(b"\n")
    if not newline:
        return len(data) < _LARGEST and line.startswith(b'{"at":'[: len(line)])
    try:
        return not rest and isinstance(decode_line(line, "the first entry"), KeyEntry)
    except DamageError:
        return False
