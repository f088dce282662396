"""What a machine sends to a server: evidence first, then the entries that name it.

Entries wait for a server which could not be reached, in the order they were made:

    spool/NUMBER-DIGEST.jsonl      signed entries, one batch a file; their evidence is in the copy
    spool/lock                     held by the process that sends them
    spool/refused/…                entries that the server refused, each batch with the reasons

A batch is durable before `add` returns. The same batch is stored once; the server accepts what it
has already, so that nothing is sealed twice. What waits is sent in order, by one process at a time.
Evidence leaves this machine's copy once the server has it. What a server acknowledged is kept as
well, until it was seen in the log.
"""

import contextlib
import os
import re
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from proctor.digest import sha256_hex
from proctor.errors import ConflictError, LedgerError, MissingArtifactError, NotSealedError
from proctor.files import replace_durably, replace_file, sync_directory
from proctor.ledger.entry import (
    LARGEST_ENTRY,
    AnyEntry,
    TrialEntry,
    Withheld,
    decode_line,
    evidence_digest,
)
from proctor.ledger.lock import locked
from proctor.ledger.note import Signer
from proctor.ledger.reader import WAITING, SealedTrial
from proctor.ledger.remote.artifacts import FetchedArtifacts
from proctor.ledger.remote.client import PIECE, Acknowledged, LedgerClient, pack_artifact
from proctor.ledger.row import read_row

_DIGITS = 20


class Spool:
    """The waiting batches of one server."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        # The trials of each batch, by experiment and name; a batch never changes.
        self._trials: dict[str, dict[tuple[str, str], SealedTrial]] = {}

    def find_trial(self, experiment_id: str, trial_id: str) -> SealedTrial | None:
        """The trial with these ids in a batch, or None."""
        wanted = (experiment_id, trial_id)
        return next((each[wanted] for each in self._load() if wanted in each), None)

    def list_evidence(self) -> set[str]:
        """The digests of the evidence that waits with its trials."""
        trials = [trial for each in self._load() for trial in each.values()]
        return {file.sha256 for trial in trials for file in trial.waiting}

    def _load(self) -> Iterable[Mapping[tuple[str, str], SealedTrial]]:
        names = self._names()
        self._trials = {name: self._trials[name] for name in names if name in self._trials}
        for name in names:
            if name in self._trials:
                continue
            trials = self._trials[name] = {}
            for line in self._read(name) or ():
                entry = decode_line(line, f"{self._directory / name}: an entry")
                if isinstance(entry, TrialEntry):
                    subject, evidence = read_row(entry).subject, evidence_digest(entry)
                    trials[subject.experiment_id, subject.trial_id] = SealedTrial(
                        WAITING, subject.record, evidence, entry.evidence
                    )
        return self._trials.values()

    def add(self, lines: Sequence[bytes]) -> None:
        """Store a batch.

        Raises:
            LedgerError: it cannot be written.
        """
        data = b"\n".join(lines) + b"\n"
        digest = sha256_hex(data)[:32]
        names = self._names()
        if any(name.endswith(f"-{digest}.jsonl") for name in names):
            return
        number = int(names[-1][:_DIGITS]) + 1 if names else 0
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            replace_durably(str(self._directory / f"{number:0{_DIGITS}}-{digest}.jsonl"), data)
        except OSError as error:
            raise LedgerError(
                f"{self._directory}: what the server should get cannot be stored: {error}"
            ) from error

    def __len__(self) -> int:
        return sum(1 for batch in self for _ in batch[1])

    def __bool__(self) -> bool:
        return bool(self._names())

    def __iter__(self) -> Iterator[tuple[str, list[bytes]]]:
        """The name and the lines of each batch, in order."""
        for name in self._names():
            if (lines := self._read(name)) is not None:
                yield name, lines

    def _read(self, name: str) -> list[bytes] | None:
        """The lines of a batch; None if another process has sent it since."""
        try:
            return (self._directory / name).read_bytes().splitlines()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise LedgerError(f"{self._directory / name}: cannot be read: {error}") from error

    @contextlib.contextmanager
    def sending(self) -> Iterator[None]:
        """Send alone: another process that sends is waited for, because the order is kept.

        Raises:
            LedgerError: the batches cannot be locked.
        """
        with contextlib.ExitStack() as held:
            try:
                held.enter_context(locked(self._directory))
            except OSError as error:
                raise LedgerError(f"{self._directory}: cannot be locked: {error}") from error
            yield

    def remove(self, name: str) -> None:
        """Remove a batch that was sent; call it inside `sending`.

        Raises:
            LedgerError: it cannot be removed.
        """
        try:
            (self._directory / name).unlink(missing_ok=True)
            sync_directory(self._directory)
        except OSError as error:
            raise LedgerError(f"{self._directory / name}: cannot be removed: {error}") from error

    def refuse(self, name: str, refused: Mapping[bytes, str]) -> Path:
        """Keep the lines of a batch that the server refuses, with the reasons; returns where.

        Call it inside `sending`.

        Raises:
            LedgerError: they cannot be stored.
        """
        kept = self._directory / "refused" / name
        try:
            kept.parent.mkdir(mode=0o700, exist_ok=True)
            reasons = "".join(f"{why}\n" for why in dict.fromkeys(refused.values()))
            replace_durably(f"{kept}.why", reasons.encode())
            replace_durably(str(kept), b"".join(line + b"\n" for line in refused))
        except OSError as error:
            raise LedgerError(f"{kept}: cannot be stored: {error}") from error
        self.remove(name)
        return kept

    def _names(self) -> list[str]:
        try:
            found = sorted(os.listdir(self._directory))  # noqa: PTH208 - names only
        except FileNotFoundError:
            return []
        return [name for name in found if name.endswith(".jsonl") and name[:_DIGITS].isdecimal()]


type Promise = tuple[int, str]
"""A position that a server acknowledged, and a digest of what must be there.

