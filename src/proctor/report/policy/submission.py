"""Trials to be checked, with what is known of them."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from proctor.audit.job import Audit
from proctor.ledger.counting import NOT_COUNTED, RESTARTED, WITHHELD
from proctor.ledger.row import TrialRow
from proctor.report.in_jobs import Unreadable
from proctor.traces.traced_trial import FoundTrace

type OpenTraces = Callable[[], AbstractContextManager[list[FoundTrace]]]
"""Opens the traces of a trial, readable inside the `with` block."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmittedTrial:
    """One trial, with the facts that policies need beyond its row."""

    row: TrialRow
    open_traces: OpenTraces
    place: str | None = None
    """The directory of its files, or where they are unpacked."""
    digests: tuple[str, ...] = ()
    """Digests of its task: `sha256:…` from lock.json, and task_checksum."""
    began: str | None = None
    """When it began, according to its result."""
    ended: str | None = None
    claimed_model: str | None = None
    """The model that the agent was configured with."""
    contradictions: tuple[str, ...] = ()
    """Contradictions between its record and its files."""
    is_withheld: bool = False
    """Whether it was withheld from the ledger."""
    is_too_large: bool = False
    """Whether its sealed files are too large to be unpacked."""

    @property
    def is_kept(self) -> bool:
        """Whether it is an earlier attempt, which does not count."""
        return self.row.status == RESTARTED

    @property
    def name(self) -> str:
        """Its name: EXPERIMENT/TRIAL."""
        return self.row.name


@dataclass(frozen=True, slots=True)
class Replacement:
    """A trial that another one replaces."""

    trial: str
    cause: str
    """infrastructure, configuration, task, agent or other."""
    message: str


@dataclass(frozen=True, slots=True)
class SealedIn:
    """The ledger of a submission."""

    damage: tuple[str, ...] = ()
    """What differs from what was signed."""
    differences: tuple[tuple[str, str], ...] = ()
    """For a directory: trials, and how they differ from what was sealed."""
    unchecked: tuple[str, ...] = ()
    """What could not be checked, one sentence each."""
    unnamed: str | None = None
    """The entries that were withheld without naming a trial, in a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """Trials submitted together."""

    name: str
    trials: Sequence[SubmittedTrial]
    unreadable: Sequence[Unreadable] = ()
    audits: Sequence[Audit] = ()
    """One for each job; those of a ledger are based on the sealed files."""
    replacements: Sequence[Replacement] = ()
    lost_attempts: int = 0
    """Restarted attempts whose files are gone."""
    has_jobs: bool = True
    """Whether the jobs' own files are available, which have plan and totals."""
    sealed: SealedIn | None = None
    unchecked: Sequence[str] = field(default=())
    """What cannot be checked in a submission of this kind, one sentence each."""

    @property
    def counted(self) -> list[SubmittedTrial]:
        """The trials that count, and withheld ones, which fail."""
        left_out = NOT_COUNTED - {WITHHELD}
        return [trial for trial in self.trials if trial.row.status not in left_out]
