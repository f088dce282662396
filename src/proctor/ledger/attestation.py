"""Attestations: signed statements about all entries of an experiment, by count and digest.

An entry belongs to an experiment if it is one of its trials or plans, or reviews, rescores,
supersedes or withholds one of its trials. A withheld line belongs to the experiment that its
withholding names. A line that was withheld without a subject may belong to any experiment: its
leaf hash is still in the log, so that the digest of an attestation shows whether it was counted.

    digest = SHA-256 over a line `SEQ LEAFHEX` for each entry, in the order of the log

Verification, claims, monitors and `proctor ledger attest` use the same functions.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import combinations, islice
from math import comb

import msgspec

from proctor.digest import sha256_hex
from proctor.errors import DamageError, LedgerError
from proctor.ledger.entry import AttestEntry, Withheld, decode_line
from proctor.ledger.log import LogStore, read_lines
from proctor.ledger.reader import LedgerReader, LedgerWriter
from proctor.ledger.review import LONGEST_NAME, check_words
from proctor.ledger.tree import leaf_hash

# Lines hashed at most to find out which unnamed entries an attestation counts.
_MOST_HASHED = 2_000_000
_WITHHELD = b'{"withheld":'


class _Named(msgspec.Struct, frozen=True):
    experiment_id: str | None = None


class _Line(msgspec.Struct, frozen=True):
    """The fields of an entry that show which experiments it belongs to."""

    kind: str = ""
    experiment_id: str | None = None
    record: _Named | None = None
    subject: _Named | None = None
    by: _Named | None = None
    entry: int | None = None


_DECODER = msgspec.json.Decoder(_Line)


@dataclass(frozen=True, slots=True)
class Statement:
    """What an attestation states about the first `size` entries of a log."""

    plan: int | None
    entries: int
    digest: str
    unnamed: int


@dataclass(slots=True)
class Survey:
    """Which experiments each entry of a log belongs to."""

    leaves: dict[int, bytes] = field(default_factory=dict)
    """Leaf hashes by position, of entries that belong to an experiment and of withheld lines."""
    members: dict[str, set[int]] = field(default_factory=dict)
    plans: dict[str, list[int]] = field(default_factory=dict)
    gone: set[int] = field(default_factory=set)
    """Positions of withheld lines."""
    named: dict[int, set[str]] = field(default_factory=dict)
    """Positions that withholdings name, with the experiments of their subjects."""
    unnamed: list[int] = field(default_factory=list)
    """Positions of withholdings without a subject."""

    def add(self, seq: int, leaf: bytes, line: bytes | None) -> None:
        """Add an entry; `line` is None if it was withheld.

        Raises:
            DamageError: the line is not an entry.
        """
        if line is None:
            self.gone.add(seq)
            self.leaves[seq] = leaf
            return
        try:
            entry = _DECODER.decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise DamageError(f"entry {seq}: no entry: {error}") from error
        for experiment in _experiments_of(entry):
            self.members.setdefault(experiment, set()).add(seq)
            self.leaves[seq] = leaf
            if entry.kind == "plan":
                self.plans.setdefault(experiment, []).append(seq)
        if entry.kind == "withhold" and entry.subject is None:
            self.unnamed.append(seq)
        elif entry.kind == "withhold" and entry.subject and entry.entry is not None:
            self.named.setdefault(entry.entry, set()).add(entry.subject.experiment_id or "")

    def places_of(self, experiment: str, size: int) -> dict[int, bytes]:
        """Leaf hashes of the entries known to belong to an experiment, by position, in order."""
        taken_out = {seq for seq in self.gone if experiment in self.named.get(seq, ())}
        places = self.members.get(experiment, set()) | taken_out
        return {seq: self.leaves[seq] for seq in sorted(places) if seq < size}

    def hidden(self, size: int) -> list[int]:
        """Withheld lines for which no withholding names a subject."""
        return sorted(seq for seq in self.gone - self.named.keys() if seq < size)

    def state(self, experiment: str, size: int) -> Statement:
        """The statement that an attestation made now would contain."""
        places = self.places_of(experiment, size)
        return Statement(
            plan=next((seq for seq in self.plans.get(experiment, ()) if seq < size), None),
            entries=len(places),
            digest=digest_entries(places),
            unnamed=sum(seq < size for seq in self.unnamed),
        )

    def find_counted(self, entry: AttestEntry) -> dict[int, bytes] | None:
        """The entries that an attestation counts; None if no choice of them has its digest."""
        sure = self.places_of(entry.experiment_id, entry.size)
        hidden = self.hidden(entry.size)
        missing = entry.entries - len(sure)
        if not 0 <= missing <= len(hidden):
            return None
        # The choices grow exponentially; beyond this bound the attestation counts as unproven.
        if comb(len(hidden), missing) * max(1, entry.entries) > _MOST_HASHED:
            return None
        for chosen in combinations(hidden, missing):
            places = dict(sorted({**sure, **{seq: self.leaves[seq] for seq in chosen}}.items()))
            if digest_entries(places) == entry.digest:
                return places
        return None

    def find_contradiction(self, entry: AttestEntry) -> str | None:
        """How an attestation differs from the log; None if it holds."""
        if entry.size > entry.seq:
            return f"covers {entry.size:,} entries, and only {entry.seq:,} come before it"
        found = self.state(entry.experiment_id, entry.size)
        if entry.unnamed != found.unnamed:
            return (
                f"counts {entry.unnamed:,} withholdings without a subject; there are "
                f"{found.unnamed:,}"
            )
        counted = self.find_counted(entry)
        if counted is None:
            return (
                f"counts {entry.entries:,} entries with the digest {entry.digest[:16]}; the log "
                f"has {found.entries:,} with {found.digest[:16]}"
            )
        hidden = set(self.hidden(entry.size)) & counted.keys()
        if entry.plan != found.plan and entry.plan not in hidden:
            return f"names entry {entry.plan} as the plan; the log has {found.plan}"
        return None


def _experiments_of(entry: _Line) -> set[str]:
    if entry.kind == "attest":
        return set()
    named = (entry, entry.record, entry.subject, entry.by)
    return {each.experiment_id for each in named if each is not None and each.experiment_id}


def digest_entries(places: Mapping[int, bytes]) -> str:
    """SHA-256 over entries by position and leaf hash, in the order of the log."""
    return sha256_hex("".join(f"{seq} {leaf.hex()}\n" for seq, leaf in places.items()).encode())


def survey_log(log: LogStore, size: int) -> Survey:
    """Read the first entries of a log.

    Raises:
        DamageError: a line is not an entry.
    """
    survey = Survey()
    for seq, line in enumerate(islice(read_lines(log), size)):
        # The placeholder of a withheld line states the leaf hash; its own bytes are not hashed.
        if not line.data.startswith(_WITHHELD):
            survey.add(seq, leaf_hash(line.data), line.data)
            continue
        found = decode_line(line.data, f"entry {seq}")
        if not isinstance(found, Withheld):
            raise DamageError(f"entry {seq}: not a withheld line as it is written")
        survey.add(seq, bytes.fromhex(found.withheld), None)
    return survey


def append_attestation(ledger: LedgerWriter, experiment: str, author: str) -> AttestEntry:
    """Append an attestation of all entries of an experiment so far; returns the entry.

    Raises:
        LedgerError: the ledger has no entry of the experiment, or cannot be written.
        DamageError: the log does not match its checkpoint.
    """
    check_words(author, "the author", longest=LONGEST_NAME)
    with ledger.writing():
        size = ledger.refresh().tree.size
        found = survey_log(ledger.log, size).state(experiment, size)
        if not found.entries:
            raise LedgerError(
                f"{ledger.where}: has no entry of the experiment {experiment!r}; "
                "`proctor ledger list` shows its trials"
            )
        draft = AttestEntry(
            at="",
            seq=0,
            experiment_id=experiment,
            size=size,
            plan=found.plan,
            entries=found.entries,
            digest=found.digest,
            unnamed=found.unnamed,
            author=author,
        )
        (seq,) = ledger.append([draft])
    return msgspec.structs.replace(draft, seq=seq)


def find_attestation(ledger: LedgerReader, experiment: str, size: int) -> AttestEntry | None:
    """The latest attestation of an experiment among the first entries; call `refresh` first."""
    for seq in reversed(ledger.index.places("attest", size=size)):
        entry = ledger.entry(seq)
        if isinstance(entry, AttestEntry) and entry.experiment_id == experiment:
            return entry
    return None


def false_attestations(
    survey: Survey, entries: Iterable[tuple[int, AttestEntry]]
) -> Iterable[tuple[int, str]]:
    """Positions of the attestations that the log contradicts, each with a message."""
    for seq, entry in entries:
        if (wrong := survey.find_contradiction(entry)) is not None:
            yield seq, f"entry {seq} attests the experiment {entry.experiment_id!r} and {wrong}"
