"""The entries of a ledger: one line of compact JSON each, hashed as stored.

Every entry has `at`, `kind` and `seq`. A `trial` contains its record byte for byte as sealed,
so that the record's digest is the SHA-256 of those bytes. Entries of other kinds refer to records
by digest; they change nothing that was sealed.

A withheld line is replaced by a placeholder with its leaf hash.
"""

from datetime import UTC, datetime
from typing import Annotated, Any, Literal

import msgspec

from proctor.digest import sha256_hex
from proctor.errors import DamageError, NotSealedError
from proctor.times import render_utc

FORMAT = "proctor-ledger-1"
LARGEST_ENTRY = 16 << 20
"""Bytes of a line; larger content belongs into a file of the evidence."""

type Seq = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
"""A position in a log."""
type Size = Annotated[int, msgspec.Meta(ge=0, le=1 << 45)]
"""Bytes of a file, limited so that the sum over all files of one line fits into the index."""
type Verdict = Literal["pass", "fail", "defer"]
type Cause = Literal["infrastructure", "configuration", "task", "agent", "other"]
"""Why a trial was run again; leaderboards should accept `infrastructure` only."""


class BatchPlace(msgspec.Struct, frozen=True, kw_only=True):
    """The place of an entry among several that a machine signed together."""

    index: Seq
    """From 0."""
    size: Seq
    """Entries of the batch."""
    path: tuple[str, ...]
    """Base64 of the sibling hashes from the entry up to the root of the batch's tree."""


class MachineSignature(msgspec.Struct, frozen=True, kw_only=True):
    """Signature of the machine that submitted an entry; see `proctor.ledger.machines`."""

    machine: str
    """Its name, as an earlier entry enrolled it."""
    signature: str
    """Base64 of an Ed25519 signature."""
    batch: BatchPlace | msgspec.UnsetType = msgspec.UNSET
    """Missing if the entry was signed by itself."""


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """Common fields of all entries."""

    at: str
    """When it was appended, by the writer's clock, in UTC with milliseconds."""
    kind: str
    seq: Seq
    """Its position in the log, from 0."""
    signed: MachineSignature | msgspec.UnsetType = msgspec.UNSET
    """Who submitted it to a server; missing if the owner of the ledger wrote it."""


