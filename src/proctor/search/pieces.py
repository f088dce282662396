"""Entries of the log as pieces for the index: some rows at a time, ready to be stored.

Reading evidence and making pieces takes about as long as storing them. With much evidence and a
second processor, another process reads, and this one stores.
"""

import contextlib
import fcntl
import multiprocessing
import os
import signal
from collections.abc import Iterable, Iterator, Sequence
from multiprocessing.connection import Connection

import msgspec
from backports import zstd

from proctor.errors import DamageError, InputError, LedgerError
from proctor.ledger.artifacts import ArtifactStore
from proctor.ledger.entry import decode_line
from proctor.ledger.log import LogStore, read_line
from proctor.ledger.trial_index import IndexedEntry
from proctor.ledger.upkeep import check_leaf
from proctor.search.row import Row
from proctor.search.tags import document_of
from proctor.search.texts import Passed, rows_of
from proctor.traces.parallel import count_processors, end_with_parent

# The unit of compression: large enough to compress well, small enough to unpack for one hit.
_BLOCK_CHARACTERS = 1 << 16
_BLOCK_ROWS = 200
_LEVEL = 1
# The largest pipe that an unprivileged process may have.
_PIPE_BYTES = 1 << 20
# Bytes of evidence below which a second process costs more than it saves.
_WORTH_IT = 1 << 25


class Piece(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Some consecutive rows of one entry."""

    seq: int
    """The entry's index in the log."""
    documents: list[bytes] = []
    """The rows as the index stores them; empty in the last piece of an entry."""
    packed: bytes = b""
    """The rows themselves."""
    is_last: bool = False
    absent: list[str] = []
    """In the last piece: digests of missing evidence."""
    problems: list[str] = []
    """In the last piece: what could not be read."""
    failure: str = ""
    """Why reading stopped; "" if it did not."""


_ENCODE = msgspec.msgpack.Encoder().encode
_DECODE_ROWS = msgspec.msgpack.Decoder(list[Row]).decode
_DECODE_PIECE = msgspec.msgpack.Decoder(Piece).decode


def unpack_rows(packed: bytes) -> list[Row]:
    """Decode the rows of a piece.

    Raises:
        ValueError: they cannot be decoded.
    """
    try:
        return _DECODE_ROWS(zstd.decompress(packed))
    except (zstd.ZstdError, msgspec.MsgspecError) as error:
        raise ValueError(str(error)) from error


@contextlib.contextmanager
def reading(
    log: LogStore, artifacts: ArtifactStore, entries: Sequence[IndexedEntry], size: int
) -> Iterator[Iterable[Piece]]:
    """Yield the pieces of a ledger's entries, in order; `size` is the size of their evidence."""
    if size < _WORTH_IT or count_processors() == 1:
        yield make_pieces(log, artifacts, entries)
        return
    # Forked, because a fresh interpreter spends its first fifth of a second importing.
    forked = multiprocessing.get_context("fork")
    ours, theirs = forked.Pipe(duplex=False)
    with contextlib.suppress(OSError, AttributeError):  # only Linux has F_SETPIPE_SZ
        # Room to keep reading while postings are written; a smaller pipe works too.
        fcntl.fcntl(theirs.fileno(), fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    arguments = (log, artifacts, entries, theirs, os.getpid())
    helper = forked.Process(target=_help, args=arguments, daemon=True)
    helper.start()
    theirs.close()
    try:
        yield _receive(ours)
    finally:
        ours.close()
        helper.kill()
        helper.join()


def make_pieces(
    log: LogStore, artifacts: ArtifactStore, entries: Iterable[IndexedEntry]
) -> Iterator[Piece]:
    """Make pieces in this process. Uses no SQLite: its connections do not survive a fork.

    Raises:
        LedgerError: evidence cannot be unpacked here.
    """
    packer = zstd.ZstdCompressor(_LEVEL)
    for found in entries:
        passed = Passed()
        try:
            line = read_line(log, found.place, found.length)
            check_leaf(line, found.leaf, f"{log.where}: entry {found.seq}")
            entry = decode_line(line, f"{log.where}: entry {found.seq}")
            for block in _in_blocks(rows_of(artifacts, entry, passed)):
                packed = packer.compress(_ENCODE(block), packer.FLUSH_FRAME)
                yield Piece(found.seq, [document_of(row) for row in block], packed)
        except (DamageError, InputError) as error:
            passed.problems.append(f"entry {found.seq}: {error}")
        except OSError as error:
            raise LedgerError(
                f"entry {found.seq}: its evidence cannot be unpacked: {error}; set TMPDIR to "
                "another directory"
            ) from error
        yield Piece(found.seq, is_last=True, absent=passed.absent, problems=passed.problems)


def _in_blocks(rows: Iterable[Row]) -> Iterator[list[Row]]:
    block: list[Row] = []
    held = 0
    for row in rows:
        block.append(row)
        held += len(row.text)
        if held >= _BLOCK_CHARACTERS or len(block) >= _BLOCK_ROWS:
            yield block
            block, held = [], 0
    if block:
        yield block


def _help(
    log: LogStore,
    artifacts: ArtifactStore,
    entries: Sequence[IndexedEntry],
    target: Connection,
    parent: int,
) -> None:
    """Make pieces in the second process."""
    # Ctrl-C is sent to the whole process group; the parent reacts to it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent(parent)
    try:
        for piece in make_pieces(log, artifacts, entries):
            target.send_bytes(_ENCODE(piece))
        target.send_bytes(_ENCODE(Piece(-1, is_last=True)))
    except Exception as error:  # noqa: BLE001 - the parent raises it
        target.send_bytes(_ENCODE(Piece(-1, failure=str(error) or type(error).__name__)))


def _receive(source: Connection) -> Iterator[Piece]:
    while True:
        try:
            piece = _DECODE_PIECE(source.recv_bytes())
        except (EOFError, OSError) as error:
            raise LedgerError(
                "the helper process was killed, perhaps because memory ran out; "
                "search again to continue"
            ) from error
        if piece.failure:
            raise LedgerError(piece.failure)
        if piece.seq < 0:
            return
        yield piece
