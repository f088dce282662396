"""What is checked: trials with what is known of them, wherever they come from."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from proctor.audit.job import Audit
from proctor.ledger.counting import NOT_COUNTED, RESTARTED, WITHHELD
from proctor.ledger.note import Checkpoint
from proctor.ledger.row import TrialRow
from proctor.ledger.withheld import UnnamedWithholding
from proctor.report.in_jobs import Unreadable
from proctor.traces.traced_trial import FoundTrace

type OpenTraces = Callable[[], AbstractContextManager[list[FoundTrace]]]
"""The traces of a trial, readable for a while."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmittedTrial:
    """One trial, with what a policy asks beyond what reports count."""

    attempt: TrialRow
    open_traces: OpenTraces
    place: str | None = None
    """Where its files lie, or are unpacked for a while."""
    digests: tuple[str, ...] = ()
    """Of its task: `sha256:…` from lock.json, and task_checksum."""
    began: str | None = None
    """When, as the trial's own result says it."""
    ended: str | None = None
    claimed_model: str | None = None
    """The model that the agent was told to use."""
    contradictions: tuple[str, ...] = ()
    """Where its record says something else than its files."""
    is_withheld: bool = False
    """Whether its bytes were taken out of the ledger."""
    is_too_large: bool = False
    """Whether its sealed files are more than is unpacked to look at."""

    @property
    def is_kept(self) -> bool:
        """Whether it is an earlier attempt, which another replaces and no number has."""
        return self.attempt.status == RESTARTED

    @property
    def name(self) -> str:
        """What it is called everywhere: EXPERIMENT/TRIAL."""
        return self.attempt.name


@dataclass(frozen=True, slots=True)
class Replacement:
    """A trial that another one stands in for."""

    trial: str
    cause: str
    """infrastructure, configuration, task, agent or other."""
    message: str


@dataclass(frozen=True, slots=True)
class SealedIn:
    """The ledger that a submission is in, or is held against."""

    place: str
    damage: tuple[str, ...] = ()
    """What is not as it was signed."""
    differences: tuple[tuple[str, str], ...] = ()
    """Of a directory: trials, and how they are not what was sealed."""
    unchecked: tuple[str, ...] = ()
    """What could not be told of it, one sentence each."""
    kept: tuple[Checkpoint, ...] = ()
    """Checkpoints that it was verified to have grown from, with their cosignatures."""
    log_keys: frozenset[bytes] = frozenset()
    """The public keys that signed it as its owner."""
    covered: int = 0
    """How many of its entries hold all trials of the submission."""
    unnamed: tuple[UnnamedWithholding, ...] = ()
    """What was withheld without naming a trial."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """What somebody hands in as one."""

    name: str
    trials: Sequence[SubmittedTrial]
    unreadable: Sequence[Unreadable] = ()
    audits: Sequence[Audit] = ()
    """Of each job; those of a ledger rest on what is sealed of them."""
    replacements: Sequence[Replacement] = ()
    lost_attempts: int = 0
    """Attempts that were made again and of which nothing is left."""
    has_jobs: bool = True
    """Whether the files of the jobs themselves are there: without them, no plan and no total."""
    sealed: SealedIn | None = None
    unchecked: Sequence[str] = field(default=())
    """What cannot be known of a submission of this sort, one sentence each."""

    @property
    def counted(self) -> list[SubmittedTrial]:
        """The trials that numbers are made of, and those whose bytes are gone: these fail."""
        left_out = NOT_COUNTED - {WITHHELD}
        return [trial for trial in self.trials if trial.attempt.status not in left_out]
