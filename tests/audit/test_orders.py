"""Last bits that the order of trials decides are excused; nothing else is."""

import json
import math
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from proctor.audit.findings import Kind
from proctor.audit.job import audit_job
from proctor.audit.results import Orders, lies_among
from proctor.audit.scoring import Scoring, score_jobs
from proctor.harbor.job import load_job
from proctor.reward.profile import DEFAULT_PROFILE
from tests.audit.directories import (
    Document,
    copy_job,
    edit_json,
    make_job,
    publish,
    read_json,
    write_json,
)

BINARY = "oracle__binary"


# What lies among others


@pytest.mark.parametrize(
    ("found", "others"),
    [
        (0.5, [0.25, 0.5]),
        (1, [0.5, 1]),
        (math.nan, [0.5, math.nan]),
        (None, [None]),
        ({"mean": 0.5}, [{"mean": 0.25}, {"mean": 0.5}]),
        ({"a": 0.5, "b": 1}, [{"a": 0.25, "b": 1}, {"a": 0.75, "b": 1}]),
        ({"a": 0.5, "b": 0.1}, [{"a": 0.5, "b": 0.2}, {"a": 0.25, "b": 0.1}]),
        (0.3, [0.25, 0.5]),
        (1.5, [0.25, 0.5]),
        (-0.75, [0.25, 0.5]),
    ],
)
def test_what_another_order_gives_or_nearly_gives_lies_among(
    found: object, others: Sequence[object]
) -> None:
    assert lies_among(found, others)


@pytest.mark.parametrize(
    ("found", "others"),
    [
        (0.5, []),
        ({}, []),
        (0.5, [0.25, 0.25]),
        (math.nextafter(0.5, 1), [0.5, 0.5]),
        (1.5001, [0.25, 0.5]),
        (-0.7501, [0.25, 0.5]),
        (1, [1.0, 1.0]),
        (1, [0.5, 1.5]),
        (1.0, [1, 1]),
        (1.0, [0.5, 2]),
        (math.nan, [0.25, 0.5]),
        (0.3, [math.nan, 0.25, 0.5]),
        (7.0, [0.25, math.inf]),
        (7.0, [-1.7e308, 1.7e308]),
        ("0.3", [0.25, 0.5]),
        (None, [0.25, 0.5]),
        ({"a": 0.5}, [{"a": 0.25, "b": 1}, {"a": 0.75, "b": 1}]),
        ({"a": 0.5, "b": 1}, [{"a": 0.25}, {"a": 0.75}]),
        ({"a": 0.5}, [{"a": 0.25}, {"b": 0.75}, {"a": 0.75}]),
        ({"a": 0.5, "b": 2}, [{"a": 0.25, "b": 1}, {"a": 0.75, "b": 1}]),
        ({"a": 0.5}, [0.25, 0.75]),
    ],
)
def test_what_no_order_gives_does_not_lie_among(found: object, others: Sequence[object]) -> None:
    assert not lies_among(found, others)


# Whether the order is open


def orders_of(job: Path) -> Orders:
    return Orders(score_jobs([load_job(str(job))], DEFAULT_PROFILE, add_up=False))


def reverse_passes(job: Path) -> None:
    def change(result: Document) -> None:
        result["stats"]["evals"][BINARY]["reward_stats"]["reward"]["1.0"].reverse()

    edit_json(job / "result.json", change)


@pytest.fixture
def planned(tmp_path: Path) -> Path:
    """A job with one trial for every slot of its plan."""
    return copy_job("01-binary-oracle-k1", tmp_path)


def test_a_plan_of_one_trial_a_slot_leaves_no_other_order(planned: Path) -> None:
    assert not orders_of(planned).open


def test_several_attempts_leave_the_order_open(tmp_path: Path) -> None:
    assert orders_of(copy_job("03-binary-oracle-k5", tmp_path)).open


OPENING: dict[str, Callable[[Path], object]] = {
    "retried": lambda job: edit_json(
        job / "result.json", lambda result: result["stats"].update(n_retries=1)
    ),
    "unfinished": lambda job: edit_json(
        job / "result.json", lambda result: result.update(finished_at=None)
    ),
    "in published order": reverse_passes,
    "without a plan": lambda job: (job / "lock.json").unlink(),
}


@pytest.mark.parametrize("change", OPENING.values(), ids=OPENING.keys())
def test_what_was_not_added_up_by_plan_is_open(
    planned: Path, change: Callable[[Path], object]
) -> None:
    change(planned)
    assert orders_of(planned).open


def test_other_orders_are_the_same_ones_every_time(tmp_path: Path) -> None:
    job = make_job(tmp_path / "job", {"a": ["1", "0", "1"], "b": ["0", "0", "1"]})
    first, second = ([names_in(order) for order in orders_of(job).others()] for _ in range(2))
    assert first == second
    assert first[0] == names_in(orders_of(job).scoring)[::-1]
    orders = orders_of(job)
    assert orders.others() is orders.others()


def names_in(scoring: Scoring) -> list[str]:
    return scoring.table.groups["oracle__adhoc"].names


# Through the audit

