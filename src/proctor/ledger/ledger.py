"""An open ledger: a signed append-only log, its artifacts, and an index over it.

Log, artifacts and index are stores of their own (log.py, artifacts.py, index.py); this module
combines them. An append first writes the lines durably, then replaces the checkpoint atomically.
Lines after the signed size were never acknowledged and are not part of the ledger. There is one
writer at a time; readers need no lock.
"""

import base64
import contextlib
import importlib
import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Self

import msgspec

from proctor.errors import DamageError, KeyFileError, LedgerError, SignatureError
from proctor.ledger.artifacts import ArtifactStore, FileArtifacts
from proctor.ledger.derived import remove_database
from proctor.ledger.entry import (
    FORMAT,
    LARGEST_ENTRY,
    AnyEntry,
    KeyEntry,
    Withheld,
    decode_line,
    encode_entry,
    now_text,
    submittable,
)
from proctor.ledger.index import Index, open_index
from proctor.ledger.log import FileLog, LogStore, Place, read_line, read_lines
from proctor.ledger.note import (
    Checkpoint,
    Signer,
    handover_message,
    parse_checkpoint,
    parse_verifier_key,
    sign_checkpoint,
)
from proctor.ledger.reader import Remote, SealedTrial
from proctor.ledger.tree import Frontier, Tree, leaf_hash
from proctor.ledger.trial_index import Position, TrialIndex, key_after
from proctor.ledger.upkeep import catch_up, check_leaf

# Bytes. The first entry, which names a key, has about 300; more than this is not a first entry.
_LARGEST_FIRST = 1 << 16

REMOTE = "remote.json"
"""File in the copy of a ledger that a server owns; it names the server."""

type Clock = Callable[[], str]
"""The time of an entry, in the format of entries."""


def begin_log(log: LogStore, key: Signer, origin: str, clock: Clock = now_text) -> None:
    """Append the first entry, which names the key, and sign it.

    Raises:
        LedgerError: there is a ledger already.
        OSError: it cannot be written.
    """
    with log.locked():
        # Under the lock: another process may be creating the same ledger.
        if log.has_checkpoint() or not _clear_unfinished(log):
            raise LedgerError(f"{log.where}: there is a ledger already")
        text = str(key.verifier)
        line = encode_entry(KeyEntry(at=clock(), seq=0, format=FORMAT, origin=origin, key=text))
        log.append(Place(), [line])
        signed = sign_checkpoint(origin, Tree(1, leaf_hash(line)), key.verifier, key.sign)
        log.write_checkpoint(signed.render(), is_new=True)


def _clear_unfinished(log: LogStore) -> bool:
    """Set aside a first entry that no checkpoint signs; False if the log contains more than that.

    A process that is killed between the first entry and the first checkpoint leaves such an entry.
    """
    segments = list(log.stamps())
    if not segments:
        return True
    if segments != [0] or not _is_first(log.read(Place(), _LARGEST_FIRST)):
        return False
    log.set_aside(Place())
    return True


def _is_first(data: bytes) -> bool:
    """Whether the bytes are an entry that names a key, or the start of one."""
    line, newline, rest = data.partition(b"\n")
    if not newline:
        return len(data) < _LARGEST_FIRST and line.startswith(b'{"at":'[: len(line)])
    try:
        return not rest and isinstance(decode_line(line, "the first entry"), KeyEntry)
    except DamageError:
        return False


def check_format(log: LogStore) -> KeyEntry:
    """Read the first entry of a log, which states its format; no signature is checked.

    Raises:
        LedgerError: the ledger has another format.
        DamageError: there is no valid first entry.
    """
    where = f"{log.where}/entries: the first entry"
    first = next(read_lines(log), None)
    if first is None:
        raise DamageError(f"{where} is missing")
    # A newer format may not decode as an entry: look at its name first.
    with contextlib.suppress(msgspec.MsgspecError):
        named = msgspec.json.decode(first.data, type=dict[str, object]).get("format")
        if isinstance(named, str) and named != FORMAT:
            raise LedgerError(
                f"{log.where}: a ledger of format {named!r}; this proctor reads {FORMAT!r}: "
                "a newer one may read it"
            )
    entry = decode_line(first.data, where)
    if not isinstance(entry, KeyEntry):
        raise DamageError(f"{where} is of kind {getattr(entry, 'kind', 'withheld')!r}, not 'key'")
    return entry


