"""The order of trials: by plan, by time, or as the published lists show it."""

from typing import Any

import msgspec
import pytest

from proctor.harbor.documents import LockDocument, TrialDocument
from proctor.harbor.job import (
    OrderBasis,
    Ordered,
    find_unplanned,
    order_finished,
    order_unfinished,
)
from proctor.harbor.trial import FoundTrial
from tests.harbor.written import found_trial, trial_result


def trial(name: str, started: int = 0, **changes: Any) -> FoundTrial:
    """A trial of the task before its `__`, started and finished that many seconds into the job."""
    times = {
        "started_at": f"2025-01-02T03:04:{started:02}.5Z",
        "finished_at": f"2025-01-02T03:05:{started:02}.5Z",
    }
    document = msgspec.convert(trial_result(name, **times | changes), TrialDocument)
    return found_trial(name, document)


def lock(*tasks: str, agent: dict[str, Any] | None = None, **changes: Any) -> LockDocument:
    trials = [
        {
            "task": {"path": f"tasks/{task}", "name": task} | changes,
            "agent": agent or {"name": "ag"},
        }
        for task in tasks
    ]
    return msgspec.convert({"trials": trials}, LockDocument)


def names(trials: list[FoundTrial]) -> list[str]:
    return [found.trial.name for found in trials]


A1, A2, B1, B2 = trial("a__1", 1), trial("a__2", 2), trial("b__1", 3), trial("b__2", 4)


def test_a_finished_job_is_in_the_order_of_its_plan() -> None:
    ordered = order_finished([A1, A2, B1, B2], lock("b", "a", "b", "a"), [])
    assert names(ordered.trials) == ["b__1", "a__1", "b__2", "a__2"]
    assert (ordered.basis, ordered.contradicted) == (OrderBasis.PLAN, False)


def test_equal_slots_are_filled_as_trials_were_started() -> None:
    late, early = trial("a__1", 9), trial("a__2", 1)
    assert names(order_finished([late, early], lock("a", "a"), []).trials) == ["a__2", "a__1"]


def test_trials_started_at_once_follow_by_name() -> None:
    together = [trial("a__2", 1), trial("a__1", 1)]
    assert names(order_finished(together, lock("a", "a"), []).trials) == ["a__1", "a__2"]


def test_a_start_on_the_full_second_comes_before_its_fractions() -> None:
    whole = trial("a__2", started_at="2025-01-02T03:04:05Z")
    fraction = trial("a__1", started_at="2025-01-02T03:04:05.000001Z")
    before = trial("a__3", started_at="2025-01-02T03:04:04.999999Z")
    ordered = order_finished([fraction, whole, before], None, [])
    assert names(ordered.trials) == ["a__3", "a__2", "a__1"]


def test_trials_that_nobody_planned_come_last() -> None:
    planned = lock("b", "c")
    ordered = order_finished([A1, A2, B1, B2], planned, [])
    assert names(ordered.trials) == ["b__1", "a__1", "a__2", "b__2"]
    assert names(find_unplanned([A1, A2, B1, B2], planned)) == ["a__1", "a__2", "b__2"]
    assert find_unplanned([A1, B1], lock("a", "b")) == []


def test_without_a_lock_trials_are_as_they_were_started() -> None:
    ordered = order_finished([B2, A2, B1, A1], None, [])
    assert names(ordered.trials) == ["a__1", "a__2", "b__1", "b__2"]
    assert ordered.basis is OrderBasis.STARTED


def test_a_trial_without_a_start_is_first() -> None:
    ordered = order_finished([A1, trial("b__1", started_at=None)], None, [])
    assert names(ordered.trials) == ["b__1", "a__1"]


def test_published_lists_that_fit_the_plan_leave_it() -> None:
    chains = [["b__1", "a__1"], ["a__1", "a__2"], ["somebody else", "b__2"], []]
    ordered = order_finished([A1, A2, B1, B2], lock("b", "a", "b", "a"), chains)
    assert names(ordered.trials) == ["b__1", "a__1", "b__2", "a__2"]
    assert ordered.basis is OrderBasis.PLAN


def test_a_retried_trial_is_where_the_published_lists_have_it() -> None:
    retried = trial("a__1", 9)
    ordered = order_finished([retried, A2, B1], lock("a", "b", "a"), [["a__1", "a__2"]])
    assert names(ordered.trials) == ["b__1", "a__1", "a__2"]
    assert ordered.basis is OrderBasis.PUBLISHED


def test_a_resumed_job_is_in_the_published_order_and_else_by_plan() -> None:
    chains = [["b__2", "a__1"], ["a__1", "a__2"], ["b__2", "a__2"]]
    ordered = order_finished([A1, A2, B1, B2], lock("a", "a", "b", "b"), chains)
    assert names(ordered.trials) == ["b__1", "b__2", "a__1", "a__2"]
    assert (ordered.basis, ordered.contradicted) == (OrderBasis.PUBLISHED, False)


