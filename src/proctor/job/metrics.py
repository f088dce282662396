"""Select the metrics that a job computes for each dataset, in harbor's order.

A dataset's own come first: the metric.py of a package, or those a registry declares; then the
job's. The default is the mean. A metric.py runs without further confirmation: a user who runs a job
runs its tasks' code as well.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from proctor.errors import ConfigError
from proctor.harbor.configs import JobConfig, MetricConfig
from proctor.harbor.declared import SCRIPT, DeclaredMetric
from proctor.harbor.stats import ADHOC, Metric, MetricEntry, builtin_metrics
from proctor.job.planned import Resolved
from proctor.reward.metric import DEFAULT_METRIC, RewardColumn
from proctor.reward.script import run_metric_script


def find_metrics(config: JobConfig, resolved: Resolved) -> dict[str, tuple[DeclaredMetric, ...]]:
    """Return the metrics of every dataset of a job, and of tasks without a dataset."""
    own = [declare_metric(metric) for metric in config.metrics]
    found: dict[str, list[DeclaredMetric]] = {ADHOC: list(own)}
    for dataset in resolved.datasets:
        # A dataset that is named twice has its metrics twice, as in harbor.
        found.setdefault(dataset.source, []).extend([*dataset.metrics, *own])
    for task in resolved.tasks:
        # harbor crashes on a task that names a dataset which the job does not.
        found.setdefault(task.config.source or ADHOC, list(own))
    default = (DeclaredMetric(DEFAULT_METRIC),)
    return {name: tuple(metrics) or default for name, metrics in found.items()}


def make_metrics(declared: Mapping[str, Sequence[DeclaredMetric]]) -> dict[str, list[Metric]]:
    """Make the metrics ready to be computed; a failing script raises MetricError."""
    return {name: [_make(metric) for metric in metrics] for name, metrics in declared.items()}


def declare_metric(metric: MetricConfig) -> DeclaredMetric:
    """Convert a metric from a job's or registry's configuration.

    Raises:
        ConfigError: its arguments are invalid.
    """
    allowed = {"script_path"} if metric.type == SCRIPT else set()
    if strange := sorted(set(metric.kwargs) - allowed):
        raise ConfigError(f"metrics: {metric.type} takes no {', '.join(strange)}")
    if metric.type != SCRIPT:
        return DeclaredMetric(metric.type)
    script = Path(str(metric.kwargs.get("script_path", "")))
    if not script.is_file():
        raise ConfigError(
            f"metrics: {SCRIPT} with script_path {str(script)!r}; expected the path of a Python "
            "file that is there"
        )
    return DeclaredMetric(SCRIPT, script)


def _make(declared: DeclaredMetric) -> Metric:
    if declared.script is not None:
        return partial(_run_script, declared.script)
    return builtin_metrics([declared.name])[0]


def _run_script(script: Path, column: RewardColumn) -> MetricEntry:
    return run_metric_script(script, column.rewards)
