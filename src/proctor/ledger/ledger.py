"""A ledger: a log that is signed as it grows, its artifacts, and an index over it.

Where these are kept is for log.py, artifacts.py and index.py to say; this is the one place where
they meet. Appending: the lines, durable; then the checkpoint, in one step. Whatever lies behind the
checkpoint was never acknowledged and is not part of the ledger. One writer at a time; readers need
no lock. Nothing here knows what makes a record worth sealing.
"""

import base64
import contextlib
import sqlite3
from collections.abc import Iterator, Sequence
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
from proctor.ledger.reader import SealedTrial
from proctor.ledger.tree import Frontier, Tree, leaf_hash
from proctor.ledger.trial_index import Position, TrialIndex, key_after
from proctor.ledger.upkeep import catch_up, check_leaf

_LARGEST_FIRST = 1 << 16
"""Bytes; the first entry, which names a key, has some three hundred."""


def begin_log(log: LogStore, key: Signer, origin: str) -> None:
    """Append the first entry, which names the key, and sign it.

    Raises:
        LedgerError: there is a ledger already.
        OSError: it cannot be written.
    """
    with log.locked():
        if log.has_checkpoint() or not _clear_unfinished(log):
            raise LedgerError(f"{log.where}: there is a ledger already")
        text = str(key.verifier)
        line = encode_entry(KeyEntry(at=now_text(), seq=0, format=FORMAT, origin=origin, key=text))
        log.append(Place(), [line])
        signed = sign_checkpoint(origin, Tree(1, leaf_hash(line)), key.verifier, key.sign)
        log.write_checkpoint(signed.render(), is_new=True)


def _clear_unfinished(log: LogStore) -> bool:
    """Put aside a first entry that no checkpoint signs; False where there is more than that.

    A kill between the first entry and the first checkpoint leaves it, and nobody was told of a
    ledger.
    """
    segments = list(log.stamps())
    if not segments:
        return True
    if segments != [0] or not _is_first(log.read(Place(), _LARGEST_FIRST)):
        return False
    log.set_aside(Place())
    return True


def _is_first(data: bytes) -> bool:
    """Whether this is the entry that names a key, or the beginning of one."""
    line, newline, rest = data.partition(b"\n")
    if not newline:
        return len(data) < _LARGEST_FIRST and line.startswith(b'{"at":'[: len(line)])
    try:
        return not rest and isinstance(decode_line(line, "the first entry"), KeyEntry)
    except DamageError:
        return False


def check_format(log: LogStore) -> KeyEntry:
    """The first entry of a log, which says what format it has; no signature is checked.

    Raises:
        LedgerError: it is of another format.
        DamageError: there is no such entry.
    """
    where = f"{log.where}/entries: the first entry"
    first = next(read_lines(log), None)
    if first is None:
        raise DamageError(f"{where} is not there")
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


_TRIES = 100


