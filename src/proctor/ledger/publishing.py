"""Publishes a ledger as static files, in the paths that `proctor serve` answers.

    checkpoint
    tile/L/N[.p/W], tile/entries/N[.p/W]     hashes and lines: see tiles.py
    artifacts/sha256/DIGEST                  evidence, compressed with zstd

Any web server can serve them, and every reader verifies them. A publication goes in this order:

1. The published checkpoint must be one that this ledger extends: never go back, never fork.
2. The target must refuse a conditional write whose condition does not hold.
3. Bundles, evidence and hash tiles that the published tree does not have are sent.
4. The checkpoint is replaced, provided that it is still the one of (1).
5. Withheld lines are replaced by their placeholders, withheld evidence and outdated partial tiles
   are removed.

A kill before (4) leaves what was published before; after it, the next publication completes (5).
Evidence is not verified here: `proctor ledger verify` does that.
"""

import contextlib
import os
import shutil
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO, Protocol

from proctor.digest import sha256_hex
from proctor.errors import DamageError, InputError, LedgerError, MissingArtifactError
from proctor.files import sync_directory, sync_file, walk_files, write_atomic
from proctor.ledger.entry import TrialEntry, decode_line
from proctor.ledger.lock import locked
from proctor.ledger.note import LARGEST_NOTE, Checkpoint, parse_checkpoint
from proctor.ledger.reader import LedgerReader
from proctor.ledger.remote.connections import UnreachableError
from proctor.ledger.tiles import (
    TILE,
    Tile,
    TiledTree,
    entry_bundle,
    list_tiles,
    parse_tile_path,
    tile_hashes,
    tile_path,
)
from proctor.ledger.tree import HASH_SIZE
from proctor.ledger.upkeep import leaf_of
from proctor.ledger.withhold import list_naming, list_withholdings, withheld_digests

CHECKPOINT = "checkpoint"
TILES = "tile"
ARTIFACTS = "artifacts/sha256"
THREADS = 16
"""Files that are sent at the same time."""
# Bytes that wait to be sent, at most, beyond one file.
_MOST_WAITING = 64 << 20
_MOST_FILES_WAITING = 1000
_TRIES = 10
_BITS = TILE.bit_length() - 1

type Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Stored:
    """A file as it is at the target."""

    data: bytes
    version: str
    """What a conditional write names."""


class Target(Protocol):
    """Where a ledger is published: files by path."""

    @property
    def url(self) -> str:
        """Its name in messages."""

    def check_conditions(self) -> None:
        """Refuse a target that writes although the condition of a write does not hold.

        Raises:
            LedgerError: it is such a target, or cannot be written.
        """

    def read(self, path: str, largest: int) -> Stored | None:
        """A file; None if it is missing.

        Raises:
            LedgerError: it cannot be read, or has more bytes.
        """

    def put(self, path: str, data: bytes | BinaryIO) -> int:
        """Write a file in one step; returns its size in bytes. Called in several threads.

        Raises:
            LedgerError: it cannot be written.
        """

    def swap(self, path: str, data: bytes, version: str | None) -> bool:
        """Replace a file if it has this version, or create it; False if it has another.

        Raises:
            LedgerError: it cannot be written.
        """

    def list(self, folder: str) -> Iterator[str]:
        """The paths of all files below a folder."""

    def existing(self, folder: str, names: Sequence[str]) -> set[str]:
        """Which of these files are in a folder."""

    def remove(self, paths: Sequence[str]) -> None:
        """Remove files; one that is missing is no error."""


@dataclass(slots=True)
class Published:
    """The result of a publication."""

    url: str
    size: int
    """Entries that are published now."""
    since: int
    """Entries that were published before."""
    files: int = 0
    """Files that were sent."""
    n_bytes: int = 0
    """Their bytes."""
    renewed: int = 0
    """Bundles sent again because lines in them were withheld."""
    removed: int = 0
    """Artifacts removed because they are withheld."""


