"""One trial as the pages of experiments show it, and what many come to.

A mark is the least that a page of thousands needs. Reports count attempts, which say more and take
longer to read.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from proctor.report.statistics.efficiency import PASS_MARK
from proctor.reward.number import exact_sum
from proctor.trial.finding import Level

SCORED: Final = "scored"
ERRORED: Final = "errored"
UNSCORED: Final = "unscored"
RUNNING: Final = "running"
BROKEN: Final = "broken"
SUPERSEDED: Final = "superseded"
WITHHELD: Final = "withheld"
ASIDE: Final = "aside"
ATTEMPT: Final = "attempt"

_RUN: Final = frozenset({SCORED, ERRORED, UNSCORED})


class Mark(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One trial."""

    trial: str
    """Its id, or its directory's name."""
    task: str
    state: str
    """scored; errored, unscored: without a reward; running: no result yet, or killed; broken: its
    files cannot be read; superseded, withheld: as the ledger says; aside: of an earlier plan;
    attempt: an earlier attempt, kept beside the trial that counts."""
    reward: float | None = None
    why: str | None = None
    """An exception's name, a reason code, or why its files cannot be read."""
    agent: str | None = None
    model: str | None = None
    dataset: str | None = None
    seconds: float | None = None
    cost_usd: float | None = None
    when: str | None = None
    is_partial: bool = False
    """Whether it rests on a partial record; false in a plain job."""
    findings: int = 0
    """Integrity findings."""
    worst: Level | None = None
    """The highest level among them."""
    is_errored: bool = False
    """Whether it raised an exception, reward or not."""
    no_number: bool = False
    """Whether it was scored with something else than a finite `reward`: no rule makes that 0."""

    @property
    def grade(self) -> str:
        """The one scale of colours: full, part or none of a reward, else the state."""
        if self.state != SCORED or self.reward is None:
            return self.state
        return "full" if self.reward >= PASS_MARK else "none" if self.reward <= 0 else "part"

    @property
    def text(self) -> str:
        """What stands in its place."""
        if self.reward is not None and self.state in (SCORED, SUPERSEDED, ASIDE, ATTEMPT):
            return f"{self.reward:.3g}"
        return _TEXTS.get(self.state, "-")


_TEXTS = {ERRORED: "E", RUNNING: "…", BROKEN: "?", WITHHELD: "w"}


@dataclass(frozen=True, slots=True)
class Tally:
    """Trials by what became of them; a mean is never without it."""

    run: int = 0
    """Trials that ended and count."""
    scored: int = 0
    errored: int = 0
    """Of those that ended, whatever they scored."""
    running: int = 0
    broken: int = 0
    superseded: int = 0
    withheld: int = 0
    aside: int = 0
    attempts: int = 0
    """Earlier attempts, kept beside the trials that count."""
    partial: int = 0
    """Of those that ended: records that are not complete."""
    mean: float | None = None
    """Over all that ended, a missing reward counted as 0: harbor's rule, as on boards. None where
    none ended, or one has no number."""

    @property
    def unscored(self) -> int:
        """Ended, without a reward."""
        return self.run - self.scored


def count_marks(marks: Iterable[Mark]) -> Tally:
    """What these come to."""
    states: dict[str, int] = {}
    rewards: list[float] = []
    errored = partial = no_number = 0
    for mark in marks:
        states[mark.state] = states.get(mark.state, 0) + 1
        if mark.state == SCORED and mark.reward is not None:
            rewards.append(mark.reward)
        if mark.state in _RUN:
            errored += mark.is_errored
            partial += mark.is_partial
            no_number += mark.no_number
    run = sum(states.get(state, 0) for state in _RUN)
    return Tally(
        run=run,
        scored=len(rewards),
        errored=errored,
        running=states.get(RUNNING, 0),
        broken=states.get(BROKEN, 0),
        superseded=states.get(SUPERSEDED, 0),
        withheld=states.get(WITHHELD, 0),
        aside=states.get(ASIDE, 0),
        attempts=states.get(ATTEMPT, 0),
        partial=partial,
        mean=mean_of(rewards, run) if not no_number else None,
    )


def mean_of(rewards: Sequence[float], run: int) -> float | None:
    """The mean over the trials that ended, a missing reward counted as 0; None where none did."""
    return exact_sum(rewards) / run if run else None


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
