"""One trial as the pages of experiments show it, and what many come to.

A mark is the least that a page of thousands needs. Reports count attempts, which say more and take
longer to read.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

import msgspec

from proctor.report.statistics.efficiency import PASS_MARK
from proctor.reward.metric import mean

SCORED: Final = "scored"
ERRORED: Final = "errored"
UNSCORED: Final = "unscored"
RUNNING: Final = "running"
BROKEN: Final = "broken"
SUPERSEDED: Final = "superseded"
WITHHELD: Final = "withheld"
ASIDE: Final = "aside"

_RUN: Final = frozenset({SCORED, ERRORED, UNSCORED})


class Mark(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One trial."""

    trial: str
    """Its id, or its directory's name."""
    task: str
    state: str
    """scored; errored, unscored: without a reward; running: no result yet, or killed; broken: its
    files cannot be read; superseded, withheld: as the ledger says; aside: of an earlier plan."""
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

    @property
    def is_errored(self) -> bool:
        """Whether something broke, reward or not."""
        return self.state == ERRORED or (self.state == SCORED and self.why is not None)

    @property
    def grade(self) -> str:
        """The one scale of colours: full, part or none of a reward, else the state."""
        if self.state != SCORED or self.reward is None:
            return self.state
        return "full" if self.reward >= PASS_MARK else "none" if self.reward <= 0 else "part"

    @property
    def text(self) -> str:
        """What stands in its place."""
        if self.reward is not None and self.state in (SCORED, SUPERSEDED, ASIDE):
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
    partial: int = 0
    """Of those that ended: records that are not complete."""
    mean: float | None = None
    """Over the scored; what has no reward is not 0. None where none is scored."""

    @property
    def unscored(self) -> int:
        """Ended, without a reward."""
        return self.run - self.scored


def count_marks(marks: Iterable[Mark]) -> Tally:
    """What these come to."""
    states: dict[str, int] = {}
    rewards: list[float] = []
    errored = partial = 0
    for mark in marks:
        states[mark.state] = states.get(mark.state, 0) + 1
        if mark.state == SCORED and mark.reward is not None:
            rewards.append(mark.reward)
        if mark.state in _RUN:
            errored += mark.is_errored
            partial += mark.is_partial
    return Tally(
        run=sum(states.get(state, 0) for state in _RUN),
        scored=len(rewards),
        errored=errored,
        running=states.get(RUNNING, 0),
        broken=states.get(BROKEN, 0),
        superseded=states.get(SUPERSEDED, 0),
        withheld=states.get(WITHHELD, 0),
        aside=states.get(ASIDE, 0),
        partial=partial,
        mean=mean(rewards) if rewards else None,
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
    published: dict[str, str] = field(default_factory=dict)
    """What a job's result.json gives as its metrics, by group and metric."""