class _Sender:
    """Sends files in several threads, with bounded memory; use it in a `with` block."""

    def __init__(self, target: Target, done: Published) -> None:
        self._target = target
        self._done = done
        self._pool = ThreadPoolExecutor(THREADS)
        self._waiting: deque[tuple[Future[int], int]] = deque()
        self._n_bytes = 0

    def __enter__(self) -> "_Sender":
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            if kind is None:
                self.finish()
        finally:
            # After an error or Ctrl-C, what waits is not sent.
            self._pool.shutdown(cancel_futures=True)

    def send(self, path: str, data: bytes) -> None:
        """Send bytes."""
        self._add(self._pool.submit(self._target.put, path, data), len(data))

    def send_file(self, path: str, open_file: Callable[[], BinaryIO]) -> None:
        """Send a file, which is opened when it is its turn."""

        def put() -> int:
            with open_file() as file:
                return self._target.put(path, file)

        self._add(self._pool.submit(put), 0)

    def _add(self, future: Future[int], size: int) -> None:
        self._waiting.append((future, size))
        self._n_bytes += size
        while self._n_bytes > _MOST_WAITING or len(self._waiting) > _MOST_FILES_WAITING:
            self._take()

    def _take(self) -> None:
        future, size = self._waiting.popleft()
        self._n_bytes -= size
        self._done.n_bytes += future.result()
        self._done.files += 1

    def finish(self) -> None:
        """Wait until everything is sent."""
        while self._waiting:
            self._take()


def publish(
    ledger: LedgerReader, target: Target, *, is_all: bool = False, progress: Progress | None = None
) -> Published:
    """Publish a ledger; with `is_all`, send everything again.

    Raises:
        LedgerError: the target holds something that this ledger does not extend, or cannot be used.
        DamageError: the ledger is damaged.
    """
    progress = progress or (lambda _what, _done, _total: None)
    try:
        checkpoint = ledger.refresh()
        size = checkpoint.tree.size
        stored = target.read(CHECKPOINT, LARGEST_NOTE)
        published = _parse_published(stored, target)
        check_ancestor(ledger, checkpoint, published, target.url)  # (1)
        before = published.tree.size if published else 0
        is_covered = not is_all and published is not None and _is_covered(checkpoint, published)
        if not is_covered:
            target.check_conditions()  # (2)
        there = set(target.list(TILES))
        done = Published(target.url, size, before)
        withheld, since = withheld_digests(ledger), 0 if is_all else before
        # Evidence that another trial needs is there, and named by one that is not withheld.
        gone = {
            sha256
            for sha256 in withheld
            if not ledger.artifacts.holds(sha256) or not list_naming(ledger, sha256)
        }
        with _Sender(target, done) as sender:  # (3)
            skipped: set[str] = set() if is_all else there
            named, fresh = _send_tiles(ledger, sender, size, since, skipped, progress)
            wanted = list(dict.fromkeys([*named, *sorted(withheld - gone)]))
            skipped = gone | (set() if is_all else target.existing(ARTIFACTS, wanted))
            _send_artifacts(ledger, sender, wanted, skipped, progress)
        if not is_covered:
            _swap(ledger, checkpoint, target, stored, is_forced=is_all)  # (4)
        if gone:  # (5)
            there_still = target.existing(ARTIFACTS, sorted(gone))
            target.remove([f"{ARTIFACTS}/{sha256}" for sha256 in sorted(there_still)])
            done.removed = len(there_still)
        _renew_bundles(ledger, size, target, fresh, done)
        # Partial tiles of smaller trees: never one of a larger tree that is being published.
        target.remove([path for path in there if _is_outdated(path, size)])
    except UnreachableError as error:
        raise LedgerError(f"{error}; publish again to complete it") from error
    return done


def _parse_published(stored: Stored | None, target: Target) -> Checkpoint | None:
    return None if stored is None else parse_checkpoint(stored.data, f"{target.url}/{CHECKPOINT}")