@pytest.mark.parametrize(
    "chains",
    [
        [["a__2", "a__1"], ["a__1", "a__2"]],
        [["a__1", "a__2"], ["a__2", "b__1"], ["b__1", "a__1"]],
        [["a__1", "a__1"]],
    ],
)
def test_lists_that_fit_no_order_leave_the_plan_and_are_said_to(chains: list[list[str]]) -> None:
    ordered = order_finished([A1, A2, B1, B2], lock("a", "a", "b", "b"), chains)
    assert names(ordered.trials) == ["a__1", "a__2", "b__1", "b__2"]
    assert (ordered.basis, ordered.contradicted) == (OrderBasis.PLAN, True)


def test_lists_that_fit_no_order_of_a_job_without_lock_leave_the_times() -> None:
    ordered = order_finished([A2, A1], None, [["a__2", "a__1"], ["a__1", "a__2"]])
    assert names(ordered.trials) == ["a__1", "a__2"]
    assert (ordered.basis, ordered.contradicted) == (OrderBasis.STARTED, True)


def test_two_trials_of_one_name_are_both_kept() -> None:
    ordered = order_finished([A1, A2, B1, A1], None, [["b__1", "a__2"]])
    assert sorted(names(ordered.trials)) == ["a__1", "a__1", "a__2", "b__1"]
    assert names(ordered.trials)[2:] == ["b__1", "a__2"]
    assert ordered.basis is OrderBasis.PUBLISHED


def test_an_unfinished_job_is_in_the_order_its_trials_ended() -> None:
    first = trial("b__1", finished_at="2025-01-02T03:04:05Z")
    second = trial("a__1", finished_at="2025-01-02T03:04:05.000001Z")
    third = trial("a__2", finished_at="2025-01-02T03:04:05.000001Z")
    ordered = order_unfinished([third, second, first])
    assert names(ordered.trials) == ["b__1", "a__1", "a__2"]
    assert (ordered.basis, ordered.contradicted) == (OrderBasis.FINISHED, False)
    assert names(order_unfinished([first, trial("c__1", finished_at=None)]).trials)[0] == "c__1"


def test_an_order_is_certain_when_every_slot_of_the_plan_has_one_trial() -> None:
    assert order_finished([A1, B1], lock("b", "a"), [["b__1", "a__1"]]).certain
    assert order_finished([A1], lock("a", "b"), []).certain
    assert order_finished([], lock("a"), []).certain


@pytest.mark.parametrize(
    "ordered",
    [
        order_finished([A1, A2, B1], lock("a", "b", "a"), []),
        order_finished([A1, B1], None, []),
        order_finished([A1, B1], lock("a", "b"), [["b__1", "a__1"]]),
        order_finished([A1, B1], lock("a", "b"), [["b__1", "a__1"], ["a__1", "b__1"]]),
        order_unfinished([A1, B1]),
    ],
    ids=["attempts", "no plan", "published", "contradicted", "unfinished"],
)
def test_any_other_order_is_not_certain(ordered: Ordered) -> None:
    assert not ordered.certain


def placed(config: dict[str, Any], planned: LockDocument) -> bool:
    """Whether a trial that was told this fills the planned slot."""
    return find_unplanned([trial("a__1", config=config)], planned) == []


def test_a_slot_is_a_task_and_an_agent() -> None:
    config = {"task": {"path": "tasks/a"}, "agent": {"name": "ag"}}
    assert placed(config, lock("a"))
    assert not placed(config, lock("b"))
    assert not placed(config, lock("a", agent={"name": "other"}))
    assert not placed(config, lock("a", agent={"name": "ag", "model_name": "p/m"}))
    assert not placed(config, lock("a", agent={"name": "ag", "kwargs": {"x": 1}}))
    assert not placed(config, lock("a", git_url="https://example.org"))


def test_the_order_of_an_agents_arguments_does_not_matter() -> None:
    agent = {"import_path": "m:A", "model_name": "p/m", "kwargs": {"x": 1, "y": [2]}}
    config = {"task": {"path": "tasks/a"}, "agent": agent}
    assert placed(config, lock("a", agent=agent | {"kwargs": {"y": [2], "x": 1}}))
    assert not placed(config, lock("a", agent=agent | {"kwargs": {"y": [3], "x": 1}}))
    assert not placed(config, lock("a", agent=agent | {"import_path": "m:B"}))


def test_a_package_is_known_by_its_name() -> None:
    config = {"task": {"name": "org/a", "ref": "latest"}, "agent": {"name": "ag"}}
    assert placed(config, lock("x", name="org/a", path=None))
    assert not placed(config, lock("x", name="org/b", path=None))


def test_a_commit_that_was_resolved_does_not_make_another_slot() -> None:
    task = {"path": "tasks/a", "git_url": "u", "git_commit_id": "main"}
    config = {"task": task, "agent": {"name": "ag"}}
    assert placed(config, lock("a", git_url="u", git_commit_id="0123abc"))
    assert not placed(config, lock("a", git_url="v", git_commit_id="main"))


def test_every_basis_is_said_in_words() -> None:
    assert [str(basis) for basis in OrderBasis] == [
        "the plan in lock.json",
        "the time each started",
        "the time each ended",
        "the lists published in result.json",
    ]
