"""A plan that was sealed before a run, and each way in which the run can depart from it."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from proctor.errors import InputError
from proctor.ledger.api import Ledger
from proctor.ledger.review import append_plan, append_supersession
from proctor.ledger.run_plan import (
    PlannedAgent,
    PlannedRetries,
    PlannedTask,
    RunPlan,
    digest_settings,
    encode_plan,
    parse_plan,
)
from proctor.ledger.sealed_plans import get_plan, list_plans
from proctor.ledger.withhold import Why, withhold_trial
from proctor.report.planned.deviations import Deviation, audit_plan
from tests.report.board_ledgers import open_board_ledger, sit

EXPERIMENT = "experiment-001"
SETTINGS = {"max_turns": 20}
PLAN = RunPlan(
    dataset=None,
    tasks=(PlannedTask(task="add", revision="git-sha-task"),),
    agents=(
        PlannedAgent(agent="tool_loop", model="provider/one", settings=digest_settings(SETTINGS)),
    ),
    attempts=2,
    environment="modal",
    retries=PlannedRetries(most=1, only=("NetworkError",)),
    exclusions=("infrastructure",),
)
LATER = {"timestamp": "2999-01-01T00:00:00Z"}
"""No trial of the tests ran before its plan, unless it is said."""


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with open_board_ledger(tmp_path) as made:
        append_plan(made, EXPERIMENT, encode_plan(PLAN), author="ana")
        yield made


def run(ledger: Ledger, trial: str, reward: float | None = 1.0, **asked: Any) -> Any:
    record: Mapping[str, Any] = {**LATER, **asked.pop("record", {})}
    return sit(ledger, trial, reward, record=record, **asked)


def deviations(ledger: Ledger) -> list[Deviation]:
    return list(audit_plan(ledger, get_plan(ledger, EXPERIMENT)).deviations)


def kinds(ledger: Ledger) -> list[str]:
    return [each.kind for each in deviations(ledger)]


def test_a_run_as_planned_departs_in_nothing(ledger: Ledger) -> None:
    run(ledger, "t1")
    run(ledger, "t2", None)
    audit = audit_plan(ledger, get_plan(ledger, EXPERIMENT))
    assert (audit.follows, audit.listed, audit.counted) == (True, 2, 2)


def test_attempts_too_many_and_too_few_are_counted(ledger: Ledger) -> None:
    run(ledger, "t1")
    assert kinds(ledger) == ["missing-attempts"]
    run(ledger, "t2")
    run(ledger, "t3")
    (found,) = deviations(ledger)
    assert (found.kind, found.subject) == ("extra-attempts", "add by tool_loop (provider/one)")
    assert found.message == "3 trials count, planned: 2: t1, t2, t3"


DEPARTING: list[tuple[str, dict[str, Any], str]] = [
    ("unplanned-task", {"task": "subtract"}, "ran subtract, which is not in the plan"),
    ("unplanned-agent", {"model": "other/model"}, "answered by other/model; planned:"),
    ("changed-revision", {"record": {"task.task_revision": "2"}}, "add is at revision 2; planned"),
    ("changed-limits", {"record": {"environment.compute_backend": "docker"}}, "ran in docker;"),
    (
        "changed-settings",
        {"record": {"agent.configuration": {"max_turns": 99}}},
        f"planned: {digest_settings(SETTINGS)}",
    ),
    (
        "changed-limits",
        {"record": {"agent.configuration": {**SETTINGS, "timeout_multiplier": 2.0}}},
        "timeout_multiplier is 2.0; planned: the default",
    ),
    ("ran-before-plan", {"record": {"timestamp": "2020-01-01T00:00:00Z"}}, "before the plan was"),
]


@pytest.mark.parametrize(
    ("kind", "asked", "said"), DEPARTING, ids=[f"{kind}-{said}" for kind, _, said in DEPARTING]
)
def test_a_trial_that_departs_is_named(
    ledger: Ledger, kind: str, asked: dict[str, Any], said: str
) -> None:
    for trial in ("t1", "t2"):
        run(ledger, trial)
    before = kinds(ledger)
    run(ledger, "odd", **asked)
    found = [each for each in deviations(ledger) if each.subject == f"{EXPERIMENT}/odd"]
    assert before == []
    assert [(each.kind, said in each.message) for each in found] == [(kind, True)]


def test_an_agent_of_another_name_is_unplanned(ledger: Ledger) -> None:
    record = {"agent.adapter": "other", "agent.configuration": {"max_turns": 1}}
    run(ledger, "t1", record=record)
    assert kinds(ledger) == ["unplanned-agent", "missing-attempts"]


def test_a_plan_that_was_sealed_after_its_trials_is_no_plan_for_them(tmp_path: Path) -> None:
    with open_board_ledger(tmp_path) as ledger:
        run(ledger, "t1")
        run(ledger, "t2")
        append_plan(ledger, EXPERIMENT, encode_plan(PLAN), author="ana")
        assert kinds(ledger) == ["ran-before-plan"] * 2


def test_a_replacement_that_the_rules_allow_is_no_deviation(ledger: Ledger) -> None:
    failed, again = run(ledger, "t1", None), run(ledger, "t2")
    run(ledger, "t3")
    append_supersession(ledger, failed, again, "infrastructure", reason="no disk", author="ana")
    assert deviations(ledger) == []


def test_a_replacement_after_the_score_was_known_is_late_and_picks_the_best(
    ledger: Ledger,
) -> None:
    failed, again = run(ledger, "t1", 0.0), run(ledger, "t2", 1.0)
    run(ledger, "t3")
    append_supersession(ledger, failed, again, "infrastructure", reason="hm", author="eve")
    late, best = deviations(ledger)
    assert (late.kind, best.kind) == ("late-exclusion", "picked-best")
    assert "infrastructure: hm (eve); its score of 0 was known by then" in late.message
    assert "scored 1, more than its 0" in best.message


def test_a_replacement_for_another_cause_is_named(ledger: Ledger) -> None:
    failed, again = run(ledger, "t1", None), run(ledger, "t2")
    run(ledger, "t3")
    append_supersession(ledger, failed, again, "agent", reason="it crashed", author="eve")
    (found,) = deviations(ledger)
    assert found.kind == "excluded"
    assert "the plan allows infrastructure" in found.message


def test_retries_beyond_the_rules_are_named(ledger: Ledger) -> None:
    run(ledger, "t1.attempt-1", None, exception="NetworkError")
    run(ledger, "t1")
    run(ledger, "t2")
    assert deviations(ledger) == []
    run(ledger, "t2.attempt-1", None, exception="ValueError")
    run(ledger, "t2.attempt-2", None, exception="NetworkError")
    assert kinds(ledger) == ["extra-retries", "retried"]


def test_what_was_withheld_is_named_with_the_reason(ledger: Ledger) -> None:
    run(ledger, "t1")
    gone = run(ledger, "t2")
    withhold_trial(ledger, gone, Why("a key leaked", "ana"))
    missing, withheld = deviations(ledger)
    assert (missing.kind, withheld.kind) == ("missing-attempts", "withheld")
    assert "a key leaked (ana)" in withheld.message


def test_the_first_plan_binds_and_a_later_one_is_named(ledger: Ledger) -> None:
    run(ledger, "t1")
    run(ledger, "t2")
    more = msgspec.structs.replace(PLAN, attempts=1)
    append_plan(ledger, EXPERIMENT, encode_plan(more), author="eve")
    assert get_plan(ledger, EXPERIMENT).plan == PLAN
    assert kinds(ledger) == ["changed-plan"]


def test_a_plan_of_another_format_is_listed_and_not_audited(ledger: Ledger) -> None:
    append_plan(ledger, "other", b'{"tasks": 89}', author="ana")
    assert [each.n_trials for each in list_plans(ledger)] == [2, None]
    with pytest.raises(InputError, match="not a plan of format proctor-plan-1"):
        audit_plan(ledger, get_plan(ledger, "other"))


def test_a_plan_is_read_back_as_it_was_sealed() -> None:
    assert parse_plan(encode_plan(PLAN), "here") == PLAN


def test_variables_of_an_agent_do_not_show_in_its_digest() -> None:
    told = [{"agent": {"name": "chat", "env": {"KEY": value}}} for value in ("one", "two")]
    assert digest_settings(told[0]) == digest_settings(told[1])
    assert digest_settings(told[0]) != digest_settings({"agent": {"name": "chat", "env": {}}})