class OpenLedger:
    """An open ledger."""

    def __init__(
        self, log: LogStore, artifacts: ArtifactStore, index: TrialIndex, key: Signer | None = None
    ) -> None:
        self.log = log
        self.artifacts = artifacts
        self.index = index
        self.key = key
        self.where = log.where
        """How messages name it."""
        self.patience_sec: float | None = None
        """Seconds to wait for another writer; None: for as long as it takes."""
        self._signed = b""
        """The checkpoint that `_position` belongs to, as it is stored."""
        self._vouched = b""
        """The checkpoint whose signature was seen to be the key's."""
        self._position = Position(Place(), Frontier(), "")
        self._origin = ""
        self._is_behind = False
        """Whether something was appended here since the index was last brought up."""

    @classmethod
    def create(cls, directory: Path, key: Signer, origin: str) -> Self:
        """A new ledger in a directory, its first entry naming the key.

        Raises:
            LedgerError: something is there, or it cannot be written, or is on a network.
        """
        log = FileLog(directory)
        log.check_writable()
        try:
            directory.mkdir(parents=True, exist_ok=True)
            begin_log(log, key, origin)
        except OSError as error:
            raise LedgerError(f"{directory}: no ledger can be made there: {error}") from error
        return cls.open(directory, key=key)

    @classmethod
    def open(cls, directory: Path | str, *, key: Signer | None = None) -> Self:
        """The ledger in a directory; with a key it can be appended to.

        Raises:
            LedgerError: there is none, or one of a newer version; or there is a key, and it is on a
                network file system.
            NoteError: its checkpoint cannot be read.
        """
        directory = Path(directory)
        log = FileLog(directory)
        log.check_signed()
        first = check_format(log)
        if key is not None:
            # Before anything is written: evidence is put before the log is locked.
            log.check_writable()
        return cls(log, FileArtifacts(directory), open_index(directory, first.origin), key)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the index."""
        self.index.close()

    def checkpoint(self) -> Checkpoint:
        """What the log was when it was last signed; no signature is checked."""
        return parse_checkpoint(self._read_checkpoint(), f"{self.where}/checkpoint")

    def _read_checkpoint(self) -> bytes:
        try:
            return self.log.read_checkpoint()
        except OSError as error:
            raise LedgerError(f"{self.where}: the checkpoint cannot be read: {error}") from error

    def refresh(self) -> Checkpoint:
        """Bring the index up to the checkpoint, and give it.

        Raises:
            DamageError: the log does not give what the checkpoint says.
        """
        for _ in range(_TRIES):
            signed = self._read_checkpoint()
            checkpoint = parse_checkpoint(signed, f"{self.where}/checkpoint")
            try:
                position = self._catch_up(checkpoint.tree)
            except DamageError:
                # Somebody appended between two looks, and what was read is of two moments.
                if self._read_checkpoint() == signed:
                    raise
                continue
            if position is not None:
                self._signed, self._position = signed, position
                self._origin, self._is_behind = checkpoint.origin, False
                return checkpoint
        raise LedgerError(f"{self.where}: others write to it without a pause; try again")

    def _catch_up(self, tree: Tree) -> Position | None:
        try:
            return catch_up(self.index, self.log, tree)
        except sqlite3.OperationalError as error:
            if "readonly" not in str(error) and "disk" not in str(error):
                raise LedgerError(f"{self.where}: the index cannot be written: {error}") from error
            # No room or no right to write it: one in memory does, and takes longer.
            self.index.close()
            self.index = Index.in_memory(check_format(self.log).origin)
            return catch_up(self.index, self.log, tree)
        except sqlite3.DatabaseError as error:
            self._replace_index(error)
            return catch_up(self.index, self.log, tree)

    def _replace_index(self, error: sqlite3.DatabaseError) -> None:
        """Delete an index that turned out to be damaged; it is made again."""
        path = self.index.path
        self.index.close()
        if path is None:
            raise LedgerError(f"{self.where}: the index cannot be used: {error}") from error
        try:
            remove_database(path)
        except OSError as why:
            raise LedgerError(f"{path}: cannot be removed: {why}") from error
        self.index = Index.open(path, check_format(self.log).origin)

    def keep_up(self) -> None:
        """See where the log ends, if somebody else appended to it."""
        if self._read_checkpoint() != self._signed:
            self.refresh()

    def find_sealed(self, experiment_id: str, trial_id: str) -> SealedTrial | None:
        """The trial of this name, if it is sealed; call `keep_up` or `refresh` before."""
        if self._is_behind:
            self.refresh()
        found = self.index.find_trial(experiment_id, trial_id)
        return SealedTrial(*found) if found else None

    def line(self, seq: int) -> bytes:
        """The line of an entry, as it is stored.

        Raises:
            LedgerError: there is no such entry.
            DamageError: its line is not where the index saw it, or not what was signed.
        """
        found = self.index.entry(seq)
        if found is None:
            raise LedgerError(f"{self.where}: there is no entry {seq}")
        line = read_line(self.log, found.place, found.length)
        check_leaf(line, found.leaf, f"{self.where}: entry {seq}")
        return line

    def entry(self, seq: int) -> AnyEntry | Withheld:
        """An entry, or what is left of one that was withheld."""
        return decode_line(self.line(seq), f"{self.where}: entry {seq}")

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Be the only writer, who knows where the log ends.

        Raises:
            BusyError: another one writes, for longer than this one has patience.
        """
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
        """Refuse to write with no key, with another's, or on top of what it did not sign.

        Raises:
            KeyFileError: the key at hand is not the ledger's.
            SignatureError: the checkpoint is not the key's.
        """
        key = self.key
        if key is None:
            raise KeyFileError(f"{self.where}: opened without a key; it can only be read")
        if self._position.key != str(key.verifier):
            raise KeyFileError(
                f"{self.where}: signed by {self._position.key}; the key at hand is "
                f"{key.verifier}: PROCTOR_KEY or --key names another"
            )
        if self._signed == self._vouched:
            return
        # To sign on top of what somebody else put there would be to vouch for it. Ed25519 signs
        # the same alike every time.
        where = f"{self.where}/checkpoint"
        found = parse_checkpoint(self._signed, where)
        own = sign_checkpoint(found.origin, found.tree, key.verifier, key.sign).signatures[0]
        if own not in found.signatures:
            raise SignatureError(
                f"{where}: not signed by {key.verifier}, whose ledger it is; nothing is added to "
                "it: `proctor ledger verify` says what is wrong"
            )
        self._vouched = self._signed

    def append(self, drafts: Sequence[AnyEntry]) -> list[int]:
        """Append entries, signed and on the disk when this returns; their places in the log.

        Call it inside `writing`. `at` and `seq` of the drafts are filled in here.

        Raises:
            LedgerError: an entry is too large.
            OSError: they cannot be written; none of them is there then.
        """
        position, at = self._position, now_text()
        entries = [
            msgspec.structs.replace(draft, at=at, seq=position.frontier.size + number)
            for number, draft in enumerate(drafts)
        ]
        lines = [_encode(entry) for entry in entries]
        places = self._append_lines(position.place, lines)
        frontier = position.frontier.copy()
        frontier.extend(map(leaf_hash, lines))
        key = position.key
        for entry in entries:
            key = key_after(key, entry)
        # Where this fails nobody was told, and the next writer looks which checkpoint is there.
        self._sign(frontier)
        self._position = Position(places[-1], frontier, key)
        self._is_behind = True
        return [entry.seq for entry in entries]

    def change_key(self, heir: Signer) -> int:
        """Announce the key that signs from here on, in an entry that the present one signs.

        Raises:
            KeyFileError: the key at hand is not the ledger's, or the new one was before.
            LedgerError: it cannot be written; the present key stays.
        """
        with self.writing():
            former, text = self.key, str(heir.verifier)
            if former is None or text == self._position.key:
                raise KeyFileError(f"{self.where}: {text} is the key that it has already")
            self._check_heir(heir)
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
            self.key = heir
            try:
                (seq,) = self.append([entry])
            except BaseException:
                self.key = former
                raise
        return seq

    def _check_heir(self, heir: Signer) -> None:
        """Refuse a key that signed this ledger before."""
        self.refresh()
        for seq in self.index.places("key"):
            entry = self.entry(seq)
            text = entry.key if isinstance(entry, KeyEntry) else ""
            if parse_verifier_key(text).public == heir.verifier.public:
                raise KeyFileError(
                    f"{self.where}: {heir.verifier} is the key of entry {seq}, which was "
                    "replaced; a key that was replaced never signs again: choose a new one"
                )

    def _append_lines(self, place: Place, lines: Sequence[bytes]) -> list[Place]:
        try:
            return self.log.append(place, lines)
        except FileExistsError:
            self.log.set_aside(place)
            return self.log.append(place, lines)

    def _sign(self, frontier: Frontier) -> None:
        key = self.key
        if key is None:
            raise KeyFileError(f"{self.where}: opened without a key; it can only be read")
        tree = Tree(frontier.size, frontier.root())
        signed = sign_checkpoint(self._origin, tree, key.verifier, key.sign).render()
        self.log.write_checkpoint(signed)
        self._signed = self._vouched = signed


def _encode(entry: AnyEntry) -> bytes:
    line = encode_entry(entry)
    if len(line) > LARGEST_ENTRY:
        raise LedgerError(
            f"an entry of {len(line):,} bytes; a line holds {LARGEST_ENTRY:,}: what is so large "
            "belongs into a file of the evidence"
        )
    return line
