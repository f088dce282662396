"""The copy of a ledger that a server owns, or that is published.

    $XDG_STATE_HOME/proctor/ledgers/DIGEST-OF-THE-ADDRESS/
        remote.json           the address of the server, or of what is published
        checkpoint, entries/  as in any ledger: fetched, and verified before they count
        artifacts/            evidence that was read or made here
        spool/                what waits to be sent
        fetched               empty; changed when the copy was fetched last

Every new line is hashed into the tree of the copy, which must be the tree that the server signed.
The last checkpoint seen of each origin is remembered apart from the copy (memory.py), so that a
server that rewrites, forks, truncates or rolls back its history is caught, under any address and
with a new copy too. A copy is read like any ledger; what is appended to it goes to the server.
"""

import contextlib
import importlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

import msgspec

from proctor.digest import sha256_hex
from proctor.errors import DamageError, ForkError, LedgerError
from proctor.files import replace_durably
from proctor.ledger.entry import (
    AnyEntry,
    KeyEntry,
    TrialEntry,
    Withheld,
    decode_line,
    encode_entry,
    evidence_digest,
    record_digest,
)
from proctor.ledger.ledger import REMOTE
from proctor.ledger.log import FileLog, Place
from proctor.ledger.machines import sign_entries
from proctor.ledger.memory import Memory, Seen, default_memory_path
from proctor.ledger.note import (
    Checkpoint,
    Signer,
    VerifierKey,
    parse_checkpoint,
    parse_verifier_key,
)
from proctor.ledger.place import open_reader
from proctor.ledger.reader import WAITING, LedgerReader, SealedTrial
from proctor.ledger.remote.artifacts import FetchedArtifacts
from proctor.ledger.remote.client import (
    S3,
    Acknowledged,
    LedgerClient,
    PublishedError,
    Source,
    check_bucket_url,
    check_url,
    find_token,
)
from proctor.ledger.remote.connections import UnreachableError
from proctor.ledger.remote.outbox import MachineName, Outbox, Promise, Promises, Spool, split
from proctor.ledger.signature import check_signature, take_key
from proctor.ledger.tiles import TILE
from proctor.ledger.tree import Frontier
from proctor.ledger.trial_index import IndexedEntry
from proctor.ledger.upkeep import leaf_of
from proctor.ledger.withhold import list_unnamed_evidence, withheld_digests

FORMAT = "proctor-remote-1"
# Bytes of lines that are appended to the copy at a time.
_BATCH = 4 << 20
# Seconds for which a writer's copy is fresh: the server itself looks for conflicts.
_FRESH_SEC = 30.0
_TRIES = 3


class _File(msgspec.Struct, frozen=True, kw_only=True):
    format: str
    url: str


def mirror_path(url: str, env: Mapping[str, str]) -> Path:
    """The directory of the copy of a server's ledger."""
    state = default_memory_path(env).parent
    return state / "ledgers" / sha256_hex(url.encode())[:32]


def open_mirror(url: str, env: Mapping[str, str], warn: Callable[[str], None]) -> Path:
    """Fetch the ledger of a server; returns the directory of the copy.

    A server that cannot be reached is a warning if there is a copy.
    """
    url = _check_address(url)
    directory = mirror_path(url, env)
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not os.path.lexists(directory / REMOTE):
            data = msgspec.json.encode(_File(format=FORMAT, url=url))
            replace_durably(str(directory / REMOTE), data + b"\n")
    except OSError as error:
        raise LedgerError(f"{directory}: a copy of {url} cannot be kept there: {error}") from error
    if not FileLog(directory).has_checkpoint():
        with contextlib.closing(connect(directory, env)) as remote:
            remote.begin()
    with (
        open_reader(directory) as ledger,
        contextlib.closing(connect(directory, env)) as remote,
    ):
        ledger.refresh()
        remote.fetch(ledger, is_forced=True)
        if remote.problem is not None:
            warn(f"{remote.problem}; what follows is the copy that was fetched last")
        if waiting := len(remote.spool):
            entries = "1 entry waits" if waiting == 1 else f"{waiting:,} entries wait"
            warn(f"{url}: {entries} to be sent: proctor ledger seal --ledger {url}")
    return directory


