"""What a machine sends to a server: evidence first, then the entries that name it.

What waits is sent in order, by one process at a time. Evidence leaves this machine's copy once the
server has it.
"""

import os
from collections.abc import Callable, Iterator, Sequence

from proctor.errors import ConflictError, LedgerError, MissingArtifactError, NotSealedError
from proctor.ledger.entry import LARGEST_ENTRY, AnyEntry, TrialEntry, Withheld, decode_line
from proctor.ledger.remote.artifacts import FetchedArtifacts
from proctor.ledger.remote.client import PIECE, Acknowledged, LedgerClient, pack_artifact
from proctor.ledger.remote.spool import Spool

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
        self._drop(drafts)
        return [place.seq for place in places]

    def _drop(self, drafts: Sequence[AnyEntry]) -> None:
        """Remove evidence that the server has now; the trials still have their files."""
        if len(self._known) > _MOST_KNOWN:
            self._known.clear()
        for sha256 in _evidence_of(drafts):
            self._known.add(sha256)
            if self._artifacts.held.pop(sha256, None) is None:
                self._artifacts.remove(sha256)

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
        with self._spool.sending():
            return sum(self._send_batch(server, name, lines) for name, lines in self._spool)

    def _send_batch(self, server: LedgerClient, name: str, lines: Sequence[bytes]) -> int:
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
        return len(lines) - len(refused)

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
