"""Which metrics a job was told to compute, and which its published entries suggest."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from proctor.harbor.declared import (
    SCRIPT,
    DeclaredMetric,
    declared_metrics,
    infer_metrics,
    remote_datasets,
)
from proctor.harbor.documents import JobConfigDocument
from proctor.reward.metric import RewardColumn

MEAN = DeclaredMetric("mean")


def config(*datasets: dict[str, Any], metrics: list[Any] | None = None) -> JobConfigDocument:
    document = {"datasets": datasets, "metrics": metrics or []}
    return msgspec.convert(document, JobConfigDocument)


@pytest.mark.parametrize("nothing", [None, JobConfigDocument()])
def test_a_job_that_asks_for_nothing_has_a_mean(nothing: JobConfigDocument | None) -> None:
    assert declared_metrics(nothing) == {"adhoc": [MEAN]}
    assert remote_datasets(nothing) == []


@pytest.mark.parametrize("path", ["tasks/ds", "tasks/ds/", "/abs/ds", "ds", "./ds/"])
def test_a_local_dataset_is_named_after_its_directory(path: str) -> None:
    assert declared_metrics(config({"path": path})) == {"adhoc": [MEAN], "ds": [MEAN]}


@pytest.mark.parametrize("path", [".", "..", "tasks/..", "/", "tasks/link-to-ds"])
def test_a_path_without_a_name_gets_it_from_the_trials(path: str) -> None:
    asked = config({"path": path}, {"name": "far"}, metrics=[{"type": "max"}])
    assert "ds" not in declared_metrics(asked)
    declared = declared_metrics(asked, ["ds", "adhoc", "far"])
    assert declared["ds"] == declared["adhoc"] == [DeclaredMetric("max")]
    assert "far" not in declared


def test_a_name_that_the_trials_repeat_adds_nothing() -> None:
    asked = config({"path": "tasks/ds"}, metrics=[{"type": "max"}])
    assert declared_metrics(asked, ["ds", "ds"])["ds"] == [DeclaredMetric("max")]


def test_without_a_local_dataset_the_trials_name_none() -> None:
    assert declared_metrics(config({"name": "far"}), ["ds"]) == {"adhoc": [MEAN]}


def test_the_jobs_metrics_hold_for_every_local_dataset_in_their_order() -> None:
    asked = config({"path": "a"}, {"path": "b"}, metrics=[{"type": "max"}, {"type": "mean"}])
    both = [DeclaredMetric("max"), MEAN]
    assert declared_metrics(asked) == {"adhoc": both, "a": both, "b": both}


def test_a_dataset_named_twice_has_its_metrics_twice() -> None:
    asked = config({"path": "x/a"}, {"path": "y/a"}, metrics=[{"type": "max"}])
    assert declared_metrics(asked)["a"] == [DeclaredMetric("max")] * 2
    assert declared_metrics(asked)["adhoc"] == [DeclaredMetric("max")]
    assert declared_metrics(config({"path": "x/a"}, {"path": "y/a"}))["a"] == [MEAN]


def test_a_dataset_named_adhoc_adds_to_the_tasks_without_one() -> None:
    asked = config({"path": "adhoc"}, metrics=[{"type": "max"}])
    assert declared_metrics(asked) == {"adhoc": [DeclaredMetric("max")] * 2}


def test_datasets_from_elsewhere_are_left_out_and_named() -> None:
    asked = config({"name": "terminal-bench"}, {"path": "a"}, {"name": "org/set"}, {})
    assert list(declared_metrics(asked)) == ["adhoc", "a"]
    assert remote_datasets(asked) == ["terminal-bench", "org/set"]


def test_a_script_is_declared_with_its_file() -> None:
    metric = {"type": "uv-script", "kwargs": {"script_path": "tasks/metric.py"}}
    script = DeclaredMetric(SCRIPT, Path("tasks/metric.py"))
    assert declared_metrics(config(metrics=[metric])) == {"adhoc": [script]}
    assert declared_metrics(config(metrics=[{"type": "uv-script"}]))["adhoc"][0].script is None


ONE_KEY = RewardColumn([{"reward": 1.0}, None, {"reward": 0.5}])
TWO_KEYS = RewardColumn([{"a": 1, "b": 4.0}, {"a": 3, "b": 0.0}])


def inferred(column: RewardColumn, *entries: dict[str, object]) -> list[str]:
    found = infer_metrics(entries, column)
    assert all(metric.inferred and metric.script is None for metric in found)
    return [metric.name for metric in found]


@pytest.mark.parametrize("column", [ONE_KEY, RewardColumn([None]), RewardColumn()])
def test_with_one_key_an_entry_bears_its_metrics_name(column: RewardColumn) -> None:
    entries: list[dict[str, object]] = [{"mean": 9.0}, {"max": 1}, {"min": 1}, {"sum": 1}]
    assert inferred(column, *entries) == ["mean", "max", "min", "sum"]
    assert inferred(column, {"accuracy": 1}, {"mean": 1, "max": 1}, {}) == [SCRIPT] * 3


def test_with_several_keys_the_metric_with_the_published_values_is_taken() -> None:
    assert inferred(TWO_KEYS, {"a": 2.0, "b": 2.0}) == ["mean"]
    assert inferred(TWO_KEYS, {"a": 3, "b": 4.0}) == ["max"]
    assert inferred(TWO_KEYS, {"a": 1, "b": 0.0}) == ["min"]
    assert inferred(TWO_KEYS, {"a": 4, "b": 4.0}) == ["sum"]


def test_with_several_keys_values_of_no_metric_are_taken_for_a_changed_mean() -> None:
    assert inferred(TWO_KEYS, {"a": 2.5, "b": 2.0}) == ["mean"]
    assert inferred(TWO_KEYS, {"a": 3.0, "b": 4.0}) == ["mean"]


def test_whole_numbers_too_large_for_a_mean_are_no_mean() -> None:
    large = RewardColumn([{"a": 10**400, "b": 1}, {"a": 1, "b": 0}])
    assert inferred(large, {"a": 10**400, "b": 1}) == ["max"]
    assert inferred(large, {"a": 10**400 + 1, "b": 1}) == ["sum"]


def test_with_several_keys_other_keys_are_a_scripts() -> None:
    assert inferred(TWO_KEYS, {"mean": 2.0}, {"a": 1}, {"a": 1, "b": 2, "c": 3}) == [SCRIPT] * 3


def test_where_nothing_was_published_the_default_is_inferred() -> None:
    assert inferred(ONE_KEY) == ["mean"]