class EvidenceFile(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """One evidence file of a trial."""

    path: str
    """Relative to the trial, with slashes."""
    sha256: str
    """Of its content; the artifact with this name has it."""
    size: Size
    """Bytes."""


class TrialScore(msgspec.Struct, frozen=True, kw_only=True):
    """How a trial was scored."""

    profile: str
    """Name of the scoring rules."""
    certificate: dict[str, Any] | None = None
    """The trial as an operand of a score certificate: exact rewards, and their basis."""


class Slot(msgspec.Struct, frozen=True, kw_only=True):
    """The planned trial that it was."""

    task: str
    attempt: int
    """From 0."""


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """Where an imported entry came from."""

    kind: str
    """bundle, aec-bench, harbor, inspect, prime, traces."""
    name: str
    """The other ledger's origin, the job's name and the trial's directory in it, the evaluation's
    id, the path of a trace, the file name of a log."""
    seq: int | None = None
    """Its position in the other ledger, or in harbor's order of the job's trials, from 0."""
    root: str | None = None
    """Root of the other ledger's tree at the time of the export, in hex."""


class TrialEntry(Entry, frozen=True, kw_only=True):
    """One sealed trial."""

    kind: Literal["trial"] = "trial"
    record: msgspec.Raw
    """The TrialRecord, byte for byte."""
    evidence: tuple[EvidenceFile, ...] = ()
    findings: tuple[dict[str, Any], ...] = ()
    """Its integrity findings."""
    score: TrialScore | None = None
    cost_basis: str | None = None
    """How the cost in the record was determined."""
    reason_code: str | None = None
    """Why it has no score, from the closed set; null if it has one."""
    slot: Slot | None = None
    source: Source | None = None


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """The sealed trial that an entry is about."""

    experiment_id: str
    trial_id: str
    record: str
    """SHA-256 of the record's bytes: the ids alone would not say which bytes were meant."""

    @property
    def name(self) -> str:
        """The name in commands and on pages: EXPERIMENT/TRIAL."""
        return f"{self.experiment_id}/{self.trial_id}"


class ReviewEntry(Entry, frozen=True, kw_only=True):
    """A person's verdict about a trial. The latest of each reviewer counts; all are kept."""

    kind: Literal["review"] = "review"
    subject: Subject
    verdict: Verdict
    reviewer: str
    note: str = ""


class RescoreEntry(Entry, frozen=True, kw_only=True):
    """Another score for the same evidence, by other or corrected rules."""

    kind: Literal["rescore"] = "rescore"
    subject: Subject
    score: TrialScore
    reason: str
    author: str


class SupersedeEntry(Entry, frozen=True, kw_only=True):
    """States that another trial replaces a trial. Both stay in the log."""

    kind: Literal["supersede"] = "supersede"
    subject: Subject
    by: Subject
    cause: Cause
    reason: str
    author: str


class WithholdEntry(Entry, frozen=True, kw_only=True):
    """States which bytes were withheld, and why. Their digests stay."""

    kind: Literal["withhold"] = "withhold"
    subject: Subject | None
    entry: Seq | None
    """Position of the withheld line; null if only evidence was withheld."""
    leaf: str | None
    """The leaf hash of that line, in hex."""
    artifacts: tuple[str, ...]
    """SHA-256 of the withheld evidence."""
    reason: str
    author: str


class PlanEntry(Entry, frozen=True, kw_only=True):
    """A plan, sealed before its trials are run."""

    kind: Literal["plan"] = "plan"
    experiment_id: str
    plan: msgspec.Raw
    """The plan, byte for byte."""
    author: str


class KeyEntry(Entry, frozen=True, kw_only=True):
    """The key that signs from here on; the first entry of every ledger names one."""

    kind: Literal["key"] = "key"
    format: str
    """The ledger's format: proctor-ledger-1."""
    origin: str
    key: str
    """The public key, as name+key id+base64."""
    signature: str | None = None
    """Base64 of the former key's signature (see `handover_message`); null in the first entry."""
    root: str | msgspec.UnsetType = msgspec.UNSET
    """Root of the log before this entry, in hex. Missing in the first entry."""


class AttestEntry(Entry, frozen=True, kw_only=True):
    """A statement by an earlier version about the entries of an experiment; it is not checked."""

    kind: Literal["attest"] = "attest"
    experiment_id: str
    size: Seq
    """The statement covers this many entries of the log, from the first."""
    plan: Seq | None
    """Position of the experiment's first plan; null if there is none."""
    entries: Seq
    """The number of entries of the experiment."""
    digest: str
    """SHA-256 over their positions and leaf hashes."""
    unnamed: Seq
    """The number of withholdings without a subject among the covered entries."""
    author: str


class NoteEntry(Entry, frozen=True, kw_only=True):
    """A note by a person."""

    kind: Literal["note"] = "note"
    text: str
    author: str
    about: tuple[str, ...] = ()
    """Digests of the records that it is about."""


class MachineEntry(Entry, frozen=True, kw_only=True):
    """Enrols a machine, whose key signs what it submits from here on; or revokes it."""

    kind: Literal["machine"] = "machine"
    name: str
    key: str
    """The machine's public key, as name+key id+base64."""
    is_revoked: bool
    author: str
    """Who enrolled or revoked it."""


type AnyEntry = (
    TrialEntry
    | ReviewEntry
    | RescoreEntry
    | SupersedeEntry
    | WithholdEntry
    | PlanEntry
    | KeyEntry
    | NoteEntry
    | AttestEntry
    | MachineEntry
)

KINDS: dict[str, type[AnyEntry]] = {
    "trial": TrialEntry,
    "review": ReviewEntry,
    "rescore": RescoreEntry,
    "supersede": SupersedeEntry,
    "withhold": WithholdEntry,
    "plan": PlanEntry,
    "key": KeyEntry,
    "note": NoteEntry,
    "attest": AttestEntry,
    "machine": MachineEntry,
}


class Withheld(msgspec.Struct, frozen=True, kw_only=True):
    """The placeholder of a withheld line."""

    withheld: str
    """The line's leaf hash, in hex: it keeps the tree unchanged."""
    seq: Seq


class _Either(msgspec.Struct, frozen=True):
    """The fields that distinguish the kinds of lines."""

    seq: Seq
    kind: str | None = None
    withheld: str | None = None


_ENCODER = msgspec.json.Encoder()
_EITHER = msgspec.json.Decoder(_Either)
_WITHHELD = msgspec.json.Decoder(Withheld)
_DECODERS = {kind: msgspec.json.Decoder(model) for kind, model in KINDS.items()}


def now_text() -> str:
    """The current time in the format of entries."""
    return render_utc(datetime.now(UTC))


def encode_entry(entry: AnyEntry | Withheld) -> bytes:
    """The line of an entry, without its newline, with keys in the order of the format."""
    return _ENCODER.encode(entry)


def decode_line(line: bytes, where: str) -> AnyEntry | Withheld:
    """Decode a line into an entry, or the placeholder of a withheld one.

    Raises:
        DamageError: it is neither; `where` names the line in the message.
    """
    try:
        kind = _EITHER.decode(line).kind
        if kind is None:
            return _WITHHELD.decode(line)
        if kind in _DECODERS:
            return _DECODERS[kind].decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise DamageError(f"{where}: not an entry: {error}") from error
    raise DamageError(f"{where}: unknown kind {kind!r}; expected one of {', '.join(KINDS)}")


def submittable(entry: AnyEntry | Withheld, where: str) -> TrialEntry | SupersedeEntry | PlanEntry:
    """The entry, if a server takes entries of its kind from other machines.

    Raises:
        NotSealedError: only the owner of the ledger makes such an entry.
    """
    if isinstance(entry, TrialEntry | SupersedeEntry | PlanEntry):
        return entry
    kind = getattr(entry, "kind", "withheld")
    raise NotSealedError(
        f"{where}: an entry of kind {kind!r}; a server takes trials, supersessions and plans: make "
        "others on its own machine"
    )


def record_digest(entry: TrialEntry) -> str:
    """SHA-256 of the record's bytes as stored."""
    return sha256_hex(bytes(entry.record))


def evidence_digest(entry: TrialEntry) -> str:
    """SHA-256 over the list of its evidence, sorted by path."""
    return sha256_hex(_ENCODER.encode(sorted(entry.evidence)))