def connect(directory: Path, env: Mapping[str, str] = os.environ) -> "Mirror":
    """The server of a copy.

    Raises:
        LedgerError: the file that names it is invalid.
    """
    try:
        found = msgspec.json.decode((directory / REMOTE).read_bytes(), type=_File)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise LedgerError(f"{directory / REMOTE}: cannot be read: {error}") from error
    if found.format != FORMAT:
        raise LedgerError(f"{directory / REMOTE}: of format {found.format[:40]!r}, not {FORMAT}")
    url = _check_address(found.url)
    client: Source
    if url.startswith(S3):
        client = load_bucket().BucketClient(url, env)
    else:
        client = LedgerClient(url, find_token(url, env))
    return Mirror(url, directory, client, Memory(default_memory_path(env)))


def _check_address(url: str) -> str:
    return check_bucket_url(url) if url.startswith(S3) else check_url(url)


def load_bucket() -> ModuleType:
    """The module for buckets.

    Raises:
        LedgerError: what it needs is not installed.
    """
    try:
        # Imported on use: obstore comes with an extra.
        return importlib.import_module("proctor.ledger.remote.bucket")
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("proctor"):
            raise
        raise LedgerError(
            f"s3:// needs {error.name}, which is not installed: pip install 'proctor[s3]'"
        ) from error


class _SeenMeanwhileError(LedgerError):
    """Another command stored another checkpoint of the ledger while it was fetched."""


@dataclass(slots=True)
class _Copying:
    """What is known while new lines are added to the copy."""

    frontier: Frontier
    place: Place
    keys: list[VerifierKey]
    seen: Checkpoint | None
    """The last checkpoint seen of this origin."""
    waiting: list[bytes] = field(default_factory=list)
    n_bytes: int = 0


