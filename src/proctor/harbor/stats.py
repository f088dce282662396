"""Aggregate trials to JobStats, and render a job's result.json with harbor's exact bytes.

    assemble_final, assemble_live   the counters, reward_stats, metrics and pass@k of many trials
    count_trial, uncount_trial      update the counters as trials end and are retried
    render_result                   the text of result.json

Trials are stored in columns, one table per job, in the order in which harbor adds them up. The
figures are harbor's, including odd ones: removing a trial can leave empty lists and negative
counters. Does not read or write files.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial, reduce
from itertools import compress
from operator import add
from typing import Any, Protocol, Self

import msgspec

from proctor.harbor.render import render_json, render_time
from proctor.reward.metric import RewardColumn, compute_metric
from proctor.reward.number import Number
from proctor.reward.passk import pass_at_k
from proctor.reward.steps import Verdict

type MetricEntry = Mapping[str, object]
type Metric = Callable[[RewardColumn], MetricEntry]

ADHOC = "adhoc"
"""Dataset name of trials without a dataset."""

CANCELLED = "CancelledError"


class Usage(msgspec.Struct, frozen=True, gc=False):
    """Tokens and cost of one trial; None if not reported."""

    n_input_tokens: int | None = None
    """All input, including cached tokens."""
    n_cache_tokens: int | None = None
    n_output_tokens: int | None = None
    cost_usd: float | None = None


NO_USAGE = Usage()


def total_usage(parts: Iterable[Usage]) -> Usage:
    """Sum the usage of a trial's steps; what no step reported stays None."""
    columns = zip(*(msgspec.structs.astuple(part) for part in parts), strict=True)
    return Usage(*map(_add_reported, columns))


def _add_reported(column: Iterable[Any]) -> Any:
    reported = [value for value in column if value is not None]
    return reduce(add, reported) if reported else None


class Trial(msgspec.Struct, frozen=True, gc=False):
    """The values of a trial that count for its job."""

    name: str
    task: str
    agent: str
    model: str | None = None
    """Model name without its provider."""
    source: str | None = None
    """Name of the dataset, if the task came from one."""
    verdict: Verdict | None = None
    exception: str | None = None
    """Name of the exception class recorded for the trial."""
    usage: Usage = NO_USAGE

    @property
    def dataset(self) -> str:
        """The dataset under which it is counted."""
        return self.source or ADHOC

    @property
    def evals_key(self) -> str:
        """The group in which it is counted."""
        return evals_key(self.agent, self.model, self.dataset)


class Ended(Protocol):
    """A trial as a result, an operand or a row."""

    @property
    def exception(self) -> str | None:
        """Name of the exception that the trial raised."""
        ...


def count_errored(trials: Iterable[Ended]) -> int:
    """How many of these trials raised an exception, whether or not they were scored."""
    return sum(trial.exception is not None for trial in trials)


def evals_key(agent: str, model: str | None, dataset: str) -> str:
    """The name of a group: `agent__model__dataset`, or `agent__dataset` without a model."""
    return f"{agent}__{model}__{dataset}" if model else f"{agent}__{dataset}"


def dataset_of_key(key: str) -> str:
    """The dataset of a group according to harbor: the text after the last `__` of its key.

    A dataset with `__` in its name is not found this way, and its group gets no metrics.
    """
    return key.split("__")[-1]


class Group:
    """The trials that share an evals key, in columns."""

    __slots__ = ("column", "dataset", "exceptions", "key", "names", "tasks")

    def __init__(self, key: str) -> None:
        self.key = key
        self.dataset = ADHOC
        """Dataset of the latest trial: two datasets can have one key."""
        self.names: list[str] = []
        self.tasks: list[str] = []
        self.column = RewardColumn()
        self.exceptions: dict[str, list[str]] = {}

    def append(self, trial: Trial) -> None:
        """Add the next trial."""
        self.dataset = trial.dataset
        self.names.append(trial.name)
        self.tasks.append(trial.task)
        self.column.append(trial.verdict.rewards if trial.verdict else None)
        if trial.exception is not None:
            self.exceptions.setdefault(trial.exception, []).append(trial.name)

    @property
    def n_errored(self) -> int:
        """Trials with an exception."""
        return sum(map(len, self.exceptions.values()))

    @property
    def n_rewarded(self) -> int:
        """Trials with a reward; empty rewards do not count."""
        return sum(1 for rewards in self.column.rewards if rewards)


