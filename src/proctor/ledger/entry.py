"""The entries of a ledger: one line each, compact JSON, hashed as stored.

Every entry has `at`, `kind` and `seq`. A `trial` holds its record, byte for byte as it was sealed,
so that the record's digest is the SHA-256 of those bytes. The other kinds refer to digests: they
say something about what is sealed, and change nothing.

A line that was withheld is no entry any more, only what is left of one: its leaf hash.
Nothing here reads a file.
"""

from datetime import UTC, datetime
from typing import Annotated, Any, Literal

import msgspec

from proctor.digest import sha256_hex
from proctor.errors import DamageError

FORMAT = "proctor-ledger-1"
LARGEST_ENTRY = 16 << 20
"""Bytes of a line; what is larger is evidence, and belongs beside the record."""

type Seq = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
"""A place in a log."""
type Size = Annotated[int, msgspec.Meta(ge=0, le=1 << 45)]
"""Bytes of a file. The sum over all that one line can name is still a number for the index."""
type Verdict = Literal["pass", "fail", "defer"]
type Cause = Literal["infrastructure", "configuration", "task", "agent", "other"]
"""Why a trial was run again; `infrastructure` is all that a leaderboard should accept."""


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """What every entry has."""

    at: str
    """When it was appended, by the writer's clock: UTC, to the millisecond."""
    kind: str
    seq: Seq
    """Its place in the log, from 0."""


class EvidenceFile(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """One file that backs a record."""

    path: str
    """Relative to the trial, with slashes."""
    sha256: str
    """Of its plain bytes; the artifact of that name holds them."""
    size: Size
    """Bytes."""


class TrialScore(msgspec.Struct, frozen=True, kw_only=True):
    """How the trial was marked."""

    profile: str
    """Name of the scoring rules."""
    certificate: dict[str, Any] | None = None
    """The trial as an operand of a score certificate: rewards to the last bit, and their basis."""


class Slot(msgspec.Struct, frozen=True, kw_only=True):
    """Which of the planned trials it was."""

    task: str
    attempt: int
    """From 0."""


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """Where an entry that was brought in came from."""

    kind: str
    """bundle, aec-bench, harbor, prime, traces."""
    name: str
    """The other ledger's origin, the job's name and the trial's directory in it, the evaluation's
    id, the path of a trace."""
    seq: int | None = None
    """Its place in the other ledger, or in the order in which harbor adds the job up, from 0."""
    root: str | None = None
    """Root of the other ledger's tree when it was taken out, as hex."""


class TrialEntry(Entry, frozen=True, kw_only=True):
    """One sealed trial."""

    kind: Literal["trial"] = "trial"
    record: msgspec.Raw
    """The TrialRecord, byte for byte."""
    evidence: tuple[EvidenceFile, ...] = ()
    findings: tuple[dict[str, Any], ...] = ()
    """What was found about its integrity."""
    score: TrialScore | None = None
    cost_basis: str | None = None
    """Where the amount in the record's cost comes from."""
    reason_code: str | None = None
    """Why it has no score, from the closed set; null when it has one."""
    slot: Slot | None = None
    source: Source | None = None


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """The sealed trial that an entry speaks of."""

    experiment_id: str
    trial_id: str
    record: str
    """SHA-256 of the record's bytes: an id alone would not say which bytes were meant."""


class ReviewEntry(Entry, frozen=True, kw_only=True):
    """What a person says about a trial. The latest one of a reviewer counts; all stay."""

    kind: Literal["review"] = "review"
    subject: Subject
    verdict: Verdict
    reviewer: str
    note: str = ""


class RescoreEntry(Entry, frozen=True, kw_only=True):
    """The same evidence marked again, by other rules or by mended ones."""

    kind: Literal["rescore"] = "rescore"
    subject: Subject
    score: TrialScore
    reason: str
    author: str


class SupersedeEntry(Entry, frozen=True, kw_only=True):
    """A trial that another one stands in for. Both stay."""

    kind: Literal["supersede"] = "supersede"
    subject: Subject
    by: Subject
    cause: Cause
    reason: str
    author: str


class WithholdEntry(Entry, frozen=True, kw_only=True):
    """Bytes that were taken out, and why. Their digests stay."""

    kind: Literal["withhold"] = "withhold"
    subject: Subject | None
    entry: Seq | None
    """Place of the entry whose line was taken out; null when only evidence was."""
    leaf: str | None
    """That line's leaf hash, as hex."""
    artifacts: tuple[str, ...]
    """SHA-256 of the evidence that was taken out."""
    reason: str
    author: str


class PlanEntry(Entry, frozen=True, kw_only=True):
    """What is to be run, sealed before it is."""

    kind: Literal["plan"] = "plan"
    experiment_id: str
    plan: msgspec.Raw
    """The plan, byte for byte."""
    author: str


class KeyEntry(Entry, frozen=True, kw_only=True):
    """The key that signs from here on; the first entry of every ledger is one."""

    kind: Literal["key"] = "key"
    format: str
    """The ledger's format: proctor-ledger-1."""
    origin: str
    key: str
    """The public key, as name+key id+base64."""
    signature: str | None = None
    """Base64 of the former key's signature, see `handover_message`; null in the first entry."""
    root: str | msgspec.UnsetType = msgspec.UNSET
    """Root of the log before this entry, as hex; not there in the first entry, and in handovers
    of older versions, which bind neither it nor their place."""


class AttestEntry(Entry, frozen=True, kw_only=True):
    """A statement that names every entry of an experiment so far, by count and digest."""

    kind: Literal["attest"] = "attest"
    experiment_id: str
    size: Seq
    """The first so many entries of the log are covered."""
    plan: Seq | None
    """Place of the experiment's first plan; null where there is none."""
    entries: Seq
    """How many entries of the experiment there are."""
    digest: str
    """SHA-256 over their places and leaves; see `proctor.ledger.attestation`."""
    unnamed: Seq
    """How many withholdings without a subject are covered."""
    author: str


class NoteEntry(Entry, frozen=True, kw_only=True):
    """A remark."""

    kind: Literal["note"] = "note"
    text: str
    author: str
    about: tuple[str, ...] = ()
    """Digests of what it is about."""


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
}


