"""The index brought up to the log: from where it is, or from the start where it does not fit."""

from pathlib import Path

from proctor.errors import DamageError
from proctor.ledger.admission import admit_line
from proctor.ledger.entry import AnyEntry, Withheld
from proctor.ledger.index import Index, Indexed, Position, key_after
from proctor.ledger.segments import Line, Place, read_lines, segment_path
from proctor.ledger.tree import HASH_SIZE, Tree, leaf_hash

BATCH = 2000
"""Lines that the index takes in at a time."""


def catch_up(index: Index, entries: Path, tree: Tree) -> Position | None:
    """Let the index read the log up to a tree's size, from where it is or from the beginning.

    None where another process did so meanwhile: look again.

    Raises:
        DamageError: the log does not give that tree.
    """
    position = index.position()
    if position.frontier.size > tree.size and _reaches(entries, position.place):
        raise DamageError(
            f"{entries.parent}: the checkpoint signs {tree.size} entries, the log goes on to the "
            f"{position.frontier.size} that were signed before: an older checkpoint was put back; "
            "if it is the right one after all, delete index.sqlite"
        )
    if position.frontier.size <= tree.size:
        read = _read_on(index, entries, position, tree.size)
        if read is None or _fits(read, tree):
            return read
    # Made from another log, or from this one before it was damaged.
    index.forget()
    read = _read_on(index, entries, index.position(), tree.size)
    if read is not None and not _fits(read, tree):
        raise DamageError(
            f"{entries.parent}: the log has not the {tree.size} entries that its checkpoint "
            "signs; `proctor ledger verify` says what is wrong"
        )
    return read


def _reaches(entries: Path, place: Place) -> bool:
    try:
        return segment_path(entries, place.segment).stat().st_size >= place.offset
    except FileNotFoundError:
        return False


def _fits(position: Position, tree: Tree) -> bool:
    return position.frontier.size == tree.size and position.frontier.root() == tree.root


def _read_on(index: Index, entries: Path, position: Position, size: int) -> Position | None:
    """Take in the lines up to a size, or as many as there are; None where another did."""
    frontier, place, key = position.frontier.copy(), position.place, position.key
    after = frontier.size
    batch: list[Indexed] = []
    if frontier.size == size:
        return position
    for line in read_lines(entries, place):
        if line.is_torn:
            break
        indexed = _index_line(line, entries, frontier.size)
        frontier.append(indexed.leaf)
        place, key = line.end, key_after(key, indexed.entry)
        batch.append(indexed)
        if len(batch) == BATCH or frontier.size == size:
            if not _add(index, batch, Position(place, frontier, key), after, entries):
                return None
            batch, after = [], frontier.size
        if frontier.size == size:
            break
    return Position(place, frontier, key)


def _add(index: Index, batch: list[Indexed], position: Position, after: int, entries: Path) -> bool:
    try:
        return index.add(batch, position, after=after)
    except DamageError as error:
        raise DamageError(
            f"{entries.parent}: {error}; `proctor ledger verify` names all damage"
        ) from error


def _index_line(line: Line, entries: Path, seq: int) -> Indexed:
    entry = admit_line(line.data, f"{entries.parent}: entry {seq}")
    if entry.seq != seq:
        raise DamageError(f"{entries.parent}: entry {seq} says that it is entry {entry.seq}")
    return Indexed(line.place, len(line.data), _leaf_of(line, entry), entry)


def _leaf_of(line: Line, entry: AnyEntry | Withheld) -> bytes:
    if not isinstance(entry, Withheld):
        return leaf_hash(line.data)
    try:
        leaf = bytes.fromhex(entry.withheld)
    except ValueError:
        leaf = b""
    if len(leaf) != HASH_SIZE:
        raise DamageError(f"entry {entry.seq}: no leaf hash is left of it")
    return leaf