class Mirror:
    """A server, and the copy of its ledger."""

    def __init__(self, url: str, directory: Path, client: Source, memory: Memory) -> None:
        self.url = url
        self.client = client
        self.spool = Spool(directory / "spool")
        self.artifacts = FetchedArtifacts(directory, client)
        self.problem: str | None = None
        """Why the server could not be reached; None if it was."""
        self._outbox = Outbox(url, self.spool, self.artifacts, self._promise)
        self.refused = self._outbox.refused
        """Sentences about waiting entries that the server refused."""
        self._log = FileLog(directory)
        self._memory = memory
        self._machine: str | None = None
        # What the server acknowledged and the copy did not show yet.
        self._promises = Promises(directory / "promises.jsonl")
        self._names = MachineName(directory / "machine")
        self._fetched = directory / "fetched"
        # Withheld lines that this process has asked for: the owner may still have some of them.
        self._asked: set[int] = set()
        # When this process last tried to fetch.
        self._tried: float | None = None

    def close(self) -> None:
        """End the connection."""
        self.client.close()

    def check_writable(self, key: Signer) -> None:
        """Refuse a ledger that takes nothing from this machine: see `Remote`."""
        try:
            self._enrol(key)
        except UnreachableError as error:
            self.problem = str(error)

    @property
    def _server(self) -> LedgerClient:
        if not isinstance(self.client, LedgerClient):
            raise PublishedError(self.url)
        return self.client

    # Reading

    def begin(self) -> None:
        """Fetch the ledger for the first time.

        Raises:
            LedgerError: the server cannot be reached.
        """
        try:
            with self._log.locked():
                if not self._log.has_checkpoint():
                    self._copy(Frontier(), Place(), None)
        except UnreachableError as error:
            raise LedgerError(
                f"{error}; there is no copy of this ledger yet, so that nothing can be shown or "
                "sealed without the server"
            ) from error

    def fetch(
        self, ledger: LedgerReader, key: Signer | None = None, *, is_forced: bool = False
    ) -> None:
        """Send what waits, and update the copy: see `Remote`.

        Not if that was done, or tried in vain, a moment ago.
        """
        sender = key if self.spool else None
        is_fresh = not is_forced and self._is_fresh()
        if is_fresh and (sender is None or self.problem is not None):
            return
        self.problem, self._tried = None, time.monotonic()
        try:
            if sender is not None:
                # First, so that the copy shows what is sealed of it.
                self._enrol(sender)
                self.send_waiting()
            # Read first: what another process is promised later need not be in this checkpoint.
            promised = self._promises.read()
            with self._log.locked():
                ledger.refresh()
                position = ledger.index.position()
                self._copy(position.frontier.copy(), position.place, ledger)
            ledger.refresh()
            self._check_promises(ledger, promised)
            self._remove_withheld(ledger)
            with contextlib.suppress(OSError):
                self._fetched.touch(mode=0o600)
        except UnreachableError as error:
            self.problem = str(error)

    def _is_fresh(self) -> bool:
        """Whether this process tried to fetch a moment ago, or another one has fetched."""
        if self._tried is not None and time.monotonic() - self._tried < _FRESH_SEC:
            return True
        try:
            # Negative if the clock was set back.
            return 0 <= time.time() - self._fetched.stat().st_mtime < _FRESH_SEC
        except OSError:
            return False

    def _copy(
        self, frontier: Frontier, place: Place, ledger: LedgerReader | None, tries: int = _TRIES
    ) -> None:
        """Add the new lines of the server."""
        data = self.client.checkpoint()
        served = parse_checkpoint(data, f"{self.url}/checkpoint")
        try:
            self._copy_tree(served, frontier.copy(), place, ledger)
        except _SeenMeanwhileError:
            if tries == 1:
                raise
        except DamageError:
            # Partial bundles disappear when a larger tree is published.
            if tries == 1 or self.client.checkpoint() == data:
                raise
        else:
            return
        self._copy(frontier, place, ledger, tries - 1)

    def _copy_tree(
        self, served: Checkpoint, frontier: Frontier, place: Place, ledger: LedgerReader | None
    ) -> None:
        seen = self._memory.find(served.origin)
        if ledger is not None and served.origin != ledger.checkpoint().origin:
            raise ForkError(
                f"{self.url}: it now shows another ledger, {served.origin!r}; the copy is of "
                f"{ledger.checkpoint().origin!r}"
            )
        keys = list(seen.keys) if seen else []
        if ledger is not None and not keys:
            keys = [parse_verifier_key(ledger.index.position().key)]
        if frontier.size == 0:
            keys = []
        copying = _Copying(frontier, place, keys, seen.checkpoint if seen else None)
        self._check_size(served, copying)
        start, known = place, frontier.size
        try:
            try:
                for line in self.client.lines(copying.frontier.size, served.tree.size):
                    self._take(line, served, copying)
                self._flush(copying)
            except OSError as error:
                where = self._log.where
                raise LedgerError(f"{where}: the copy cannot be written: {error}") from error
            self._check_tree(served, copying, seen)
            self._remember(served, copying, seen, is_first=known == 0)
        except (DamageError, LedgerError):
            # Lines after the signed size are not part of the copy: set them aside.
            with contextlib.suppress(OSError):
                self._log.set_aside(start)
            raise
        data = served.render()
        if not self._log.has_checkpoint():
            self._log.write_checkpoint(data, is_new=True)
        elif self._log.read_checkpoint() != data:
            self._log.write_checkpoint(data)

    def _remember(
        self, served: Checkpoint, copying: _Copying, seen: Seen | None, *, is_first: bool
    ) -> None:
        """Store the checkpoint, unless another command has seen another one meanwhile.

        Only here is the memory locked, which all ledgers share: fetching takes as long as the
        server likes.
        """
        with self._memory.locked():
            if self._memory.find(served.origin) != seen:
                raise _SeenMeanwhileError(
                    f"{self.url}: other commands keep fetching the same ledger; try again"
                )
            if seen is None or seen.checkpoint.tree.size < served.tree.size or is_first:
                self._memory.keep(
                    Seen(
                        checkpoint=served,
                        keys=tuple(copying.keys),
                    )
                )

    def _check_size(self, served: Checkpoint, copying: _Copying) -> None:
        """Refuse a history that is shorter than what was seen, or differs at the same size."""
        known = Checkpoint(served.origin, served.tree)
        size = copying.frontier.size
        if copying.seen is not None and copying.seen.tree.size > size:
            known, size = copying.seen, copying.seen.tree.size
        if served.tree.size < size:
            self._refuse(
                served,
                copying,
                f"it shows {served.tree.size:,} entries; {size:,} were signed before: its history "
                "was cut off, or an older state was restored",
            )
        if served.tree.size == size and size:
            root = known.tree.root if known is copying.seen else copying.frontier.root()
            if served.tree.root != root:
                self._refuse(served, copying, f"two histories of {size:,} entries are signed")

    def _take(self, line: bytes, served: Checkpoint, copying: _Copying) -> None:
        frontier, where = copying.frontier, f"{self.url}: entry {copying.frontier.size}"
        entry = decode_line(line, where)
        if isinstance(entry, KeyEntry):
            fault = take_key(copying.keys, (entry, frontier.root()))
            if fault or entry.origin != served.origin:
                raise DamageError(f"{where} {fault or 'names a key of another ledger'}")
        frontier.append(leaf_of(line, entry))
        copying.waiting.append(line)
        copying.n_bytes += len(line)
        seen = copying.seen
        is_there = seen is not None and frontier.size == seen.tree.size
        if seen is not None and is_there and frontier.root() != seen.tree.root:
            self._refuse(served, copying, f"the first {seen.tree.size:,} entries were rewritten")
        if copying.n_bytes > _BATCH:
            self._flush(copying)

    def _flush(self, copying: _Copying) -> None:
        if not copying.waiting:
            return
        try:
            places = self._log.append(copying.place, copying.waiting)
        except FileExistsError:
            # Lines of an earlier attempt that was interrupted.
            self._log.set_aside(copying.place)
            places = self._log.append(copying.place, copying.waiting)
        copying.place, copying.n_bytes = places[-1], 0
        copying.waiting.clear()

    def _check_tree(self, served: Checkpoint, copying: _Copying, seen: Seen | None) -> None:
        where = f"{self.url}/checkpoint"
        if copying.frontier.root() != served.tree.root:
            raise DamageError(
                f"{where}: the {served.tree.size:,} entries that the server sends are not the ones "
                "that it signed, or do not extend the copy"
            )
        keys = copying.keys
        if not keys:
            raise DamageError(f"{where}: no entry names the ledger's key")
        if seen is not None and seen.keys[-1] not in keys:
            raise ForkError(
                f"{where}: {served.origin!r} was signed by {seen.keys[-1]} before, which is no key "
                "of this ledger"
            )
        check_signature(served, keys[-1], where)

    def _refuse(self, served: Checkpoint, copying: _Copying, why: str) -> None:
        kept = ""
        if copying.seen is not None and copying.keys:
            # Evidence only if the owner really signed both.
            with contextlib.suppress(DamageError):
                check_signature(served, copying.keys[-1], self.url)
                paths = self._memory.keep_evidence(copying.seen, served)
                kept = f". Both signed checkpoints are kept: {paths[0]} and {paths[1]}"
        raise ForkError(f"{self.url}: {why}{kept}")

    def _remove_withheld(self, ledger: LedgerReader) -> None:
        """Remove what the owner has withheld, also what an earlier command could not remove.

        Lines come first: evidence stays for as long as the line of a trial names it.
        """
        try:
            self._replace_withheld(ledger)
            here = withheld_digests(ledger)
            here = {sha256 for sha256 in here if self.artifacts.stored_size(sha256) is not None}
            if here:
                # What waits is not in the log yet.
                here -= self.spool.list_evidence()
            for sha256 in list_unnamed_evidence(ledger, here) if here else ():
                self.artifacts.remove(sha256)
        except OSError as error:
            raise LedgerError(
                f"{self._log.where}: what the owner has withheld cannot be removed: {error}"
            ) from error

    def _replace_withheld(self, ledger: LedgerReader) -> None:
        """Replace lines of the copy that the server no longer has."""
        named = (line for line in ledger.index.withheld_lines() if line.kind)
        lines = {line.seq: line for line in named if line.seq not in self._asked}
        size, changed = ledger.checkpoint().tree.size, False
        for number in sorted({seq // TILE for seq in lines}):
            begin, end = number * TILE, min(size, (number + 1) * TILE)
            served = enumerate(self.client.lines(begin, end), start=begin)
            placeholders = [
                (lines[seq].place, line)
                for seq, line in served
                if seq in lines and _is_placeholder(line, lines[seq])
            ]
            with self._log.locked():
                for place, line in placeholders:
                    self._log.overwrite(place, line)
                    changed = True
        self._asked |= lines.keys()
        if changed:
            ledger.refresh()

    # Writing

    def find_waiting(self, experiment_id: str, trial_id: str) -> SealedTrial | None:
        """The trial with these ids that waits for the server: see `Remote`."""
        return self.spool.find_trial(experiment_id, trial_id)

    def submit(self, ledger: LedgerReader, drafts: Sequence[AnyEntry], key: Signer) -> list[int]:
        """Submit entries, signed by this machine's key: see `Remote`."""
        origin = ledger.checkpoint().origin
        is_reached = True
        try:
            name = self._enrol(key)
            self.send_waiting()
        except UnreachableError as error:
            self.problem, is_reached = str(error), False
            name = self._machine or self._names.find(key)
        signed = [encode_entry(entry) for entry in sign_entries(drafts, origin, name, key)]
        found: list[int] = []
        for some, lines in split(drafts, signed):
            places = None
            if is_reached:
                try:
                    places = self._outbox.send(self._server, some, lines)
                except UnreachableError as error:
                    self.problem = str(error)
            if places is None:
                # What comes later must not be sealed before it.
                self._outbox.keep(some, lines)
                is_reached, places = False, [WAITING] * len(some)
            found += places
        return found

    def _promise(self, drafts: Sequence[AnyEntry], places: Sequence[Acknowledged]) -> None:
        """Remember what the server acknowledged: the next fetch must show it."""
        pairs = zip(drafts, places, strict=True)
        with self._log.locked():
            self._promises.add(
                (place.seq, _digest(draft) if place.is_new else _digest_same(draft))
                for draft, place in pairs
            )

    def send_waiting(self) -> int:
        """Send what waits; returns the number of entries sent."""
        return self._outbox.send_waiting(self._server) if self.spool else 0

    def _enrol(self, key: Signer) -> str:
        if self._machine is None:
            server = self._server
            origin = parse_checkpoint(self._log.read_checkpoint(), self._log.where).origin
            self._machine = server.enrol(self._names.find(key), key, origin)
            self._names.keep(key, self._machine)
            self.problem = None
        return self._machine

    def _check_promises(self, ledger: LedgerReader, promised: set[Promise]) -> None:
        """Check that entries which the server acknowledged are where it said."""
        if not promised:
            return
        size = ledger.refresh().tree.size
        for seq, digest in sorted(promised):
            if seq >= size:
                raise ForkError(
                    f"{self.url}: the server acknowledged entry {seq}, and shows {size:,} entries"
                )
            entry = ledger.entry(seq)
            if isinstance(entry, Withheld):
                continue
            if digest not in (_digest(entry), _digest_same(entry)):
                raise ForkError(
                    f"{self.url}: the server acknowledged entry {seq} with other content than it "
                    "shows there"
                )
        with self._log.locked():
            self._promises.forget(promised)


def _is_placeholder(line: bytes, known: IndexedEntry) -> bool:
    entry = decode_line(line, f"entry {known.seq} of the server")
    is_same = isinstance(entry, Withheld) and leaf_of(line, entry) == known.leaf
    return is_same and len(line) == known.length


def _digest(entry: AnyEntry) -> str:
    draft = msgspec.structs.replace(entry, at="", seq=0, signed=msgspec.UNSET)
    return sha256_hex(encode_entry(draft))


def _digest_same(entry: AnyEntry) -> str:
    """A digest of what a server compares before it says that an entry was there already."""
    if isinstance(entry, TrialEntry):
        return sha256_hex(f"{record_digest(entry)} {evidence_digest(entry)}".encode())
    return _digest(entry)