class Withheld(msgspec.Struct, frozen=True, kw_only=True):
    """What stands in a segment where a line was taken out."""

    withheld: str
    """The line's leaf hash, as hex: the tree keeps its shape."""
    seq: Seq


class _Either(msgspec.Struct, frozen=True):
    """Enough of a line to tell what it is."""

    seq: Seq
    kind: str | None = None
    withheld: str | None = None


_ENCODER = msgspec.json.Encoder()
_EITHER = msgspec.json.Decoder(_Either)
_WITHHELD = msgspec.json.Decoder(Withheld)
_DECODERS = {kind: msgspec.json.Decoder(model) for kind, model in KINDS.items()}


def now_text() -> str:
    """The wall clock as entries have it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def encode_entry(entry: AnyEntry | Withheld) -> bytes:
    """The line of an entry, without its newline: the keys in the order of the format."""
    return _ENCODER.encode(entry)


def decode_line(line: bytes, where: str) -> AnyEntry | Withheld:
    """The entry in a line, or what is left of one.

    Raises:
        DamageError: it is neither; `where` says which line.
    """
    try:
        kind = _EITHER.decode(line).kind
        if kind is None:
            return _WITHHELD.decode(line)
        if kind in _DECODERS:
            return _DECODERS[kind].decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise DamageError(f"{where}: no entry: {error}") from error
    raise DamageError(f"{where}: an entry of kind {kind!r}; known are {', '.join(KINDS)}")


def record_digest(entry: TrialEntry) -> str:
    """SHA-256 of the record's bytes as stored."""
    return sha256_hex(bytes(entry.record))


def evidence_digest(entry: TrialEntry) -> str:
    """SHA-256 over the list of its evidence, in the order of the paths."""
    return sha256_hex(_ENCODER.encode(sorted(entry.evidence)))