def _is_covered(ours: Checkpoint, published: Checkpoint) -> bool:
    """Whether the published checkpoint has the same tree, and all of our signatures."""
    return ours.tree == published.tree and set(ours.signatures) <= set(published.signatures)


def check_ancestor(
    ledger: LedgerReader, ours: Checkpoint, published: Checkpoint | None, url: str
) -> None:
    """Refuse to replace a published checkpoint that this ledger does not extend.

    Raises:
        LedgerError: it is of another ledger, of another history, or newer.
    """
    if published is None:
        return
    if published.origin != ours.origin:
        raise LedgerError(
            f"{url}: holds another ledger, {published.origin!r}; this one is {ours.origin!r}: "
            "publish it under another prefix"
        )
    size, here = published.tree.size, ours.tree.size
    if size > here:
        raise LedgerError(
            f"{url}: {size:,} entries are published; this ledger has {here:,}: it is an older "
            "copy, and nothing was replaced"
        )
    if size and TiledTree(ledger.index, size).root() != published.tree.root:
        raise LedgerError(
            f"{url}: the {size:,} entries that are published are not the first {size:,} of this "
            "ledger: the two are different histories, and nothing was replaced"
        )


def _send_tiles(
    ledger: LedgerReader,
    sender: _Sender,
    size: int,
    since: int,
    there: set[str],
    progress: Progress,
) -> tuple[dict[str, None], set[int]]:
    """Send tiles and bundles that are not there.

    Returns the evidence that the new entries name, and the numbers of the bundles sent.
    """
    named: dict[str, None] = {}
    sent: set[int] = set()
    tiles = list_tiles(size, since)
    for number, tile in enumerate(tiles, start=1):
        path = tile_path(*tile)
        if tile.level is None:
            # Also if it is there: the evidence that it names may not be.
            data = _load_bundle(ledger, tile, since, named)
            if path not in there:
                sender.send(path, data)
                sent.add(tile.number)
        elif path not in there:
            sender.send(path, tile_hashes(ledger.index, tile.level, tile.number, tile.width))
        progress("tiles", number, len(tiles))
    return named, sent


def _send_artifacts(
    ledger: LedgerReader,
    sender: _Sender,
    wanted: Sequence[str],
    skipped: set[str],
    progress: Progress,
) -> None:
    artifacts = ledger.artifacts
    for number, sha256 in enumerate(wanted, start=1):
        if sha256 in skipped:
            continue
        if not artifacts.holds(sha256):
            raise MissingArtifactError(
                f"artifact {sha256} is missing, and not withheld: run `proctor ledger verify`"
            )
        sender.send_file(f"{ARTIFACTS}/{sha256}", partial(artifacts.open, sha256))
        progress("artifacts", number, len(wanted))


def _load_bundle(
    ledger: LedgerReader, tile: Tile, since: int, named: dict[str, None] | None = None
) -> bytes:
    """A bundle whose lines are the signed ones; adds the evidence of new entries to `named`."""
    data, begin = entry_bundle(ledger, tile.number, tile.width), tile.number * TILE
    hashes = tile_hashes(ledger.index, 0, tile.number, tile.width)
    lines = data.split(b"\n")
    for at, line in enumerate(lines[:-1]):
        where = f"{ledger.where}: entry {begin + at}"
        entry = decode_line(line, where)
        if leaf_of(line, entry) != hashes[at * HASH_SIZE : (at + 1) * HASH_SIZE]:
            raise DamageError(f"{where} is not the one that was signed")
        if named is not None and begin + at >= since and isinstance(entry, TrialEntry):
            named.update((file.sha256, None) for file in entry.evidence)
    return data


