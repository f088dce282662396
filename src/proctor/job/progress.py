"""The figures of a job while its trials come and go, and at its end.

While it runs they are harbor's live ones: trials in the order they ended, no pass@k. At the end
they are added up anew in the order of the plan. What counts of a trial is kept, never its whole
result: ten thousand of them are a few megabytes. Nothing here writes a file.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime

from proctor.errors import MetricError
from proctor.harbor.stats import (
    Group,
    JobStats,
    Metric,
    MetricEntry,
    Trial,
    TrialTable,
    assemble_final,
    count_trial,
    dataset_of_key,
)

type Metrics = Mapping[str, Sequence[Metric]]
"""Metrics by dataset."""

_ALWAYS_FRESH = 1000
"""Up to so many trials the live metrics are computed whenever a trial ends: it costs nothing."""


def local_now() -> datetime:
    """Now, in local time without a zone: harbor's form for a job's own times."""
    return datetime.now(UTC).astimezone().replace(tzinfo=None)


class Progress:
    """What is known of each slot of a plan, and what it adds up to."""

    def __init__(self, n_planned: int, metrics: Metrics, *, live_metrics: Metrics) -> None:
        self.stats = JobStats()
        """harbor's live figures."""
        self.n_retries = 0
        """How often a failed trial was begun again."""
        self.notes: list[str] = []
        """Metrics that have no value, and why."""
        self._rows: list[Trial | None] = [None] * n_planned
        self._metrics = metrics
        self._live_metrics = live_metrics
        self._running = 0
        self._done: dict[str, Trial] = {}
        self._table: TrialTable | None = None
        """In the order they ended; None until somebody asks."""
        self._planned: TrialTable | None = None
        """In the order of the plan; None until somebody asks."""

    @property
    def n_planned(self) -> int:
        """Slots of the plan."""
        return len(self._rows)

    @property
    def n_done(self) -> int:
        """Slots that have a result."""
        return len(self._done)

    def begin(self) -> None:
        """A trial begins."""
        self._running += 1
        self._count_progress()

    def end(self, index: int, row: Trial) -> None:
        """The trial of a slot ended."""
        self._running -= 1
        self.keep(index, row)
        if len(self._done) <= _ALWAYS_FRESH:
            self.refresh_metrics()

    def keep(self, index: int, row: Trial) -> None:
        """A slot has a result."""
        self._rows[index] = row
        self._done[row.name] = row
        if self._table is not None:
            self._table.append(row)
        self._planned = None
        count_trial(self.stats, row)
        self._count_progress()

    def leave(self) -> None:
        """A trial ended without a result that counts: it has none, or is to be run again."""
        self._running -= 1
        self._count_progress()

    def refresh_metrics(self) -> None:
        """Bring the metrics of the live figures up to date."""
        if self._table is None:
            self._table = TrialTable(self._done.values())
        for key, entry in self.stats.evals.items():
            group = self._table.groups.get(key)
            metrics = self._live_metrics.get(group.dataset, ()) if group else ()
            entry.metrics = list(_compute(metrics, group, [])) if group else []

    def names(self) -> list[str]:
        """The trials that have a result, in the order of the plan."""
        return [row.name for row in self._rows if row is not None]

    def table(self) -> TrialTable:
        """The trials that have a result, in the order of the plan."""
        if self._planned is None:
            self._planned = TrialTable(row for row in self._rows if row is not None)
        return self._planned

    def final_stats(self) -> JobStats:
        """The figures of a job that ran to its end."""
        table = self.table()
        stats = assemble_final(table, {})
        self.notes.clear()
        for key, group in table.groups.items():
            metrics = self._metrics.get(dataset_of_key(key), ())
            stats.evals[key].metrics = list(_compute(metrics, group, self.notes))
        stats.count_progress(self.n_planned, retries=self.n_retries)
        return stats

    def _count_progress(self) -> None:
        self.stats.count_progress(
            self.n_planned, running=max(self._running, 0), retries=self.n_retries
        )


def _compute(metrics: Sequence[Metric], group: Group, notes: list[str]) -> Iterator[MetricEntry]:
    """What the metrics make of a group; one that has no value ends neither the job nor the rest."""
    for metric in metrics:
        try:
            yield metric(group.column)
        except (ArithmeticError, ValueError, MetricError) as error:
            notes.append(f"{group.key}: a metric has no value: {error}")
