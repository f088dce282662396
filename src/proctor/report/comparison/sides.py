"""The sides of a comparison: trials of one agent and model by task, and how they behaved."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

import msgspec

from proctor.ledger.row import TrialRow
from proctor.report.behaviour import Behaviour
from proctor.report.groups import Group, choose_group, group_by_task
from proctor.report.runs import Run
from proctor.report.statistics.intervals import Interval
from proctor.report.statistics.paired import compare_paired
from proctor.traces.labels import LABELS
from proctor.traces.trial_summary import TrialSummary, average


@dataclass(frozen=True, slots=True)
class Side:
    """Side A or B."""

    letter: str
    run: Run
    group: Group
    tasks: dict[str, tuple[TrialRow, ...]]
    """Trials by task, tasks sorted."""

    @property
    def trials(self) -> list[TrialRow]:
        """All trials, task after task."""
        return [trial for trials in self.tasks.values() for trial in trials]

    def narrowed(self, tasks: Iterable[str]) -> "Side":
        """The side with only some of its tasks."""
        kept = set(tasks)
        return Side(
            self.letter,
            self.run,
            self.group,
            {task: trials for task, trials in self.tasks.items() if task in kept},
        )


def make_side(letter: str, run: Run, wanted: str | None = None) -> Side:
    """Make the side of a run; `wanted` chooses among several agents and models."""
    group, trials = choose_group(run, wanted, f"--{letter.lower()}")
    return Side(letter, run, group, group_by_task(trials))


# Behaviour: a mean on each side, and the difference task by task
#
# Unknown values are not 0 but missing; every mean states its number of trials.


type _OfTrial = Callable[[TrialSummary], float | None]
type _OfAttempt = Callable[[TrialRow], float | None]


class Mean(msgspec.Struct, frozen=True, kw_only=True):
    """A mean over the trials with a known value."""

    mean: float | None
    """Null if there are none."""
    n: int
    of: int
    """The number of all trials."""


class Measure(msgspec.Struct, frozen=True, kw_only=True):
    """One measure on both sides."""

    name: str
    unit: str
    """share, count, seconds, tokens or USD."""
    a: Mean
    b: Mean
    difference: float | None
    """A minus B, over tasks known on both sides; null if there are none."""
    interval: Interval | None
    """Of the difference, by resampling tasks."""
    n_tasks: int
    """Tasks known on both sides."""


def _share(label: str) -> _OfTrial:
    def of(trial: TrialSummary) -> float | None:
        behaviour = trial.trace.behaviour
        return (
            behaviour.shares.get(label, 0.0) if behaviour is not None and behaviour.turns else None
        )

    return of


def _traced(of: Callable[[TrialSummary], float]) -> _OfTrial:
    return lambda trial: of(trial) if trial.has_trace else None


_OF_TRACES: Final[dict[str, tuple[str, _OfTrial]]] = {
    **{label: ("share", _share(label)) for label in LABELS},
    "turns": ("count", _traced(lambda trial: trial.trace.turns)),
    "tool calls": ("count", _traced(lambda trial: trial.trace.tool_calls)),
    "tool errors": ("count", _traced(lambda trial: trial.trace.errors.total)),
    "tool error rate": ("share", lambda trial: trial.trace.errors.rate),
    "repeated calls": ("count", _traced(lambda trial: trial.trace.loops.repeats)),
    "longest loop": (
        "count",
        _traced(lambda t: t.trace.loops.longest.times if t.trace.loops.longest else 0),
    ),
    "agent's wall time": ("seconds", lambda trial: trial.trace.times.wall_seconds),
}
OF_TRACES: Final = frozenset(_OF_TRACES)
"""The measures that need a trace."""
_OF_RECORDS: Final[dict[str, tuple[str, _OfAttempt]]] = {
    "trial's time": ("seconds", lambda attempt: attempt.seconds),
    "tokens in": ("tokens", lambda attempt: attempt.tokens_in),
    "tokens out": ("tokens", lambda attempt: attempt.tokens_out),
    "cost": ("USD", lambda attempt: attempt.cost_usd),
}


def measure_sides(a: Side, b: Side, behaviour: Behaviour | None) -> tuple[Measure, ...]:
    """All measures of the sides; those from traces only if traces were read."""
    found = []
    if behaviour is not None:
        for name, (unit, of) in _OF_TRACES.items():
            found.append(_measure(name, unit, a, b, _in_trace(behaviour, of)))
    for name, (unit, of_attempt) in _OF_RECORDS.items():
        found.append(_measure(name, unit, a, b, of_attempt))
    return tuple(found)


def _in_trace(behaviour: Behaviour, of: _OfTrial) -> _OfAttempt:
    return lambda attempt: of(behaviour.trials[attempt.name])


def _measure(name: str, unit: str, a: Side, b: Side, of: _OfAttempt) -> Measure:
    by_task = [
        {
            task: [value for each in found if (value := of(each)) is not None]
            for task, found in side.tasks.items()
        }
        for side in (a, b)
    ]
    paired = compare_paired(*by_task)
    means = [average(value for values in tasks.values() for value in values) for tasks in by_task]
    return Measure(
        name=name,
        unit=unit,
        a=Mean(mean=means[0].mean, n=means[0].n, of=len(a.trials)),
        b=Mean(mean=means[1].mean, n=means[1].n, of=len(b.trials)),
        difference=paired.difference,
        interval=paired.interval,
        n_tasks=paired.n_tasks,
    )