def find_remote(directory: Path) -> Remote | None:
    """The server that owns the ledger of which this directory is a copy; None if it is none."""
    if not os.path.lexists(directory / REMOTE):
        return None
    # Imported on use: it loads an HTTP client.
    mirror = importlib.import_module("proctor.ledger.remote.mirror")
    remote: Remote = mirror.connect(directory)
    return remote


def open_artifacts(directory: Path) -> ArtifactStore:
    """The evidence of the ledger in a directory; in a copy, what is missing is fetched."""
    remote = find_remote(directory)
    return FileArtifacts(directory) if remote is None else remote.artifacts


_REFRESH_TRIES = 100


class OpenLedger:
    """An open ledger."""

    def __init__(
        self,
        log: LogStore,
        artifacts: ArtifactStore,
        index: TrialIndex,
        key: Signer | None = None,
        remote: Remote | None = None,
    ) -> None:
        self.log = log
        self.artifacts = artifacts
        self.index = index
        self.key = key
        """Signs the log; in a copy, what this machine submits."""
        self.remote = remote
        self.where = log.where if remote is None else remote.url
        """The name of the ledger in messages."""
        self.patience_sec: float | None = None
        """Seconds to wait for another writer; None: without limit."""
        self.clock: Clock = now_text
        # The stored checkpoint that `_position` belongs to.
        self._signed = b""
        # The stored checkpoint whose signature was last checked against the key.
        self._checked = b""
        self._position = Position(Place(), Frontier(), "")
        self._origin = ""
        # Whether this process appended entries that are not in the index yet.
        self._is_behind = False

    @classmethod
    def create(cls, directory: Path, key: Signer, origin: str, clock: Clock = now_text) -> Self:
        """Create a ledger in a directory; its first entry names the key.

        Raises:
            LedgerError: the directory holds a ledger already, cannot be written, or is on a network
                file system.
        """
        log = FileLog(directory)
        log.check_writable()
        try:
            directory.mkdir(parents=True, exist_ok=True)
            begin_log(log, key, origin, clock)
        except OSError as error:
            raise LedgerError(f"{directory}: no ledger can be made there: {error}") from error
        return cls.open(directory, key=key)

    @classmethod
    def open(cls, directory: Path | str, *, key: Signer | None = None) -> Self:
        """Open the ledger in a directory; with a key, entries can be appended."""
        directory = Path(directory)
        log = FileLog(directory)
        log.check_signed()
        first = check_format(log)
        if key is not None:
            # Checked here because evidence is written before the log is locked.
            log.check_writable()
        remote = find_remote(directory)
        if key is not None and remote is not None:
            remote.check_writable(key)
        index = open_index(directory, first.origin)
        artifacts = FileArtifacts(directory) if remote is None else remote.artifacts
        return cls(log, artifacts, index, key, remote)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the index, and the connection to a server."""
        self.index.close()
        if self.remote is not None:
            self.remote.close()

    def checkpoint(self) -> Checkpoint:
        """The checkpoint that was signed last; its signature is not checked."""
        return parse_checkpoint(self._read_checkpoint(), f"{self.where}/checkpoint")

    def _read_checkpoint(self) -> bytes:
        try:
            return self.log.read_checkpoint()
        except OSError as error:
            raise LedgerError(f"{self.where}: the checkpoint cannot be read: {error}") from error

    def refresh(self) -> Checkpoint:
        """Update the index to the current checkpoint, and return that checkpoint.

        Raises:
            DamageError: the log does not match the checkpoint.
        """
        for _ in range(_REFRESH_TRIES):
            signed = self._read_checkpoint()
            checkpoint = parse_checkpoint(signed, f"{self.where}/checkpoint")
            try:
                position = self._catch_up(checkpoint.tree)
            except DamageError:
                # Another process may have appended between reading the checkpoint and the lines.
                # The damage is real only if the checkpoint is still the same.
                if self._read_checkpoint() == signed:
                    raise
                continue
            if position is not None:
                self._signed, self._position = signed, position
                self._origin, self._is_behind = checkpoint.origin, False
                return checkpoint
        raise LedgerError(f"{self.where}: other processes keep writing to it; try again")

    def _catch_up(self, tree: Tree) -> Position | None:
        try:
            return catch_up(self.index, self.log, tree)
        except sqlite3.OperationalError as error:
            if "readonly" not in str(error) and "disk" not in str(error):
                raise LedgerError(f"{self.where}: the index cannot be written: {error}") from error
            # The disk is full or read-only: use a slower index in memory instead.
            self.index.close()
            self.index = Index.in_memory(check_format(self.log).origin)
            return catch_up(self.index, self.log, tree)
        except sqlite3.DatabaseError as error:
            # It is damaged, and made again.
            path = self.index.path
            self.index.close()
            if path is None:
                raise LedgerError(f"{self.where}: the index cannot be used: {error}") from error
            try:
                remove_database(path)
            except OSError as why:
                raise LedgerError(f"{path}: cannot be removed: {why}") from error
            self.index = Index.open(path, check_format(self.log).origin)
            return catch_up(self.index, self.log, tree)

    def keep_up(self) -> None:
        """Refresh the index if another process, or the server, has appended since."""
        if self.remote is not None:
            self.remote.fetch(self, self.key)
        if self._read_checkpoint() != self._signed:
            self.refresh()

    def find_sealed(self, experiment_id: str, trial_id: str) -> SealedTrial | None:
        """The sealed trial with these ids, or None: see `LedgerReader`."""
        if self._is_behind:
            self.refresh()
        found = self.index.find_trial(experiment_id, trial_id)
        if found is None and self.remote is not None and self.key is not None:
            # Once it is sent, another trial of this name would be refused.
            return self.remote.find_waiting(experiment_id, trial_id)
        return SealedTrial(*found) if found else None

    def line(self, seq: int) -> bytes:
        """The stored line of an entry, without its newline.

        Raises:
            LedgerError: there is no such entry.
            DamageError: the line is not at the indexed position, or differs from what was signed.
        """
        found = self.index.entry(seq)
        if found is None:
            raise LedgerError(f"{self.where}: there is no entry {seq}")
        # The index is derived and may be stale or tampered with: the line is checked on every read.
        line = read_line(self.log, found.place, found.length)
        check_leaf(line, found.leaf, f"{self.where}: entry {seq}")
        return line

    def entry(self, seq: int) -> AnyEntry | Withheld:
        """An entry, or the placeholder of a withheld one."""
        return decode_line(self.line(seq), f"{self.where}: entry {seq}")

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the write lock, with the end of the log known.

        Raises:
            BusyError: another process holds the lock for longer than `patience_sec`.
        """
        if self.remote is not None:
            # The server has the lock, and decides what is appended.
            self.check_key()
            yield
            return
        try:
            with self.log.locked(self.patience_sec):
                self.keep_up()
                self.check_key()
                yield
        except OSError as error:
            raise LedgerError(
                f"{self.where}: cannot be written: {error}; seal again once it can"
            ) from error

    def check_key(self) -> None:
        """Refuse to write without the ledger's key, or after a checkpoint that it did not sign.

        Raises:
            KeyFileError: there is no key, or it is not the ledger's.
            SignatureError: the checkpoint is not signed by the key.
        """
        key = self.key
        if key is None:
            raise KeyFileError(f"{self.where}: opened without a key; it can only be read")
        if self.remote is not None:
            return
        if self._position.key != str(key.verifier):
            raise KeyFileError(
                f"{self.where}: signed by {self._position.key}; the key at hand is "
                f"{key.verifier}: PROCTOR_KEY or --key names another"
            )
        if self._signed == self._checked:
            return
        # Appending to a checkpoint that somebody else wrote would vouch for their entries. Ed25519
        # is deterministic, so that comparing signatures is enough.
        where = f"{self.where}/checkpoint"
        found = parse_checkpoint(self._signed, where)
        own = sign_checkpoint(found.origin, found.tree, key.verifier, key.sign).signatures[0]
        if own not in found.signatures:
            raise SignatureError(
                f"{where}: not signed by {key.verifier}, whose ledger it is; nothing is added to "
                "it: run `proctor ledger verify` to see what is wrong"
            )
        self._checked = self._signed

    def append(self, drafts: Sequence[AnyEntry]) -> list[int]:
        """Append entries, signed and durable on return; returns their positions in the log.

        Call it inside `writing`. `at` and `seq` of the drafts are filled in here.
        """
        if self.remote is not None and self.key is not None:
            for draft in drafts:
                # Here, not at the server: what it would refuse must not wait for it either.
                submittable(draft, self.where)
            self._is_behind = True
            return self.remote.submit(self, drafts, self.key)
        position, at = self._position, self.clock()
        entries = [
            msgspec.structs.replace(draft, at=at, seq=position.frontier.size + number)
            for number, draft in enumerate(drafts)
        ]
        lines = [encode_entry(entry) for entry in entries]
        if (longest := max(map(len, lines), default=0)) > LARGEST_ENTRY:
            raise LedgerError(
                f"an entry of {longest:,} bytes; a line holds {LARGEST_ENTRY:,}: what is so large "
                "belongs into a file of the evidence"
            )
        try:
            places = self.log.append(position.place, lines)
        except FileExistsError:
            # Unsigned lines of a crashed writer: under the lock nobody else can be writing them.
            self.log.set_aside(position.place)
            places = self.log.append(position.place, lines)
        frontier = position.frontier.copy()
        frontier.extend(map(leaf_hash, lines))
        named = position.key
        for entry in entries:
            named = key_after(named, entry)
        if (key := self.key) is None:
            raise KeyFileError(f"{self.where}: opened without a key; it can only be read")
        tree = Tree(frontier.size, frontier.root())
        signed = sign_checkpoint(self._origin, tree, key.verifier, key.sign).render()
        # If this fails, nothing was acknowledged; the next writer reads which checkpoint is there.
        self.log.write_checkpoint(signed)
        self._signed = self._checked = signed
        self._position = Position(places[-1], frontier, named)
        self._is_behind = True
        return [entry.seq for entry in entries]

    def change_key(self, successor: Signer) -> int:
        """Append an entry, signed by the present key, that names the key that signs from then on.

        Raises:
            KeyFileError: the present key is not the ledger's, or the new one was used before.
            LedgerError: it cannot be written; the present key remains.
        """
        if self.remote is not None:
            raise LedgerError(f"{self.where}: its key is changed on the server's machine")
        with self.writing():
            former, text = self.key, str(successor.verifier)
            if former is None or text == self._position.key:
                raise KeyFileError(f"{self.where}: {text} is the key that it has already")
            self.refresh()
            # A stolen old key must not become valid again.
            for seq in self.index.places("key"):
                known = self.entry(seq)
                used = parse_verifier_key(known.key) if isinstance(known, KeyEntry) else None
                if used is not None and used.public == successor.verifier.public:
                    raise KeyFileError(
                        f"{self.where}: {successor.verifier} is the key of entry {seq}, which was "
                        "replaced; a key that was replaced never signs again: choose a new one"
                    )
            frontier = self._position.frontier
            root = frontier.root().hex()
            message = handover_message(self._origin, text, frontier.size, root)
            entry = KeyEntry(
                at="",
                seq=0,
                format=FORMAT,
                origin=self._origin,
                key=text,
                signature=base64.b64encode(former.sign(message)).decode(),
                root=root,
            )
            # The former key signs the entry itself; the checkpoint that includes it is already
            # signed by the new one.
            self.key = successor
            try:
                (seq,) = self.append([entry])
            except BaseException:
                self.key = former
                raise
        return seq