REWARDS = [7, 0.1, 0.2, 3, 0.3, 0.7]
"""Ints between floats: harbor's sum loses the compensation there, so that the order decides."""
COSTS = [0.1, 0.2, 0.3, 0.7, 1.1, 0.4]


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """A job of six attempts whose mean and cost depend on the order in which they are added."""
    job = make_job(tmp_path / "job", {"a": ["0"] * 6})
    for trial, reward, cost in zip(sorted(job.glob("a__*")), REWARDS, COSTS, strict=True):
        (trial / "verifier" / "reward.txt").unlink()
        (trial / "verifier" / "reward.json").write_text(json.dumps({"reward": reward}))
        document = read_json(trial / "result.json")
        claim = {"verifier_result": {"rewards": {"reward": reward}}}
        write_json(trial / "result.json", document | claim | {"agent_result": {"cost_usd": cost}})
    publish(job)
    return job


def stats_of(job: Path) -> Document:
    return read_json(job / "result.json")["stats"]


def mean_of(job: Path) -> float:
    (entry,) = stats_of(job)["evals"]["oracle__adhoc"]["metrics"]
    value: float = entry["mean"]
    return value


def publish_mean(job: Path, mean: float) -> None:
    def change(result: Document) -> None:
        (group,) = result["stats"]["evals"].values()
        group["metrics"] = [{"mean": mean}]

    edit_json(job / "result.json", change)


def publish_cost(job: Path, cost: float) -> None:
    edit_json(job / "result.json", lambda result: result["stats"].update(cost_usd=cost))


def in_other_order(add: Callable[[list[float]], float], values: list[float], usual: float) -> float:
    """What the values come to in some order in which they do not come to the usual."""
    shuffled = list(values)
    shuffle = random.Random("another").shuffle
    while add(shuffled) == usual:
        shuffle(shuffled)
    return add(shuffled)


def fold(costs: list[float]) -> float:
    total = 0.0
    for cost in costs:
        total += cost
    return total


def differences(job: Path) -> list[Kind]:
    return [finding.kind for finding in audit_job(str(job)).differences]


def order_notes(job: Path) -> list[str]:
    notes = audit_job(str(job)).notes
    return [note.message for note in notes if note.kind is Kind.ORDER_DEPENDENT]


def test_a_mean_of_another_order_is_a_note(mixed: Path) -> None:
    other = in_other_order(lambda values: sum(values) / len(values), REWARDS, mean_of(mixed))
    publish_mean(mixed, other)
    assert differences(mixed) == []
    (message,) = order_notes(mixed)
    assert message.endswith("the order of trials decides the last bits, and is not known")


def test_a_cost_of_another_order_is_a_note(mixed: Path) -> None:
    publish_cost(mixed, in_other_order(fold, COSTS, stats_of(mixed)["cost_usd"]))
    assert differences(mixed) == []
    assert len(order_notes(mixed)) == 1


@pytest.mark.parametrize("sign", [-1, 1])
def test_a_mean_or_cost_that_no_order_gives_is_found(mixed: Path, sign: int) -> None:
    publish_mean(mixed, mean_of(mixed) + sign * 1e-9)
    publish_cost(mixed, stats_of(mixed)["cost_usd"] + sign * 1e-9)
    assert differences(mixed) == [Kind.EDITED_USAGE, Kind.EDITED_METRIC]
    assert order_notes(mixed) == []


def test_a_mean_of_another_order_is_found_where_the_plan_leaves_none(mixed: Path) -> None:
    """One trial a task, all planned: there is one order, and one mean."""
    slots = []
    for number, trial in enumerate(sorted(mixed.glob("a__*"))):
        config = {"task": {"path": f"tasks/{number}"}, "agent": {"name": "oracle"}}
        slots.append(config)
        write_json(trial / "config.json", config)
        document = read_json(trial / "result.json")
        told = {"config": config, "task_name": str(number)}
        write_json(trial / "result.json", document | told)
    edit_json(mixed / "config.json", lambda config: config.update(n_attempts=1))
    write_json(mixed / "lock.json", {"schema_version": 1, "trials": slots})
    publish(mixed)
    assert differences(mixed) == []
    other = in_other_order(lambda values: sum(values) / len(values), REWARDS, mean_of(mixed))
    publish_mean(mixed, other)
    assert differences(mixed) == [Kind.EDITED_METRIC]


@pytest.mark.parametrize("planned_order", [True, False])
@pytest.mark.parametrize("towards", [0.0, 1.0])
def test_a_binary_mean_or_pass_at_k_moved_by_one_bit_is_found(
    tmp_path: Path, towards: float, planned_order: bool
) -> None:
    job = copy_job("04-binary-scripted-k5", tmp_path)
    if not planned_order:
        (job / "lock.json").unlink()

    def change(result: Document) -> None:
        (group,) = result["stats"]["evals"].values()
        group["metrics"] = [{"mean": math.nextafter(group["metrics"][0]["mean"], towards)}]
        group["pass_at_k"]["2"] = math.nextafter(group["pass_at_k"]["2"], towards)

    edit_json(job / "result.json", change)
    assert orders_of(job).open
    assert differences(job) == [Kind.EDITED_METRIC, Kind.EDITED_PASS_AT_K]