class TrialTable:
    """Trials in the order in which they are added up: groups of columns, and usage."""

    __slots__ = ("_groups_of", "costs", "groups", "n_trials", "tokens")

    def __init__(self, trials: Iterable[Trial] = ()) -> None:
        self.n_trials = 0
        self.groups: dict[str, Group] = {}
        self._groups_of: dict[tuple[str, str | None, str], Group] = {}
        self.tokens: tuple[list[int], list[int], list[int]] = ([], [], [])
        """Reported input, cache and output tokens."""
        self.costs: list[float] = []
        """Reported costs, in the order in which they are added."""
        for trial in trials:
            self.append(trial)

    def append(self, trial: Trial) -> None:
        """Add the next trial."""
        self.n_trials += 1
        names = (trial.agent, trial.model, trial.dataset)
        group = self._groups_of.get(names)
        if group is None:
            key = evals_key(*names)
            group = self._groups_of[names] = self.groups.setdefault(key, Group(key))
        group.append(trial)
        if trial.usage is not NO_USAGE:
            self._append_usage(trial.usage)

    def _append_usage(self, usage: Usage) -> None:
        counts = (usage.n_input_tokens, usage.n_cache_tokens, usage.n_output_tokens)
        for column, count in zip(self.tokens, counts, strict=True):
            if count is not None:
                column.append(count)
        if usage.cost_usd is not None:
            self.costs.append(usage.cost_usd)


