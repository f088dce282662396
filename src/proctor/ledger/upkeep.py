"""The index brought up to the log: from where it is, or from the start where it does not fit."""

from itertools import islice

from proctor.errors import DamageError
from proctor.ledger.admission import admit_with_row
from proctor.ledger.derived import SEARCH_INDEX, remove_index
from proctor.ledger.entry import AnyEntry, Withheld, WithholdEntry, decode_line
from proctor.ledger.log import Line, LogStore, read_line, read_lines
from proctor.ledger.tree import HASH_SIZE, Frontier, Tree, leaf_hash
from proctor.ledger.trial_index import Indexed, Position, TrialIndex, key_after

BATCH = 2000
"""Lines that the index takes in at a time."""


def catch_up(index: TrialIndex, log: LogStore, tree: Tree) -> Position | None:
    """Let the index read the log up to a tree's size, from where it is or from the beginning.

    None where another process did so meanwhile: look again.

    Raises:
        DamageError: the log does not give that tree.
    """
    position = index.position()
    if position.frontier.size > tree.size and _holds(log, position):
        raise DamageError(
            f"{log.where}: the checkpoint signs {tree.size} entries, the log goes on to the "
            f"{position.frontier.size} that were signed before: an older checkpoint was put back; "
            f"if it is the right one after all, delete {index.path}"
        )
    if position.frontier.size <= tree.size:
        read = _read_on(index, log, position, tree.size)
        if read is None or (_fits(read, tree) and not _is_stale(index, log)):
            return read
    # Made from another log, from this one before it was damaged, or before lines were withheld.
    _remove_search_index(index)
    index.erase()
    read = _read_on(index, log, index.position(), tree.size)
    if read is not None and not _fits(read, tree):
        raise DamageError(
            f"{log.where}: the log has not the {tree.size} entries that its checkpoint "
            "signs; `proctor ledger verify` says what is wrong"
        )
    return read


def _holds(log: LogStore, position: Position) -> bool:
    """Whether the log still has all lines that the index has read."""
    size, frontier = position.frontier.size, Frontier()
    try:
        for line in islice(read_lines(log), size):
            frontier.append(read_leaf(line.data, f"{log.where}: entry {frontier.size}"))
    except DamageError:
        return False
    return frontier.size == size and frontier.root() == position.frontier.root()


def _is_stale(index: TrialIndex, log: LogStore) -> bool:
    """Whether a line was withheld or brought back since it was read: neither changes the tree."""
    try:
        return any(
            (line.kind == "") != _is_gone(read_line(log, line.place, line.length))
            for line in index.withheld_lines()
        )
    except DamageError:
        return True


def _is_gone(line: bytes) -> bool:
    return isinstance(decode_line(line, "the line"), Withheld)


def _remove_search_index(index: TrialIndex) -> None:
    """The texts of what was withheld go too; the next search makes them again from what is left."""
    if index.path is not None:
        remove_index(index.path.with_name(SEARCH_INDEX))


def _fits(position: Position, tree: Tree) -> bool:
    return position.frontier.size == tree.size and position.frontier.root() == tree.root


def _read_on(index: TrialIndex, log: LogStore, position: Position, size: int) -> Position | None:
    """Take in the lines up to a size, or as many as there are; None where another did."""
    frontier, place, key = position.frontier.copy(), position.place, position.key
    after = frontier.size
    batch: list[Indexed] = []
    if frontier.size == size:
        return position
    for line in read_lines(log, place):
        if line.is_torn:
            break
        indexed = _index_line(line, log, frontier.size)
        frontier.append(indexed.leaf)
        place, key = line.end, key_after(key, indexed.entry)
        batch.append(indexed)
        if position.frontier.size and isinstance(indexed.entry, WithholdEntry):
            _remove_search_index(index)
        if len(batch) == BATCH or frontier.size == size:
            if not _add(index, batch, Position(place, frontier, key), after, log):
                return None
            batch, after = [], frontier.size
        if frontier.size == size:
            break
    return Position(place, frontier, key)


def _add(
    index: TrialIndex, batch: list[Indexed], position: Position, after: int, log: LogStore
) -> bool:
    try:
        return index.add(batch, position, after=after)
    except DamageError as error:
        raise DamageError(
            f"{log.where}: {error}; `proctor ledger verify` names all damage"
        ) from error


def _index_line(line: Line, log: LogStore, seq: int) -> Indexed:
    entry, row = admit_with_row(line.data, f"{log.where}: entry {seq}")
    if entry.seq != seq:
        raise DamageError(f"{log.where}: entry {seq} says that it is entry {entry.seq}")
    return Indexed(line.place, len(line.data), leaf_of(line.data, entry), entry, row)


def check_leaf(line: bytes, leaf: bytes, where: str) -> None:
    """See that a line is the one with this leaf hash, or what is left of it.

    Raises:
        DamageError: it is not.
    """
    if leaf_hash(line) != leaf and read_leaf(line, where) != leaf:
        raise DamageError(
            f"{where} has other bytes than were signed; `proctor ledger verify` says what is wrong"
        )


def read_leaf(line: bytes, where: str) -> bytes:
    """The leaf hash of a line; of a withheld one, as it names it.

    Raises:
        DamageError: it is no entry, nor what is left of one.
    """
    return leaf_of(line, decode_line(line, where))


def leaf_of(line: bytes, entry: AnyEntry | Withheld) -> bytes:
    """The leaf hash of a line that was decoded; of a withheld one, as it names it.

    Raises:
        DamageError: it names none.
    """
    if not isinstance(entry, Withheld):
        return leaf_hash(line)
    try:
        leaf = bytes.fromhex(entry.withheld)
    except ValueError:
        leaf = b""
    if len(leaf) != HASH_SIZE:
        raise DamageError(f"entry {entry.seq}: no leaf hash is left of it")
    return leaf
