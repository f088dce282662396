"""Updates the index from the log, or rebuilds it if it does not match."""

from itertools import islice

from proctor.errors import DamageError
from proctor.ledger.admission import admit_with_row
from proctor.ledger.derived import SEARCH_INDEX, remove_index
from proctor.ledger.entry import AnyEntry, Withheld, WithholdEntry, decode_line
from proctor.ledger.log import Line, LogStore, read_line, read_lines
from proctor.ledger.tree import HASH_SIZE, Frontier, Tree, leaf_hash
from proctor.ledger.trial_index import Indexed, Position, TrialIndex, key_after

BATCH = 2000
"""Lines added to the index in one transaction."""


def catch_up(index: TrialIndex, log: LogStore, tree: Tree) -> Position | None:
    """Update the index up to a tree's size, from its position or from the start.

    Returns None if another process updated it in between: try again.

    Raises:
        DamageError: the log does not have that tree.
    """
    position = index.position()
    if position.frontier.size > tree.size and _holds(log, position):
        raise DamageError(
            f"{log.where}: the checkpoint signs {tree.size} entries, but the log still has the "
            f"{position.frontier.size} that were signed before: an older checkpoint was restored; "
            f"if it is the right one, delete {index.path}"
        )
    if position.frontier.size <= tree.size:
        read = _read_on(index, log, position, tree.size)
        if read is None or (_fits(read, tree) and not _is_stale(index, log)):
            return read
    # The index is of another log, or of this one before it was damaged or bytes were withheld.
    _remove_search_index(index)
    index.erase()
    read = _read_on(index, log, index.position(), tree.size)
    if read is not None and not _fits(read, tree):
        raise DamageError(
            f"{log.where}: the log does not have the {tree.size} entries that its checkpoint "
            "signs; run `proctor ledger verify` to see what is wrong"
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
    """Whether a line was withheld since it was read, which does not change the tree."""
    try:
        for known in index.withheld_lines():
            if known.kind == "":
                continue
            line = read_line(log, known.place, known.length)
            if isinstance(decode_line(line, "the line"), Withheld):
                return True
    except DamageError:
        return True
    return False


def _remove_search_index(index: TrialIndex) -> None:
    """Delete the search index, which contains withheld text; the next search rebuilds it."""
    if index.path is not None:
        remove_index(index.path.with_name(SEARCH_INDEX))


def _fits(position: Position, tree: Tree) -> bool:
    return position.frontier.size == tree.size and position.frontier.root() == tree.root


def _read_on(index: TrialIndex, log: LogStore, position: Position, size: int) -> Position | None:
    """Add the lines up to a size, or as many as there are; None if another process did."""
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
        # Only an index that has read earlier lines can contain the withheld text.
        if position.frontier.size and isinstance(indexed.entry, WithholdEntry):
            _remove_search_index(index)
        # In batches, so that an interrupted rebuild continues where it stopped.
        if len(batch) == BATCH or frontier.size == size:
            try:
                if not index.add(batch, Position(place, frontier, key), after=after):
                    return None
            except DamageError as error:
                raise DamageError(
                    f"{log.where}: {error}; `proctor ledger verify` names all damage"
                ) from error
            batch, after = [], frontier.size
        if frontier.size == size:
            break
    return Position(place, frontier, key)


def _index_line(line: Line, log: LogStore, seq: int) -> Indexed:
    entry, row = admit_with_row(line.data, f"{log.where}: entry {seq}")
    if entry.seq != seq:
        raise DamageError(f"{log.where}: entry {seq} says that it is entry {entry.seq}")
    return Indexed(line.place, len(line.data), leaf_of(line.data, entry), entry, row)


def check_leaf(line: bytes, leaf: bytes, where: str) -> None:
    """Check that a line, or the placeholder of a withheld one, has this leaf hash.

    Raises:
        DamageError: it has another one.
    """
    if leaf_hash(line) != leaf and read_leaf(line, where) != leaf:
        raise DamageError(f"{where} differs from what was signed; run `proctor ledger verify`")


def read_leaf(line: bytes, where: str) -> bytes:
    """The leaf hash of a line; for a withheld line, the one that its placeholder states."""
    return leaf_of(line, decode_line(line, where))


def leaf_of(line: bytes, entry: AnyEntry | Withheld) -> bytes:
    """The leaf hash of a decoded line; for a withheld line, the one that its placeholder states.

    Raises:
        DamageError: it states none.
    """
    if not isinstance(entry, Withheld):
        return leaf_hash(line)
    try:
        leaf = bytes.fromhex(entry.withheld)
    except ValueError:
        leaf = b""
    if len(leaf) != HASH_SIZE:
        raise DamageError(f"entry {entry.seq}: its placeholder has no leaf hash")
    return leaf
