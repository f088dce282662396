"""A policy as a value: what it asks of a submission. What it does not name is not asked for."""

from typing import Annotated, Literal

import msgspec

from proctor.ledger.entry import Cause
from proctor.trial.finding import FindingCode, Level, level_of

FORMAT = "proctor-policy-1"

_CODES = frozenset(FindingCode)

type Some = Annotated[int, msgspec.Meta(ge=1)]
type Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
type Seconds = Annotated[float, msgspec.Meta(ge=0)]


class _Rule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of the document."""


class TaskRule(_Rule, frozen=True, kw_only=True):
    """Which tasks are sat."""

    names: tuple[str, ...] = ()
    """All of them and no other; none: any."""
    count: Some | None = None
    """How many different ones."""
    digests: dict[str, str | tuple[str, ...]] = {}
    """By name, one or several: `sha256:…` is the digest in lock.json, 64 hex digits alone are
    task_checksum."""
    same_revision: bool = False
    """Whether attempts at one task must have sat the same one."""

    def digests_of(self, name: str) -> tuple[str, ...]:
        """What the task of a name may be; empty: anything."""
        found = self.digests.get(name, ())
        return (found,) if isinstance(found, str) else found

    @property
    def all_names(self) -> frozenset[str]:
        """Those that are listed, with or without a digest."""
        return frozenset((*self.names, *self.digests))


class AttemptRule(_Rule, frozen=True, kw_only=True):
    """How often each task is sat."""

    minimum: Some | None = None
    exact: Some | None = None


class AgentRule(_Rule, frozen=True, kw_only=True):
    """Who sits them."""

    one_model: bool = False
    """Whether one model answered in every trial, and it is known which."""
    one_configuration: bool = False
    """Whether it is one agent, set up alike."""


class LimitRule(_Rule, frozen=True, kw_only=True):
    """Time and resources."""

    default: bool = False
    """Whether no multiplier and no override may be set."""


class RecordRule(_Rule, frozen=True, kw_only=True):
    """What is on record of a trial. That a record can be made is always asked for."""

    complete: bool = False
    verifier: bool = False
    """Whether the verifier's files and the rules of marking must be on record."""


class ImageRule(_Rule, frozen=True, kw_only=True):
    """What a trial ran on."""

    pinned: bool = False


class TraceRule(_Rule, frozen=True, kw_only=True):
    """What the agent did."""

    needed: Literal["none", "rewarded", "all"] = "none"
    """rewarded: every trial with a reward above 0."""
    clock_seconds: Seconds = 60.0
    """How far a trace's clock may be off the trial's."""


class EvidenceRule(_Rule, frozen=True, kw_only=True):
    """What the numbers rest on."""

    follows: bool = False
    """Whether results must follow from the reward files, and no trial be a copy."""
    planned: bool = False
    """Whether the trials must be those of the plan, and the job have run to its end."""


class ReplacementRule(_Rule, frozen=True, kw_only=True):
    """Trials that were run again."""

    causes: tuple[Cause, ...] | None = None
    """For which reasons; null: for any."""


class IntegrityRule(_Rule, frozen=True, kw_only=True):
    """What was seen while trials ran."""

    no_open_findings: bool = False
    """Whether findings fail the trial, unless its latest review passed it."""
    level: Level | None = None
    """The lowest level that fails; null: notice."""
    tolerated: tuple[str, ...] = ()
    """Codes of findings that fail nothing, whatever their level."""
    refused: tuple[str, ...] = ()
    """Codes of findings that fail, whatever their level."""

    def fails(self, code: str) -> bool:
        """Whether a finding of that code needs a review.

        One that is not known, from a newer version, always does: its level cannot be known here.
        """
        if code in self.refused:
            return True
        if code in self.tolerated:
            return False
        return code not in _CODES or level_of(code).rank >= (self.level or Level.NOTICE).rank


class ReviewRule(_Rule, frozen=True, kw_only=True):
    """What people said of it."""

    share: Share = 0.0
    """Of the trials that must have been reviewed."""
    none_failed: bool = False


class LedgerRule(_Rule, frozen=True, kw_only=True):
    """Where it is sealed."""

    verified: bool = False
    """Whether there must be a ledger that is what was signed, and a directory what was sealed."""


class WitnessRule(_Rule, frozen=True, kw_only=True):
    """Who else signed the ledger."""

    quorum: Some | None = None
    """How many different witnesses must have cosigned a checkpoint that covers all trials."""
    keys: tuple[str, ...] = ()
    """Their public keys, as `proctor ledger cosign` prints them."""


class Policy(_Rule, frozen=True, kw_only=True):
    """What is asked of a submission."""

    format: str
    name: str
    about: str = ""
    """For people."""
    tasks: TaskRule = TaskRule()
    attempts: AttemptRule = AttemptRule()
    agent: AgentRule = AgentRule()
    limits: LimitRule = LimitRule()
    records: RecordRule = RecordRule()
    images: ImageRule = ImageRule()
    traces: TraceRule = TraceRule()
    evidence: EvidenceRule = EvidenceRule()
    replacements: ReplacementRule = ReplacementRule()
    integrity: IntegrityRule = IntegrityRule()
    reviews: ReviewRule = ReviewRule()
    ledger: LedgerRule = LedgerRule()
    witnesses: WitnessRule = WitnessRule()
