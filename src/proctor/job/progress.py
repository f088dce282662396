"""The statistics of a job, while it runs and at its end.

While it runs they are harbor's live ones: trials in the order they ended, no pass@k. At the end
they are recomputed in plan order. Only the counted values of a trial are kept, never its whole
result: ten thousand of them take a few megabytes. Does not write files.
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

# Up to this many trials, live metrics are recomputed after each one: that is fast enough.
_ALWAYS_FRESH = 1000


def local_now() -> datetime:
    """Local time without a zone: harbor's format for a job's own times."""
    return datetime.now(UTC).astimezone().replace(tzinfo=None)


class Progress:
    """Results by slot, and the statistics over them."""

    def __init__(self, n_planned: int, metrics: Metrics, *, live_metrics: Metrics) -> None:
        self.stats = JobStats()
        """harbor's live statistics."""
        self.n_retries = 0
        """Number of retries."""
        self.notes: list[str] = []
        """Metrics without a value, and why."""
        self._rows: list[Trial | None] = [None] * n_planned
        self._metrics = metrics
        self._live_metrics = live_metrics
        self._running = 0
        self._done: dict[str, Trial] = {}
        self._table: TrialTable | None = None
        """In the order they ended; built when needed."""
        self._planned: TrialTable | None = None
        """In plan order; built when needed."""

    @property
    def n_planned(self) -> int:
        """Slots in the plan."""
        return len(self._rows)

    @property
    def n_done(self) -> int:
        """Slots with a result."""
        return len(self._done)

    def begin(self) -> None:
        """Count a trial that begins."""
        self._running += 1
        self._count_progress()

    def end(self, index: int, row: Trial) -> None:
        """Count a trial that ended with a result."""
        self._running -= 1
        self.keep(index, row)
        if len(self._done) <= _ALWAYS_FRESH:
            self.refresh_metrics()

    def keep(self, index: int, row: Trial) -> None:
        """Record the result of a slot."""
        self._rows[index] = row
        self._done[row.name] = row
        if self._table is not None:
            self._table.append(row)
        self._planned = None
        count_trial(self.stats, row)
        self._count_progress()

    def leave(self) -> None:
        """Count a trial that ended without a result that counts, or is retried."""
        self._running -= 1
        self._count_progress()

    def refresh_metrics(self) -> None:
        """Recompute the metrics of the live statistics."""
        if self._table is None:
            self._table = TrialTable(self._done.values())
        for key, entry in self.stats.evals.items():
            group = self._table.groups.get(key)
            metrics = self._live_metrics.get(group.dataset, ()) if group else ()
            entry.metrics = list(_compute(metrics, group, [])) if group else []

    def names(self) -> list[str]:
        """Names of the trials with a result, in plan order."""
        return [row.name for row in self._rows if row is not None]

    def table(self) -> TrialTable:
        """The trials with a result, in plan order."""
        if self._planned is None:
            self._planned = TrialTable(row for row in self._rows if row is not None)
        return self._planned

    def final_stats(self) -> JobStats:
        """Compute the final statistics."""
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
    """Compute the metrics of a group; one without a value ends neither the job nor the others."""
    for metric in metrics:
        try:
            yield metric(group.column)
        except (ArithmeticError, ValueError, MetricError) as error:
            notes.append(f"{group.key}: a metric has no value: {error}")
