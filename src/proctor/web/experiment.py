"""An experiment or a job as pages show it: its rows, the state of each trial, and the counts."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from proctor.harbor.stats import count_errored
from proctor.ledger.counting import (
    RESTARTED,
    SET_ASIDE,
    SUPERSEDED,
    WITHHELD,
    Account,
    account_for,
    counted_trials,
)
from proctor.ledger.query import load_position, snapshot, with_restarted
from proctor.ledger.reader import LedgerReader
from proctor.ledger.row import TrialRow
from proctor.ledger.trial_index import TrialFilter
from proctor.record.reasons import NO_NUMBER, NOT_SCORED, outcome_of
from proctor.report.board.numbers import RowNumbers, count_row
from proctor.report.statistics.efficiency import PASS_MARK, efficiency_of
from proctor.sentence import render_figure
from proctor.trial.finding import Level, worst_level

SCORED: Final = "scored"
ERRORED: Final = "errored"
UNSCORED: Final = "unscored"
NUMBERLESS: Final = "numberless"
"""Scored without a number."""
RUNNING: Final = "running"
"""A status that only jobs have: the trial has no result yet, or was killed."""
BROKEN: Final = "broken"
"""A status that only jobs have: its files cannot be read; `exception` says why."""
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
_TEXTS: Final = {ERRORED: "E", NUMBERLESS: "n/a", RUNNING: "…", BROKEN: "?", WITHHELD: "w"}


def state_of(row: TrialRow) -> str:
    """Return scored or numberless; errored or unscored, both not scored; else the status."""
    if found := _STATES.get(row.status):
        return found
    outcome = outcome_of(row)
    if outcome == NOT_SCORED:
        return ERRORED if is_errored(row) else UNSCORED
    return NUMBERLESS if outcome == NO_NUMBER else SCORED


def is_errored(row: TrialRow) -> bool:
    """Whether the trial raised an exception, reward or not."""
    return row.exception is not None and row.status not in _NOT_ENDED


def grade_of(row: TrialRow) -> str:
    """Colour class: full, partial or no reward, else the state."""
    state = state_of(row)
    if state != SCORED or row.reward is None:
        return state
    return "full" if row.reward >= PASS_MARK else "none" if row.reward <= 0 else "part"


def text_of(row: TrialRow) -> str:
    """Text of its table cell."""
    state = state_of(row)
    if row.reward is not None and state in (SCORED, SUPERSEDED, ASIDE, ATTEMPT):
        return render_figure(row.reward)
    return _TEXTS.get(state, "-")


def why_of(row: TrialRow) -> str:
    """The exception, or why it has no reward."""
    return row.exception or row.reason_code or ""


@dataclass(frozen=True, slots=True)
class Tally:
    """Counts of trials by state, shown with every mean."""

    account: Account
    """Counts of those that ended."""
    errored: int
    """How many of those that count raised an exception, whatever they scored."""
    running: int = 0
    broken: int = 0

    @property
    def mean(self) -> float | None:
        """Mean over all that count, a missing reward counted as 0: harbor's rule, as on boards."""
        return self.account.mean_errors_as_zero


def ended_trials(rows: Sequence[TrialRow]) -> list[TrialRow]:
    """The trials that ended and could be read."""
    return [row for row in rows if row.status not in _NOT_ENDED]


def count_trials(rows: Sequence[TrialRow]) -> Tally:
    """Count these trials."""
    ended = ended_trials(rows)
    running = sum(row.status == RUNNING for row in rows)
    return Tally(
        account=account_for(ended),
        errored=count_errored(counted_trials(ended)),
        running=running,
        broken=len(rows) - len(ended) - running,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """An experiment or a job so far."""

    name: str
    trials: list[TrialRow]
    is_finished: bool
    """Whether a job reports to be finished; always False for an experiment of a ledger."""
    is_job: bool
    version: str
    """Changes whenever the experiment does."""
    planned: int | None = None
    """Number of planned trials, if known."""
    problems: tuple[str, ...] = ()
    """Unusable files, and why."""
    boards: tuple[str, ...] = ()
    """Datasets of a ledger whose boards include its trials."""
    published: dict[str, str] = field(default_factory=dict)
    """Metrics from a job's result.json, by group and metric."""


# Experiments of a ledger


def load_sealed(ledger: LedgerReader, name: str) -> Experiment | None:
    """Load an experiment's current trials; None if there is none of that name."""
    # Read the version first: trials sealed meanwhile then get a newer version, and the page
    # reloads.
    with snapshot(ledger):
        version = ledger.index.experiment_version(name)
    if version is None:
        return None
    found = load_position(ledger, experiment=name)
    return Experiment(
        name=name,
        trials=found.trials,
        is_finished=False,
        is_job=False,
        version=version,
        boards=tuple(sorted({row.dataset_id for row in found.trials if row.dataset_id})),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """An experiment in a list."""

    name: str
    tally: Tally
    agents: tuple[str, ...]
    models: tuple[str, ...]
    datasets: tuple[str, ...]
    when: str
    """When its last trial was sealed."""
    is_mixed: bool
    """Whether it mixes several agents, models or datasets."""
    numbers: RowNumbers
    """As on a board; the score and the pass rate mean nothing if it is mixed."""
    seconds: float | None
    """Time of all trials together; None if that of one is unknown."""
    alarms: int
    """Trials with an integrity finding that casts doubt on their score."""

    @property
    def statuses(self) -> list[tuple[str, str]]:
        """What is special about its trials, each with its tone."""
        account = self.tally.account
        counts = (
            (self.alarms, "with an alarm", "bad"),
            (account.withheld, "withheld", "warn"),
            (account.diagnostic, "partial", "warn"),
            (account.superseded, "superseded", ""),
            (account.begun_again, "restarted", ""),
        )
        found = [(f"{count:,} {what}", tone) for count, what, tone in counts if count]
        return found or [("sealed", "good")]


def list_experiments(
    ledger: LedgerReader, *, words: str = "", first: int = 0, count: int = 50
) -> tuple[int, list[Listed]]:
    """Return how many experiments match, and a page of them, most recently sealed first."""
    with snapshot(ledger):
        found = ledger.index.experiments(words)
        listed = []
        for name, seq in found[first : first + count]:
            # One experiment at a time: a page of large ones would take much memory.
            rows = list(ledger.index.trials(TrialFilter(experiments=(name,))))
            last = ledger.index.entry(seq)
            listed.append(_list(name, with_restarted(rows), last.at if last else ""))
    return len(found), listed


def _list(name: str, trials: list[TrialRow], when: str) -> Listed:
    groups = {(row.agent, row.model, row.dataset_id) for row in trials if row.status != WITHHELD}
    counted = counted_trials(trials)
    return Listed(
        name=name,
        tally=count_trials(trials),
        agents=_distinct([agent for agent, _, _ in groups]),
        models=_distinct([model for _, model, _ in groups]),
        datasets=_distinct([dataset for _, _, dataset in groups]),
        when=when,
        is_mixed=len(groups) > 1,
        numbers=count_row(trials),
        seconds=efficiency_of(counted).seconds.total,
        alarms=sum(worst_level(row.findings) is Level.ALARM for row in counted),
    )


def _distinct(names: Sequence[str | None]) -> tuple[str, ...]:
    return tuple(sorted({name for name in names if name is not None}))
