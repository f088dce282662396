"""One trial as the pages of experiments show it, and what many come to.

A mark is the least that a page of thousands needs. Reports count attempts, which say more and take
longer to read.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from proctor.ledger.counting import (
    RESTARTED,
    SET_ASIDE,
    SUPERSEDED,
    WITHHELD,
    Account,
    account_for,
    count_exceptions,
)
from proctor.report.statistics.efficiency import PASS_MARK
from proctor.trial.finding import Level

SCORED: Final = "scored"
ERRORED: Final = "errored"
UNSCORED: Final = "unscored"
RUNNING: Final = "running"
BROKEN: Final = "broken"
ASIDE: Final = "aside"
ATTEMPT: Final = "attempt"

_NOT_ENDED: Final = frozenset({RUNNING, BROKEN})
_STATES: Final = {
    RUNNING: RUNNING,
    BROKEN: BROKEN,
    SUPERSEDED: SUPERSEDED,
    WITHHELD: WITHHELD,
    SET_ASIDE: ASIDE,
    RESTARTED: ATTEMPT,
}


class Mark(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One trial."""

    trial: str
    """Its id, or its directory's name."""
    task: str
    status: str
    """As `ledger.counting` has it; or running: no result yet, or killed; or broken: its files
    cannot be read."""
    reward: float | None = None
    reason: str | None = None
    """Why it has no reward; None where it has one, or was scored with something else."""
    exception: str | None = None
    why: str | None = None
    """What else the page says of it, such as why its files cannot be read."""
    agent: str | None = None
    model: str | None = None
    dataset: str | None = None
    seconds: float | None = None
    cost_usd: float | None = None
    when: str | None = None
    findings: int = 0
    """Integrity findings."""
    worst: Level | None = None
    """The highest level among them."""

    @property
    def state(self) -> str:
        """scored; errored, unscored: without a reward; else what its status says."""
        if found := _STATES.get(self.status):
            return found
        if self.reward is not None:
            return SCORED
        return ERRORED if self.is_errored else UNSCORED

    @property
    def is_errored(self) -> bool:
        """Whether it raised an exception, reward or not."""
        return self.exception is not None

    @property
    def grade(self) -> str:
        """The one scale of colours: full, part or none of a reward, else the state."""
        state = self.state
        if state != SCORED or self.reward is None:
            return state
        return "full" if self.reward >= PASS_MARK else "none" if self.reward <= 0 else "part"

    @property
    def text(self) -> str:
        """What stands in its place."""
        state = self.state
        if self.reward is not None and state in (SCORED, SUPERSEDED, ASIDE, ATTEMPT):
            return f"{self.reward:.3g}"
        return _TEXTS.get(state, "-")


_TEXTS = {ERRORED: "E", RUNNING: "…", BROKEN: "?", WITHHELD: "w"}


@dataclass(frozen=True, slots=True)
class Tally:
    """Trials by what became of them; a mean is never without it."""

    account: Account
    """Of those that ended."""
    errored: int
    """Of those that count, whatever they scored."""
    running: int = 0
    broken: int = 0

    @property
    def unscored(self) -> int:
        """Ended, without a reward."""
        return self.account.counted - self.account.scored

    @property
    def mean(self) -> float | None:
        """Over all that count, a missing reward counted as 0: harbor's rule, as on boards."""
        return self.account.mean_errors_as_zero


def count_marks(marks: Sequence[Mark]) -> Tally:
    """What these come to."""
    ended = [mark for mark in marks if mark.status not in _NOT_ENDED]
    running = sum(mark.status == RUNNING for mark in marks)
    return Tally(
        account=account_for(ended),
        errored=sum(count_exceptions(ended).values()),
        running=running,
        broken=len(marks) - len(ended) - running,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """An experiment or a job, as far as it has got."""

    name: str
    marks: list[Mark]
    is_finished: bool
    """Whether a job says that it ran to its end; an experiment of a ledger never does."""
    is_job: bool
    version: str
    """Differs where anything of it does."""
    planned: int | None = None
    """Trials that were to be run, where somebody says so."""
    problems: tuple[str, ...] = ()
    """Files that cannot be used, and why."""
    boards: tuple[str, ...] = ()
    """Datasets of a ledger whose boards have trials of it."""
    disclosed: str | None = None
    """What its ledger withheld without naming a trial, in a sentence."""
    published: dict[str, str] = field(default_factory=dict)
    """What a job's result.json gives as its metrics, by group and metric."""