One position may be promised for several entries, of which a server that lies keeps one.
"""


class Promises:
    """What a server acknowledged, in a file.

    It is checked with the next fetch. The file is not made durable: after a power cut, the
    last ones are not checked.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def add(self, promised: Iterable[Promise]) -> None:
        """Add positions."""
        lines = [msgspec.json.encode(each) + b"\n" for each in promised]
        with contextlib.suppress(OSError), self._path.open("ab") as file:
            file.write(b"".join(lines))

    def read(self) -> set[Promise]:
        """What was promised and not checked yet."""
        try:
            lines = self._path.read_bytes().splitlines()
        except FileNotFoundError:
            return set()
        found: set[Promise] = set()
        for line in lines:
            with contextlib.suppress(msgspec.MsgspecError):
                found.add(msgspec.json.decode(line, type=tuple[int, str]))
        return found

    def forget(self, checked: set[Promise]) -> None:
        """Forget what was checked."""
        left = self.read() - checked
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)
        if left:
            self.add(left)


class MachineName:
    """The names that this machine has for its keys, one a line: its host name may change.

    A key that several machines share is enrolled under the name of one of them.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def find(self, key: Signer) -> str:
        """The name of a key: kept, or that of the host and the id of the key."""
        ending = _ending(key)
        if kept := next((name for name in self._read() if name.endswith(ending)), None):
            return kept
        host = re.sub(r"[^A-Za-z0-9.-]", "-", socket.gethostname())[:100] or "machine"
        self.keep(key, f"{host}{ending}")
        return f"{host}{ending}"

    def keep(self, key: Signer, name: str) -> None:
        """Keep the name under which a key is enrolled, for when the server cannot be reached."""
        before, ending = self._read(), _ending(key)
        names = [name, *(each for each in before if not each.endswith(ending))]
        if name not in before and name.endswith(ending):
            with contextlib.suppress(OSError):
                replace_file(self._path, "".join(f"{each}\n" for each in names).encode())

    def _read(self) -> list[str]:
        with contextlib.suppress(OSError, UnicodeDecodeError):
            return self._path.read_text("utf-8").splitlines()
        return []


def _ending(key: Signer) -> str:
    return f"-{key.verifier.key_id.hex()}"


# Bytes of artifacts that are sent without asking which of them the server has.
_UNASKED = 1 << 18
# Entries of one request.
_MOST_TOGETHER = 500
# Bytes of their evidence: a server bounds what a client uploads and does not submit.
_MOST_EVIDENCE = 1 << 30
# Digests that are remembered to be on the server.
_MOST_KNOWN = 100_000


class Outbox:
    """Entries on their way to a server, with their evidence."""

    def __init__(
        self,
        url: str,
        spool: Spool,
        artifacts: FetchedArtifacts,
        acknowledged: Callable[[Sequence[AnyEntry], Sequence[Acknowledged]], None],
    ) -> None:
        self._url = url
        self._spool = spool
        self._artifacts = artifacts
        # Called with whatever the server acknowledges, before anything of it is removed here.
        self._acknowledged = acknowledged
        # Digests of artifacts that the server has.
        self._known: set[str] = set()
        self.refused: list[str] = []
        """Sentences about waiting entries that the server refused."""

    def send(
        self, server: LedgerClient, drafts: Sequence[AnyEntry], lines: Sequence[bytes]
    ) -> list[int]:
        """Send entries; returns the position of each.

        Raises:
            UnreachableError: the server cannot be reached; it may have sealed them.
            NotSealedError: it refuses one, and has sealed none.
            ConflictError: a trial is sealed already with different bytes.
            LedgerError: it refuses to answer.
            MissingArtifactError: evidence is neither there nor here.
        """
        try:
            places = server.submit(lines, self._upload(server, drafts))
        except NotSealedError:
            known = self._known & _evidence_of(drafts).keys()
            if not known:
                raise
            # Its owner may have withheld evidence that this process had sent.
            self._known -= known
            places = server.submit(lines, self._upload(server, drafts))
        self._acknowledged(drafts, places)
        # Evidence that the server has now is removed; the trials still have their files.
        if len(self._known) > _MOST_KNOWN:
            self._known.clear()
        for sha256 in _evidence_of(drafts):
            self._known.add(sha256)
            if self._artifacts.held.pop(sha256, None) is None:
                self._artifacts.remove(sha256)
        return [place.seq for place in places]

    def keep(self, drafts: Sequence[AnyEntry], lines: Sequence[bytes]) -> None:
        """Keep entries, and the evidence that is only in memory, until they are sent.

        Raises:
            LedgerError: they cannot be stored.
        """
        try:
            self._artifacts.keep(_evidence_of(drafts))
        except OSError as error:
            raise LedgerError(f"evidence for {self._url} cannot be stored: {error}") from error
        self._spool.add(lines)

    def send_waiting(self, server: LedgerClient) -> int:
        """Send what waits; returns the number of entries sent."""
        count = 0
        with self._spool.sending():
            for name, lines in self._spool:
                entries = [decode_line(line, f"{name}: an entry") for line in lines]
                drafts = [entry for entry in entries if not isinstance(entry, Withheld)]
                refused: dict[bytes, str] = {}
                for some, part in split(drafts, lines):
                    refused |= self._find_refused(server, some, part)
                if refused:
                    kept = self._spool.refuse(name, refused)
                    reasons = dict.fromkeys(refused.values())
                    self.refused += [f"{why}; it is kept in {kept}" for why in reasons]
                else:
                    self._spool.remove(name)
                count += len(lines) - len(refused)
        return count

    def _find_refused(
        self, server: LedgerClient, drafts: Sequence[AnyEntry], lines: Sequence[bytes]
    ) -> dict[bytes, str]:
        """Send entries; returns those that the server refuses, with the reasons."""
        try:
            self.send(server, drafts, lines)
        except (NotSealedError, ConflictError, MissingArtifactError) as error:
            if len(lines) == 1:
                return {lines[0]: str(error)}
        else:
            return {}
        # One of them is refused: send each by itself to see which.
        refused: dict[bytes, str] = {}
        for draft, line in zip(drafts, lines, strict=True):
            refused |= self._find_refused(server, [draft], [line])
        return refused

    def _upload(self, server: LedgerClient, drafts: Sequence[AnyEntry]) -> bytes:
        """Upload the evidence of entries; returns artifacts to be sent with the entries."""
        sizes = _evidence_of(drafts)
        missing = [sha256 for sha256 in sizes if sha256 not in self._known]
        held = self._artifacts.held
        if all(each in held for each in missing):
            packed = b"".join(pack_artifact(each, *held[each]) for each in missing)
            if len(packed) <= _UNASKED:
                return packed
        body = bytearray()
        for sha256 in sorted(server.missing(missing)):
            body += self._upload_large(server, sha256, sizes[sha256])
            if len(body) > PIECE:
                server.upload_small(bytes(body))
                body.clear()
        if body:
            server.upload_small(bytes(body))
        return b""

    def _upload_large(self, server: LedgerClient, sha256: str, size: int) -> bytes:
        """Upload an artifact if it is large; a small one is returned, packed."""
        try:
            file = self._artifacts.open_here(sha256)
        except MissingArtifactError:
            # Another process on this machine may have sent it, and removed it here.
            if server.missing([sha256]):
                raise
            return b""
        with file:
            total = file.seek(0, os.SEEK_END)
            file.seek(0)
            if total <= PIECE:
                return pack_artifact(sha256, size, file.read())
            server.upload_large(sha256, size, total, file)
        return b""


def _evidence_of(drafts: Sequence[AnyEntry]) -> dict[str, int]:
    """The sizes of the artifacts that entries name."""
    return {
        file.sha256: file.size
        for draft in drafts
        if isinstance(draft, TrialEntry)
        for file in draft.evidence
    }


def split(
    drafts: Sequence[AnyEntry], lines: Sequence[bytes]
) -> Iterator[tuple[Sequence[AnyEntry], Sequence[bytes]]]:
    """Entries in parts that a server takes as one request."""
    begin, n_bytes, evidence = 0, 0, 0
    for at, (draft, line) in enumerate(zip(drafts, lines, strict=True)):
        own = sum(_evidence_of([draft]).values())
        n_bytes, evidence = n_bytes + len(line), evidence + own
        is_full = n_bytes > LARGEST_ENTRY or evidence > _MOST_EVIDENCE
        if at > begin and (is_full or at - begin == _MOST_TOGETHER):
            yield drafts[begin:at], lines[begin:at]
            begin, n_bytes, evidence = at, len(line), own
    yield drafts[begin:], lines[begin:]