class Denominators(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of trials: planned = run + broken + not_run; run = scored + zero_by_missing."""

    planned: int
    """Planned trials."""
    run: int
    """Trials with a readable result."""
    scored: int
    """Trials with a reward."""
    errored: int
    """Trials with an exception, whether or not they have a reward."""
    zero_by_missing: int
    """Trials without a reward, which harbor counts as 0."""
    broken: int
    """Trials with an unreadable result: in no number."""
    not_run: int
    """Trials without a result: in no number."""

    @classmethod
    def of(cls, table: TrialTable, *, planned: int, broken: int = 0) -> Self:
        """Count the trials of a table; below 0 are not run if there are more than planned."""
        scored = sum(group.n_rewarded for group in table.groups.values())
        return cls(
            planned=planned,
            run=table.n_trials,
            scored=scored,
            errored=sum(group.n_errored for group in table.groups.values()),
            zero_by_missing=table.n_trials - scored,
            broken=broken,
            not_run=planned - table.n_trials - broken,
        )


class GroupStats(msgspec.Struct):
    """One entry of `evals`, in harbor's field order."""

    n_trials: int = 0
    """Trials with rewards."""
    n_errors: int = 0
    """Trials with an exception; they may have rewards too."""
    metrics: list[MetricEntry] = []
    pass_at_k: dict[int, float] = {}
    reward_stats: dict[str, dict[Number, list[str]]] = {}
    """Trial names by reward key and value. 1 and 1.0 are one value; the first decides its text."""
    exception_stats: dict[str, list[str]] = {}


class JobStats(msgspec.Struct):
    """`stats` of a job's result.json, in harbor's field order."""

    n_completed_trials: int = 0
    """Trials that ended, including errored ones."""
    n_errored_trials: int = 0
    n_running_trials: int = 0
    n_pending_trials: int = 0
    n_cancelled_trials: int = 0
    n_retries: int = 0
    evals: dict[str, GroupStats] = {}
    n_input_tokens: int | None = None
    n_cache_tokens: int | None = None
    n_output_tokens: int | None = None
    cost_usd: float | None = None

    def count_progress(
        self, total: int, *, running: int = 0, cancelled: int | None = None, retries: int = 0
    ) -> None:
        """Set the counters that depend on the plan instead of on finished trials."""
        self.n_running_trials = running
        self.n_pending_trials = max(total - self.n_completed_trials - running, 0)
        if cancelled is not None:
            self.n_cancelled_trials = cancelled
        self.n_retries = retries


def builtin_metrics(names: Iterable[str]) -> list[Metric]:
    """Built-in metrics by name, ready to compute."""
    return [partial(compute_metric, name) for name in names]


def assemble_final(table: TrialTable, metrics: Mapping[str, Sequence[Metric]]) -> JobStats:
    """Stats of a finished job, as harbor writes them at the end."""
    stats = _assemble(table)
    for key, group in table.groups.items():
        entry = stats.evals[key]
        entry.metrics = [metric(group.column) for metric in metrics.get(dataset_of_key(key), ())]
        entry.pass_at_k = pass_at_k(group.tasks, group.column)
    return stats


def assemble_live(table: TrialTable, metrics: Mapping[str, Sequence[Metric]]) -> JobStats:
    """Stats of a running job, as in harbor: no pass@k, and no metrics before a trial ends."""
    stats = _assemble(table)
    for key, group in table.groups.items():
        if len(group.column):
            found = metrics.get(group.dataset, ())
            stats.evals[key].metrics = [metric(group.column) for metric in found]
    return stats


def _assemble(table: TrialTable) -> JobStats:
    stats = JobStats(n_completed_trials=table.n_trials)
    for key, group in table.groups.items():
        n_errors = group.n_errored
        stats.evals[key] = GroupStats(
            n_trials=group.column.n_scored,
            n_errors=n_errors,
            reward_stats=_count_rewards(group),
            exception_stats=group.exceptions,
        )
        stats.n_errored_trials += n_errors
        stats.n_cancelled_trials += len(group.exceptions.get(CANCELLED, ()))
    n_input, n_cache, n_output = (sum(column) if column else None for column in table.tokens)
    stats.n_input_tokens, stats.n_cache_tokens, stats.n_output_tokens = n_input, n_cache, n_output
    # As in harbor, costs are added one by one, without the compensation of sum().
    stats.cost_usd = reduce(add, table.costs, 0.0) if table.costs else None
    return stats


def _count_rewards(group: Group) -> dict[str, dict[Number, list[str]]]:
    column = group.column
    if len(column.keys) == 1:
        (key,) = column.keys
        scored = column.rewards
        return {key: _names_by_value(compress(column.first, scored), compress(group.names, scored))}
    counted: dict[str, dict[Number, list[str]]] = {}
    for rewards, name in zip(column.rewards, group.names, strict=True):
        for key, value in (rewards or {}).items():
            counted.setdefault(key, {}).setdefault(value, []).append(name)
    return counted


def _names_by_value(values: Iterable[Number], names: Iterable[str]) -> dict[Number, list[str]]:
    # nan equals nothing, but the NaN of reward.json is one object, so such trials share a key,
    # while each nan of reward.txt is a new object with its own key. Dict lookup does both.
    counted: dict[Number, list[str]] = {}
    for value, name in zip(values, names, strict=True):
        if value in counted:
            counted[value].append(name)
        else:
            counted[value] = [name]
    return counted


def stats_document(stats: JobStats) -> dict[str, object]:
    """Convert stats to the mapping in result.json, keys in harbor's order."""
    document = msgspec.structs.asdict(stats)
    document["evals"] = {key: msgspec.structs.asdict(entry) for key, entry in stats.evals.items()}
    return document


def count_trial(stats: JobStats, trial: Trial) -> None:
    """Add a finished trial."""
    stats.n_completed_trials += 1
    entry = _entry_of(stats, trial)
    if trial.verdict is not None and trial.verdict.rewards is not None:
        entry.n_trials += 1
        for key, value in trial.verdict.rewards.items():
            entry.reward_stats.setdefault(key, {}).setdefault(value, []).append(trial.name)
    if trial.exception is not None:
        entry.exception_stats.setdefault(trial.exception, []).append(trial.name)
        _count_error(stats, entry, trial.exception, +1)
    for name, used in _usage_of(trial):
        setattr(stats, name, (getattr(stats, name) or 0) + used)


def uncount_trial(stats: JobStats, trial: Trial) -> None:
    """Remove a trial that is retried."""
    stats.n_completed_trials -= 1
    entry = _entry_of(stats, trial)
    if trial.verdict is not None and trial.verdict.rewards is not None:
        entry.n_trials -= 1
        for key, value in trial.verdict.rewards.items():
            _drop_name(entry.reward_stats.get(key, {}).get(value, []), trial.name)
    if trial.exception is not None:
        _drop_name(entry.exception_stats.get(trial.exception, []), trial.name)
        _count_error(stats, entry, trial.exception, -1)
    for name, used in _usage_of(trial):
        total = getattr(stats, name)
        if total is not None:
            # Keep the type: 0 for tokens, 0.0 for money.
            setattr(stats, name, max(type(total)(0), total - used))


def _entry_of(stats: JobStats, trial: Trial) -> GroupStats:
    key = trial.evals_key
    return stats.evals.setdefault(key, GroupStats())


def _count_error(stats: JobStats, entry: GroupStats, exception: str, change: int) -> None:
    entry.n_errors += change
    stats.n_errored_trials += change
    if exception == CANCELLED:
        stats.n_cancelled_trials += change


def _usage_of(trial: Trial) -> list[tuple[str, int | float]]:
    usage = trial.usage
    reported = [
        ("n_input_tokens", usage.n_input_tokens),
        ("n_cache_tokens", usage.n_cache_tokens),
        ("n_output_tokens", usage.n_output_tokens),
        ("cost_usd", usage.cost_usd),
    ]
    return [(name, used) for name, used in reported if used is not None]


def _drop_name(names: list[str], name: str) -> None:
    if name in names:
        names.remove(name)


_INDENT = 4


class JobResult(msgspec.Struct, frozen=True):
    """A job's result, in harbor's field order."""

    id: str
    """The job's UUID."""
    started_at: datetime
    """Local time, without a zone."""
    updated_at: datetime | None
    """UTC while the job runs; local time without a zone at its start and end."""
    finished_at: datetime | None
    """Local time, without a zone; None until the job ran to its end."""
    n_total_trials: int
    """Trials that were planned."""
    stats: JobStats


def render_result(result: JobResult) -> str:
    """Render result.json, without a final newline."""
    document = {
        "id": result.id,
        "started_at": render_time(result.started_at),
        "updated_at": render_time(result.updated_at) if result.updated_at else None,
        "finished_at": render_time(result.finished_at) if result.finished_at else None,
        "n_total_trials": result.n_total_trials,
        "stats": stats_document(result.stats),
    }
    return render_json(document, _INDENT)
