"""A job's own result.json: every name and number as it is written, whatever was done to it."""

import json
from pathlib import Path
from typing import Any

import pytest

from proctor.errors import JobError
from proctor.harbor.job import PublishedResult, load_published, parse_stats

GROUP = {
    "metrics": [{"mean": 0.5}, "odd", {"max": 1}],
    "reward_stats": {"reward": {"1.0": ["a", "c"], "0.0": ["b"]}, "x": {"1": ["c"], "2": []}},
    "exception_stats": {"RuntimeError": ["b", "d"], "ValueError": ["c"]},
}


def published(directory: Path, stats: object, **changes: Any) -> PublishedResult:
    path = directory / "result.json"
    path.write_text(json.dumps({"n_total_trials": 1, "stats": stats} | changes))
    return load_published(str(path))


def test_a_result_is_finished_when_it_has_an_end(tmp_path: Path) -> None:
    assert published(tmp_path, {}, finished_at="2025-01-02T03:04:05").finished
    assert not published(tmp_path, {}, finished_at=None).finished
    assert not published(tmp_path, {}).finished


def test_counters_are_whole_numbers_or_zero(tmp_path: Path) -> None:
    result = published(tmp_path, {"a": 3, "b": "3", "c": True, "d": 1.0, "e": None})
    assert [result.count(name) for name in "abcdef"] == [3, 0, 0, 0, 0, 0]


def test_only_what_has_the_shape_of_a_group_is_one(tmp_path: Path) -> None:
    result = published(tmp_path, {"evals": {"ag__ds": GROUP, "odd": 1, "list": []}})
    assert list(result.evals) == ["ag__ds"]
    assert published(tmp_path, {"evals": []}).evals == {}
    assert published(tmp_path, {}).evals == {}


def test_metrics_are_the_entries_of_a_group(tmp_path: Path) -> None:
    result = published(tmp_path, {"evals": {"ag__ds": GROUP, "b": {"metrics": {}}, "c": {}}})
    assert result.metrics("ag__ds") == [{"mean": 0.5}, {"max": 1}]
    assert [result.metrics(key) for key in ("b", "c", "none")] == [[], [], []]


def test_chains_are_every_list_of_names_and_the_firsts_of_each_table(tmp_path: Path) -> None:
    result = published(tmp_path, {"evals": {"ag__ds": GROUP}})
    assert list(result.chains()) == [
        ["a", "c"],
        ["b"],
        ["a", "b"],
        ["c"],
        [],
        ["c"],
        ["b", "d"],
        ["c"],
        ["b", "c"],
    ]
    assert result.names() == {"a", "b", "c", "d"}


@pytest.mark.parametrize(
    "group",
    [
        {"reward_stats": []},
        {"reward_stats": {"reward": []}},
        {"reward_stats": {"reward": {"1.0": {}}}},
        {"reward_stats": {"reward": {"1.0": [1, None, {}]}}},
        {"exception_stats": 1},
        {"exception_stats": {"E": "abc"}},
    ],
)
def test_lists_of_any_other_shape_name_nobody(tmp_path: Path, group: object) -> None:
    assert published(tmp_path, {"evals": {"ag__ds": group}}).names() == set()


def test_keys_that_occur_twice_have_their_lists_joined() -> None:
    data = b'{"nan": ["a"], "1.0": ["b"], "nan": ["c"], "x": [1], "x": 2, "y": 1, "y": ["d"]}'
    stats = parse_stats(data, "result.json")
    assert list(stats.items()) == [("nan", ["a", "c"]), ("1.0", ["b"]), ("x", 2), ("y", ["d"])]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"[]", "x/result.json: stats is a JSON list; expected an object"),
        (b"null", "x/result.json: stats is a JSON NoneType; expected an object"),
        (b"{", "x/result.json: stats is torn or not JSON: "),
        (b"[" * 100_000, "x/result.json: stats is torn or not JSON: "),
        (b'{"a": ' + b"1" * 5000 + b"}", "x/result.json: stats is torn or not JSON: "),
        (b"\xff", "x/result.json: stats is torn or not JSON: "),
    ],
)
def test_stats_that_are_no_object_are_refused(data: bytes, message: str) -> None:
    with pytest.raises(JobError) as caught:
        parse_stats(data, "x/result.json")
    assert str(caught.value).startswith(message)


def test_a_torn_result_is_refused_with_its_path(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    path.write_text('{"n_total_trials": 1, "stats": {"a":')
    with pytest.raises(JobError, match=r"result\.json: torn or not JSON"):
        load_published(str(path))


def test_numbers_are_what_is_written(tmp_path: Path) -> None:
    result = published(tmp_path, {"a": 1, "b": 1.0, "c": None})
    assert repr(result.stats) == "{'a': 1, 'b': 1.0, 'c': None}"
