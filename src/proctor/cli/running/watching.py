"""The state of a running job, and the lines that report it. Control characters are escaped."""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from proctor.cli.tables import render_metric
from proctor.harbor.stats import JobStats
from proctor.harbor.trial_result import ExceptionInfo, TrialResult
from proctor.sentence import (
    count_of,
    printable,
    render_duration,
    render_errored,
    render_figure,
    render_money,
)
from proctor.traces.failures import find_message, name_exception

type Clock = Callable[[], float]

_MOST_REWARDS = 4
# Characters shown of a message.
_LONGEST = 200
# No time is estimated before so many trials have ended and so many seconds have passed.
_FEWEST_ENDED, _SOONEST = 2, 20.0


@dataclass(slots=True)
class RunningTrial:
    """A trial that is running."""

    name: str
    attempt: int
    began: float
    """When it began, by the monotonic clock."""
    phase: str = "begins"
    spent: str = ""
    """Its requests to models so far, and their cost."""


@dataclass(slots=True)
class Progress:
    """The state of a running job."""

    clock: Clock = time.monotonic
    n_total: int = 0
    n_kept: int = 0
    running: dict[str, RunningTrial] = field(default_factory=dict)
    stats: JobStats = field(default_factory=JobStats)
    began: float | None = None
    """When the first trial began, by the clock; None before."""

    @property
    def seconds_left(self) -> float | None:
        """An estimate, from the trials that ended so far; None while it would be a guess."""
        n_ended, n_left = self.n_done - self.n_kept, self.n_total - self.n_done
        passed = 0.0 if self.began is None else self.clock() - self.began
        if n_ended < _FEWEST_ENDED or passed < _SOONEST or n_left <= 0:
            return None
        return passed * n_left / n_ended

    @property
    def n_done(self) -> int:
        """Trials with a result; one that will be retried has none."""
        return max(self.n_kept, self.stats.n_completed_trials)

    def start(self, trial: str, attempt: int) -> None:
        """A trial begins."""
        if self.began is None:
            self.began = self.clock()
        self.running[trial] = RunningTrial(trial, attempt, self.clock())

    def enter(self, trial: str, phase: str) -> None:
        """A trial enters a phase."""
        if found := self.running.get(trial):
            found.phase = phase

    def spend(self, trial: str, n_requests: int, cost_usd: float | None) -> None:
        """A trial has made requests to models."""
        if found := self.running.get(trial):
            cost = "" if cost_usd is None else f", {render_money(cost_usd)}"
            found.spent = f"{count_of(n_requests, 'request')}{cost}"

    def end(self, trial: str, stats: JobStats) -> None:
        """A trial ended."""
        self.running.pop(trial, None)
        self.stats = stats

    def retry(self, trial: str) -> None:
        """A trial waits to be retried."""
        self.running.pop(trial, None)


def render_means(stats: JobStats) -> list[str]:
    """The metrics so far, a line for each group."""
    lines = []
    for key, group in stats.evals.items():
        values = [
            f"{label} {render_metric(value)}"
            for entry in group.metrics
            for label, value in entry.items()
        ]
        if values:
            lines.append(printable(f"{', '.join(values)}  {key}"))
    return lines


def render_basis(progress: Progress) -> str:
    """The denominators of the metrics so far."""
    stats = progress.stats
    run = stats.n_completed_trials
    scored = sum(group.n_trials for group in stats.evals.values())
    return (
        f"{run} run = {scored} scored + {run - scored} missing (counted as 0); "
        f"{render_errored(stats.n_errored_trials)}; {progress.n_total - progress.n_done} to go"
    )


def render_ended(progress: Progress, trial: str, result: TrialResult) -> str:
    """One ended trial: name, reward or exception, seconds."""
    verified, error = result.verifier_result, result.exception_info
    parts = [_render_exception(error)] if error else []
    parts.append(_render_rewards(verified.rewards if verified else None))
    seconds = _seconds_of(result)
    took = f", {render_duration(seconds)}" if seconds is not None else ""
    count = f"[{progress.n_done}/{progress.n_total}]"
    left = f"; {said}" if (said := render_left(progress)) else ""
    return printable(f"{count} {trial}: {', '.join(parts)}{took}{left}")


def render_left(progress: Progress) -> str:
    """How long the rest of the job will take; empty while that is unknown."""
    seconds = progress.seconds_left
    return "" if seconds is None else f"about {render_duration(max(round(seconds), 1))} left"


def shorten(line: str) -> str:
    """A line, cut if it is too long for a terminal."""
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"


def _render_exception(error: ExceptionInfo) -> str:
    message = find_message(error.exception_message)
    kind = name_exception(error.exception_type)
    return f"{kind} ({message})" if message else kind


def render_waiting(trial: str, attempt: int, result: TrialResult, delay_sec: float) -> str:
    """A failed attempt that will be retried."""
    error = result.exception_info
    why = f": {_render_exception(error)}" if error else ""
    wait = render_duration(delay_sec)
    return printable(f"{trial}: attempt {attempt} failed{why}; retrying in {wait}")


def render_planned(n_total: int, n_kept: int) -> str:
    """The size of a job."""
    kept = f", {n_kept} of them done already" if n_kept else ""
    return f"{n_total} {'trial' if n_total == 1 else 'trials'}{kept}"


def render_running(
    trials: Sequence[RunningTrial], now: float, rows: int
) -> list[tuple[str, str, str]]:
    """Name, phase and seconds of running trials, the longest first, limited to `rows`."""
    by_age = sorted(trials, key=lambda trial: trial.began)
    shown = by_age if len(by_age) <= rows else by_age[: max(rows - 1, 0)]
    lines = [
        (
            printable(_name_of(trial)),
            _render_phase(trial),
            render_duration(max(now - trial.began, 0)),
        )
        for trial in shown
    ]
    if rest := by_age[len(shown) :]:
        phases = Counter(printable(trial.phase) for trial in rest)
        counts = ", ".join(f"{n} {phase}" for phase, n in phases.most_common())
        lines.append((f"… and {len(rest)} more", counts, ""))
    return lines[: max(rows, 0)]


def _render_phase(trial: RunningTrial) -> str:
    return printable(", ".join(filter(None, (trial.phase, trial.spent))))


def _name_of(trial: RunningTrial) -> str:
    return trial.name if trial.attempt == 1 else f"{trial.name} (attempt {trial.attempt})"


def _render_rewards(rewards: dict[str, float | int] | None) -> str:
    if not rewards:
        return "not scored"
    shown = [f"{key} {render_figure(value)}" for key, value in rewards.items()]
    more = f", … {len(shown) - _MOST_REWARDS} more" if len(shown) > _MOST_REWARDS else ""
    return ", ".join(shown[:_MOST_REWARDS]) + more


def _seconds_of(result: TrialResult) -> float | None:
    if result.started_at is None or result.finished_at is None:
        return None
    return (result.finished_at - result.started_at).total_seconds()
