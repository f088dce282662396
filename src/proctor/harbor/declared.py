"""Which metrics a job declares, for each dataset.

A job's config.json lists its metrics and datasets. Metrics that a registry or package adds are not
in the job; they are inferred from the published result, and marked as inferred.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath

import msgspec

from proctor.harbor.documents import JobConfigDocument, MetricConfig
from proctor.harbor.render import render_json
from proctor.harbor.stats import ADHOC
from proctor.reward.metric import DEFAULT_METRIC, METRICS, RewardColumn, compute_metric

SCRIPT = "uv-script"


class DeclaredMetric(msgspec.Struct, frozen=True):
    """One declared metric of a dataset."""

    name: str
    """mean, max, min, sum, or uv-script."""
    script: Path | None = None
    """The metric script, for uv-script."""
    inferred: bool = False
    """Not declared in any file; suggested by the published metric names."""


def declared_metrics(
    config: JobConfigDocument | None, sources: Iterable[str] = ()
) -> dict[str, list[DeclaredMetric]]:
    """Metrics by dataset name, for the datasets whose metrics config.json determines.

    Registry and package datasets are left out: their own metrics take precedence over the job's.
    `sources` are dataset names in trials: harbor resolves a path to name a dataset, so the name for
    `.` or a link is only in the trials.
    """
    config = config or JobConfigDocument()
    own = [_declared(metric) for metric in config.metrics]
    declared: dict[str, list[DeclaredMetric]] = {ADHOC: list(own)}
    for dataset in config.datasets:
        if dataset.path is not None:
            declared.setdefault(PurePosixPath(dataset.path).name, []).extend(own)
    if any(dataset.path is not None for dataset in config.datasets):
        elsewhere = remote_datasets(config)
        for source in sources:
            if source not in elsewhere:
                declared.setdefault(source, list(own))
    return {name: metrics or [DeclaredMetric(DEFAULT_METRIC)] for name, metrics in declared.items()}


def remote_datasets(config: JobConfigDocument | None) -> list[str]:
    """Names of the datasets whose metrics were declared in a registry or package."""
    datasets = config.datasets if config else ()
    return [dataset.name for dataset in datasets if dataset.path is None and dataset.name]


def infer_metrics(
    entries: Iterable[Mapping[str, object]], column: RewardColumn
) -> list[DeclaredMetric]:
    """The metrics that would have published these entries for these rewards.

    With one reward key an entry has its metric's name. With several it has the keys, and the metric
    that gives the published values is chosen. An entry of any other form was made by a script.
    """
    found = [DeclaredMetric(_infer(entry, column), inferred=True) for entry in entries]
    return found or [DeclaredMetric(DEFAULT_METRIC, inferred=True)]


def _infer(entry: Mapping[str, object], column: RewardColumn) -> str:
    if len(column.keys) <= 1:
        return next((name for name in METRICS if list(entry) == [name]), SCRIPT)
    if sorted(entry) != sorted(column.keys):
        return SCRIPT
    text = render_json(entry)
    for name in METRICS:
        # Whole numbers can be too large for a mean.
        with suppress(ArithmeticError):
            if render_json(compute_metric(name, column)) == text:
                return name
    return DEFAULT_METRIC


def _declared(metric: MetricConfig) -> DeclaredMetric:
    script = metric.kwargs.get("script_path")
    return DeclaredMetric(metric.type, Path(str(script)) if script is not None else None)
