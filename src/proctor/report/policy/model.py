"""A policy as a value: its requirements. What it does not name is not required."""

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
    """Which tasks must be run."""

    names: tuple[str, ...] = ()
    """Exactly these tasks; empty: any."""
    count: Some | None = None
    """The number of different tasks."""
    digests: dict[str, str | tuple[str, ...]] = {}
    """One or several for each name: `sha256:…` is the digest in lock.json, 64 hex digits without
    a prefix are task_checksum."""
    same_revision: bool = False
    """Whether all attempts at a task must be of the same revision."""

    def digests_of(self, name: str) -> tuple[str, ...]:
        """The accepted digests of a task; empty: any."""
        found = self.digests.get(name, ())
        return (found,) if isinstance(found, str) else found

    @property
    def all_names(self) -> frozenset[str]:
        """All listed names, with or without a digest."""
        return frozenset((*self.names, *self.digests))


class AttemptRule(_Rule, frozen=True, kw_only=True):
    """The number of attempts at each task."""

    minimum: Some | None = None
    exact: Some | None = None


class AgentRule(_Rule, frozen=True, kw_only=True):
    """Agent and model."""

    one_model: bool = False
    """Whether one known model must have answered in every trial."""
    one_configuration: bool = False
    """Whether all trials must have the same agent with the same configuration."""


class LimitRule(_Rule, frozen=True, kw_only=True):
    """Time and resource limits."""

    default: bool = False
    """Whether multipliers and overrides are forbidden."""


class RecordRule(_Rule, frozen=True, kw_only=True):
    """Requirements for records. That a record can be made is always required."""

    complete: bool = False
    verifier: bool = False
    """Whether the verifier's files and the scoring profile must be on record."""


class ImageRule(_Rule, frozen=True, kw_only=True):
    """The image of a trial."""

    pinned: bool = False


class TraceRule(_Rule, frozen=True, kw_only=True):
    """Requirements for traces."""

    needed: Literal["none", "rewarded", "all"] = "none"
    """rewarded: every trial with a reward above 0."""
    clock_seconds: Seconds = 60.0
    """The accepted difference between the clocks of trace and trial."""


class EvidenceRule(_Rule, frozen=True, kw_only=True):
    """Requirements for evidence."""

    follows: bool = False
    """Whether results must follow from the reward files, and no trial be a copy."""
    planned: bool = False
    """Whether the trials must be exactly those of the plan, and the job be finished."""


class ReplacementRule(_Rule, frozen=True, kw_only=True):
    """Trials that were run again."""

    causes: tuple[Cause, ...] | None = None
    """Accepted causes; null: any."""


class IntegrityRule(_Rule, frozen=True, kw_only=True):
    """Integrity findings."""

    no_open_findings: bool = False
    """Whether findings fail the trial, unless its latest review passed it."""
    level: Level | None = None
    """The lowest level that fails; null: notice."""
    tolerated: tuple[str, ...] = ()
    """Codes that never fail, whatever their level."""
    refused: tuple[str, ...] = ()
    """Codes that always fail, whatever their level."""

    def fails(self, code: str) -> bool:
        """Whether a finding of that code needs a review.

        An unknown code, from a newer version, always does: its level is unknown here.
        """
        if code in self.refused:
            return True
        if code in self.tolerated:
            return False
        return code not in _CODES or level_of(code).rank >= (self.level or Level.NOTICE).rank


class ReviewRule(_Rule, frozen=True, kw_only=True):
    """Reviews by people."""

    share: Share = 0.0
    """The share of trials that must be reviewed."""
    none_failed: bool = False


class LedgerRule(_Rule, frozen=True, kw_only=True):
    """The ledger."""

    verified: bool = False
    """Whether an undamaged ledger is required, and a directory must match what was sealed."""


class Policy(_Rule, frozen=True, kw_only=True):
    """The requirements for a submission."""

    format: str
    name: str
    about: str = ""
    """Description for people."""
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