def _swap(
    ledger: LedgerReader,
    checkpoint: Checkpoint,
    target: Target,
    stored: Stored | None,
    *,
    is_forced: bool,
) -> None:
    """Replace the checkpoint, unless somebody published a newer one meanwhile."""
    data = checkpoint.render()
    for _ in range(_TRIES):
        if target.swap(CHECKPOINT, data, stored.version if stored else None):
            return
        stored = target.read(CHECKPOINT, LARGEST_NOTE)
        published = _parse_published(stored, target)
        check_ancestor(ledger, checkpoint, published, target.url)
        is_same = stored is not None and stored.data == data
        if is_same or (published and not is_forced and _is_covered(checkpoint, published)):
            return
    raise LedgerError(f"{target.url}: others keep publishing there; try again")


def _renew_bundles(
    ledger: LedgerReader, size: int, target: Target, fresh: set[int], done: Published
) -> None:
    """Replace bundles with lines that were withheld since they were sent."""
    lines = {each.entry for each in list_withholdings(ledger) if each.entry is not None}
    for number in sorted({seq // TILE for seq in lines} - fresh):
        tile = Tile(None, number, min(TILE, size - number * TILE))
        path, data = tile_path(*tile), _load_bundle(ledger, tile, size)
        found = target.read(path, len(data))
        if found is None or found.data != data:
            done.n_bytes += target.put(path, data)
            done.files += 1
            done.renewed += 1


def _is_outdated(path: str, size: int) -> bool:
    with contextlib.suppress(InputError):
        tile = parse_tile_path(path)
        in_level = size >> _BITS * (tile.level or 0)
        return tile.width < TILE and tile.number * TILE + tile.width < in_level
    return False


class DirectoryTarget:
    """A directory, for a web server."""

    def __init__(self, directory: Path) -> None:
        if os.path.lexists(directory / "entries"):
            raise LedgerError(f"{directory}: a ledger; publish to another directory")
        self._directory = directory
        self.url = str(directory)

    def check_conditions(self) -> None:
        """Make the directory; a lock gives what conditions give elsewhere: see `Target`."""
        with self._writing():
            self._directory.mkdir(parents=True, exist_ok=True)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise LedgerError(f"{self.url}: cannot be written: {error}") from error

    def read(self, path: str, largest: int) -> Stored | None:
        """A file: see `Target`."""
        try:
            with (self._directory / path).open("rb") as file:
                data = file.read(largest + 1)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise LedgerError(f"{self.url}/{path}: cannot be read: {error}") from error
        if len(data) > largest:
            raise LedgerError(f"{self.url}/{path}: more than {largest:,} bytes")
        return Stored(data, sha256_hex(data))

    def put(self, path: str, data: bytes | BinaryIO) -> int:
        """Write a file: see `Target`."""
        file = self._directory / path
        with self._writing():
            file.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(data, bytes):
                write_atomic(file, data)
                return len(data)
            temporary = file.with_name(f".{os.urandom(8).hex()}.tmp")
            try:
                with temporary.open("xb") as part:
                    shutil.copyfileobj(data, part, 1 << 20)
                    size = part.tell()
                sync_file(temporary)
                temporary.replace(file)
            finally:
                temporary.unlink(missing_ok=True)
            sync_directory(file.parent)
            return size

    def swap(self, path: str, data: bytes, version: str | None) -> bool:
        """Replace a file under a lock: see `Target`."""
        with self._writing(), locked(self._directory):
            found = self.read(path, LARGEST_NOTE)
            if (found.version if found else None) != version:
                return False
            write_atomic(self._directory / path, data)
        return True

    def list(self, folder: str) -> Iterator[str]:
        """The paths below a folder: see `Target`."""
        root = self._directory / folder
        if root.is_dir():
            for path, _ in walk_files(str(root)):
                yield f"{folder}/{path}"

    def existing(self, folder: str, names: Sequence[str]) -> set[str]:
        """Which of these are there: see `Target`."""
        return {name for name in names if (self._directory / folder / name).is_file()}

    def remove(self, paths: Sequence[str]) -> None:
        """Remove files: see `Target`."""
        with self._writing():
            for path in paths:
                (self._directory / path).unlink(missing_ok=True)
