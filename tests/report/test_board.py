"""Boards: made from a position alone; everything adds up, and nothing unlike is mixed."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proctor.errors import InputError
from proctor.ledger.api import Ledger
from proctor.ledger.claims.claim import ClaimOptions, make_claim
from proctor.ledger.claims.trials import Scope
from proctor.ledger.entry import SupersedeEntry, TrialScore
from proctor.ledger.review import (
    append_plan,
    append_rescore,
    append_review,
    append_supersession,
)
from proctor.ledger.row import TrialRow
from proctor.ledger.run_plan import (
    PlannedAgent,
    PlannedRetries,
    PlannedTask,
    RunPlan,
)
from proctor.ledger.withhold import Why, withhold_trial
from proctor.report.board.document import describe_board
from proctor.report.board.making import list_datasets, make_board
from proctor.report.board.model import Board, BoardRow
from proctor.report.board.text import (
    render_cells,
    render_heading,
    render_notes,
    render_parts,
    render_remarks,
)
from proctor.report.runs import load_sealed_run
from tests.examples import examples
from tests.report.board_ledgers import DATASET, certified, open_board_ledger, sit


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with open_board_ledger(tmp_path) as made:
        yield made


def rows_of(ledger: Ledger, **asked: Any) -> list[BoardRow]:
    return list(make_board(ledger, DATASET, **asked).rows)


def only_row(ledger: Ledger) -> BoardRow:
    (row,) = rows_of(ledger)
    return row


def shown(board: Board) -> tuple[bytes, str]:
    """Everything that a board says."""
    lines = list(render_notes(board))
    for section in board.sections:
        lines += [render_heading(section), *section.apart]
        for row in section.rows:
            lines += [*render_cells(row, section), render_parts(row), *render_remarks(row)]
    return msgspec.json.encode(describe_board(board)), "\n".join(lines)


DEED = st.tuples(
    st.sampled_from(["sit", "sit", "sit", "review", "supersede", "rescore"]),
    st.integers(0, 1000),
    st.sampled_from([0.0, 0.5, 1.0, None]),
)
type Deeds = list[tuple[str, int, float | None]]


def check_made_again(directory: Path, deeds: Deeds) -> None:
    """Let a ledger grow, and see that every board that was shown can be made again."""
    with open_board_ledger(directory) as ledger:
        rows = [sit(ledger, "first")]
        then = {}
        for number, (deed, drawn, reward) in enumerate(deeds):
            do(ledger, rows, deed, number, drawn, reward)
            board = make_board(ledger, DATASET)
            then[board.size] = shown(board)
        for size, was in then.items():
            assert shown(make_board(ledger, DATASET, at=size)) == was


@settings(max_examples=examples(6), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(deeds=st.lists(DEED, min_size=3, max_size=10))
def test_a_board_made_again_is_what_it_was(
    tmp_path_factory: pytest.TempPathFactory, deeds: Deeds
) -> None:
    check_made_again(tmp_path_factory.mktemp("grown"), deeds)


@pytest.mark.soak
@settings(max_examples=examples(10), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(deeds=st.lists(DEED, min_size=60, max_size=100))
def test_a_hundred_boards_made_again_are_what_they_were(
    tmp_path_factory: pytest.TempPathFactory, deeds: Deeds
) -> None:
    check_made_again(tmp_path_factory.mktemp("grown"), deeds)


def do(
    ledger: Ledger, rows: list[TrialRow], deed: str, number: int, drawn: int, reward: float | None
) -> None:
    row = rows[drawn % len(rows)]
    match deed:
        case "sit":
            made = sit(
                ledger, f"t{number}", reward, task=f"task-{drawn % 2}", model=f"p/{drawn % 3}",
                record={"environment.runtime_image": f"i{drawn % 2}"},
            )  # fmt: skip
            rows.append(made)
        case "review":
            append_review(ledger, row, "pass" if reward else "fail", reviewer="ana")
        case "supersede" if (other := rows[drawn % 7 % len(rows)]) != row:
            append_supersession(ledger, row, other, "other", reason="so", author="ana")
        case "rescore":
            score = TrialScore(profile="harbor-0.25", certificate=certified(reward))
            append_rescore(ledger, row, score, reason="new rules", author="ana")


def test_what_was_withheld_since_is_said(ledger: Ledger) -> None:
    sit(ledger, "kept")
    gone = sit(ledger, "gone", 0.0)
    before = make_board(ledger, DATASET)
    withhold_trial(ledger, gone, Why("a key leaked", "ana"))
    after = make_board(ledger, DATASET, at=before.size)
    assert [each.name for each in after.trials.withheld] == ["experiment-001/gone"]
    (note,) = render_notes(after)
    assert "withheld: 1 trial of these experiments, 1 of them after this position" in note
    document = describe_board(after)["withheld"]
    assert document["trials"][0] == {
        "seq": gone.seq, "name": "experiment-001/gone", "record": gone.record,
        "said_at": before.size, "reason": "a key leaked", "author": "ana",
    }  # fmt: skip


def test_a_missing_reward_is_zero_and_the_other_mean_is_said_too(ledger: Ledger) -> None:
    for number, reward in enumerate([1.0, 1.0, 0.5, None]):
        sit(ledger, f"t{number}", reward, task=f"task-{number}")
    row = only_row(ledger)
    assert (row.numbers.score, row.numbers.score_excluding) == (0.625, 2.5 / 3)
    assert (row.numbers.passed, row.numbers.pass_rate, row.numbers.n_tasks) == (2, 0.5, 4)
    assert render_parts(row) == (
        "4 listed = 4 counted + 0 superseded + 0 restarted; "
        "4 counted = 3 scored + 1 missing (counted as 0); 0 errored"
    )
    assert "errors excluded 0.8333" in list(render_remarks(row))


def test_an_error_with_a_score_is_both(ledger: Ledger) -> None:
    sit(ledger, "t1", 1.0, exception="AgentTimeoutError")
    numbers = only_row(ledger).numbers
    assert (numbers.score, numbers.errored, numbers.account.zero_by_missing) == (1.0, 1, 0)
    assert numbers.exceptions == {"AgentTimeoutError": 1}


def test_what_is_unknown_of_the_cost_is_not_zero(ledger: Ledger) -> None:
    sit(ledger, "t1", 1.0, record={"cost.estimated_cost_usd": 2.0})
    sit(ledger, "t2", 1.0, record={"cost.estimated_cost_usd": None})
    cost = only_row(ledger).numbers.cost
    assert (cost.known, cost.n_known, cost.n_unknown, cost.per_success) == (2.0, 1, 1, None)


def test_findings_reviews_and_advisors_are_seen(ledger: Ledger) -> None:
    codes = ("base-substituted", "reward-preexisted", "two-rewards")
    row = sit(ledger, "t1", findings=codes, record={"cost.advisor_calls": 3})
    append_review(ledger, row, "fail", reviewer="ana")
    assert list(render_remarks(only_row(ledger))) == [
        "integrity findings: two-rewards (alarm) 1, reward-preexisted (notice) 1, "
        "base-substituted (info) 1",
        "reviewed 1: fail 1",
        "not of leaderboard grade: no-verifier 1, open-finding 1, unpinned-image 1",
        "advisor asked in 1 trial, 3 calls",
    ]


TURNS = {"max_turns": 20}
UNLIKE: list[tuple[dict[str, Any], str]] = [
    ({"agent.configuration": {**TURNS, "timeout_multiplier": 2}}, "timeout_multiplier 2, not"),
    ({"environment.compute_backend": "sandbox"}, "run by sandbox, not modal"),
    ({"environment.runtime_image": "other:1"}, "add ran in other:1, not"),
    ({"task.task_revision": "another"}, "add is at revision another, not git-sha-task"),
    ({"agent.configuration": {**TURNS, "limits": {"cpus": 2}}}, "add had cpus 2, not default"),
    ({"profile": "harbor-0.25"}, "scored by harbor-0.25, not harbor-0.13.1"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "said"), UNLIKE, ids=[said for _, said in UNLIKE])
def test_unlike_runs_are_not_mixed(ledger: Ledger, changes: dict[str, Any], said: str) -> None:
    changes = dict(changes)
    sit(ledger, "t1", 1.0)
    profile = changes.pop("profile", "harbor-0.13.1")
    sit(ledger, "t2", 0.0, experiment="later", profile=profile, record=changes)
    one, other = make_board(ledger, DATASET).sections
    assert [row.numbers.score for row in (*one.rows, *other.rows)] == [1.0, 0.0]
    assert other.apart[0].startswith(f"separate from 1: {said}")


def test_a_run_is_not_torn_apart_because_one_task_changed(ledger: Ledger) -> None:
    sit(ledger, "t1", task="add")
    sit(ledger, "t2", task="subtract")
    sit(ledger, "t3", task="add", experiment="later")
    changed = {"task.task_revision": "2"}
    sit(ledger, "t4", task="subtract", experiment="later", record=changed)
    sections = make_board(ledger, DATASET).sections
    assert [[row.numbers.n_tasks for row in section.rows] for section in sections] == [[2], [2]]


def test_rows_are_apart_by_source_configuration_and_completeness(ledger: Ledger) -> None:
    sit(ledger, "t1", 0.5)
    sit(ledger, "t2", 1.0, source="harbor")
    sit(ledger, "t3", 1.0, record={"completeness": "partial"})
    sit(ledger, "t4", 0.0, record={"agent.configuration": {"max_turns": 7}})
    rows = rows_of(ledger)
    told = [(row.source, row.is_diagnostic, row.numbers.score) for row in rows]
    assert told == [
        ("harbor", False, 1.0),
        (None, False, 0.5),
        (None, False, 0.0),
        (None, True, 1.0),
    ]
    assert len({row.configuration for row in rows}) == 2


def test_a_superseded_trial_is_replaced_and_both_are_shown(ledger: Ledger) -> None:
    failed, again = sit(ledger, "t1", None), sit(ledger, "t2", 1.0)
    append_supersession(ledger, failed, again, "infrastructure", reason="no disk", author="ana")
    row = only_row(ledger)
    assert (row.numbers.score, row.numbers.account.superseded) == (1.0, 1)
    first, second = describe_board(make_board(ledger, DATASET))["sections"][0]["rows"][0]["trials"]
    assert (first["status"], first["superseded_by"]["cause"]) == ("superseded", "infrastructure")
    assert first["superseded_by"]["author"] == "ana"
    assert second["stands_in_for"] == ["experiment-001/t1"]


def test_trials_that_stand_in_for_one_another_both_count(ledger: Ledger) -> None:
    one, other = (sit(ledger, name, 0.0).subject for name in ("t1", "t2"))
    with ledger.writing():
        ledger.append(
            [
                SupersedeEntry(
                    at="", seq=0, subject=left, by=right, cause="other", reason="so", author="eve"
                )
                for left, right in ((one, other), (other, one))
            ]
        )
    board = make_board(ledger, DATASET)
    assert [row.numbers.account.counted for row in board.rows] == [2]
    assert all("form a cycle" in note for note in render_notes(board))


def test_a_failure_is_not_got_rid_of_by_a_trial_of_another_task(ledger: Ledger) -> None:
    failed, other = sit(ledger, "t1", 0.0), sit(ledger, "t2", 1.0, task="subtract")
    append_supersession(ledger, failed, other, "other", reason="better", author="eve")
    assert only_row(ledger).numbers.score == 0.5
    _, note = render_notes(make_board(ledger, DATASET))
    assert "its supersession does not count: the trial that replaces it is of another" in note


def test_marks_count_from_where_they_stand(ledger: Ledger) -> None:
    row = sit(ledger, "t1", 0.0)
    before = make_board(ledger, DATASET).size
    score = TrialScore(profile="harbor-0.25", certificate=certified(1.0))
    append_rescore(ledger, row, score, reason="the verifier was mended", author="ana")
    assert only_row(ledger).numbers.score == 1.0
    (section,) = make_board(ledger, DATASET).sections
    assert section.conditions.profile == "harbor-0.25"
    assert [row.numbers.score for row in rows_of(ledger, at=before)] == [0.0]
    (trial,) = describe_board(make_board(ledger, DATASET))["sections"][0]["rows"][0]["trials"]
    assert (trial["marked_again"]["former"], trial["reward"]) == (0.0, 1.0)


def test_kept_attempts_of_a_trial_that_was_run_again_are_in_no_number(ledger: Ledger) -> None:
    sit(ledger, "t1.attempt-1", None)
    sit(ledger, "t1", 1.0)
    sit(ledger, "alone.attempt-1", 0.0)
    numbers = only_row(ledger).numbers
    assert (numbers.score, numbers.account.begun_again, numbers.account.listed) == (0.5, 1, 3)


def test_pass_at_k_is_of_the_attempts_that_every_task_has(ledger: Ledger) -> None:
    for number, reward in enumerate([1.0, 0.0, 0.0, 0.0, 1.0]):
        sit(ledger, f"t{number}", reward, task="add" if number < 3 else "subtract")
    found = only_row(ledger).numbers.pass_at_k
    assert found is not None
    assert found.k == 2
    assert found.value == pytest.approx((2 / 3 + 1) / 2)


def test_a_trial_without_a_dataset_is_found_by_what_its_job_calls_it(ledger: Ledger) -> None:
    named = {"dataset_id": None, "agent.adapter": "chat"}
    sit(ledger, "t1", model="p/m", group="chat__m__my__tasks", record=named)
    sit(ledger, "t2", record={"dataset_id": None})
    assert [each.dataset for each in list_datasets(ledger)] == ["my__tasks"]
    (row,) = make_board(ledger, "my__tasks").rows
    assert row.agent == "chat"


def test_an_unknown_dataset_is_told_those_there_are(ledger: Ledger) -> None:
    sit(ledger, "t1")
    with pytest.raises(
        InputError, match=r"no trial of the dataset 'nope' at 2 entries; the datasets are aec"
    ):
        make_board(ledger, "nope")


def test_a_board_says_how_many_were_planned(ledger: Ledger) -> None:
    plan = RunPlan(
        dataset=None,
        tasks=(PlannedTask(task="add", revision="1"),),
        agents=(PlannedAgent(agent="tool_loop", model=None, settings=""),),
        attempts=5,
        environment="modal",
        retries=PlannedRetries(),
    )
    append_plan(ledger, "experiment-001", msgspec.json.encode(plan), author="ana")
    sit(ledger, "t1")
    (note,) = render_notes(make_board(ledger, DATASET))
    assert note == "experiment-001: 5 planned (entry 1), 1 counted here"


def test_a_document_is_plain_json_with_every_digest(ledger: Ledger) -> None:
    row = sit(ledger, "t1")
    document = json.loads(msgspec.json.encode(describe_board(make_board(ledger, DATASET))))
    (trial,) = document["sections"][0]["rows"][0]["trials"]
    assert (trial["trial"], trial["record"], trial["seq"]) == (
        "experiment-001/t1", row.record, row.seq,
    )  # fmt: skip


def test_images_that_are_not_pinned_count_with_and_without_a_reward(ledger: Ledger) -> None:
    loose = {"environment.runtime_image": "debian:12"}
    sit(ledger, "t1", 1.0, record=loose)
    sit(ledger, "t2", None, record=loose)
    assert only_row(ledger).numbers.below_grade["unpinned-image"] == 2


def test_an_open_finding_keeps_a_trial_from_the_grade_until_a_review_passes_it(
    ledger: Ledger,
) -> None:
    sit(ledger, "t1")
    row = sit(ledger, "t2", findings=("base-substituted",))
    assert only_row(ledger).numbers.below_grade["open-finding"] == 1
    append_review(ledger, row, "pass", reviewer="ana", note="the same base, by hand")
    assert "open-finding" not in only_row(ledger).numbers.below_grade


@pytest.mark.parametrize("by", ["circle", "elsewhere", "there"])
def test_a_supersession_counts_in_a_report_as_it_does_in_a_claim(ledger: Ledger, by: str) -> None:
    failed, good = sit(ledger, "t1", 0.0), sit(ledger, "t2", 1.0)
    other = sit(ledger, "t3", 1.0, experiment="another")
    stands_in = other if by == "elsewhere" else good
    append_supersession(ledger, failed, stands_in, "other", reason="broke", author="ana")
    if by == "circle":
        append_supersession(ledger, good, failed, "other", reason="broke", author="eve")
    claim = make_claim(ledger, ClaimOptions(scope=Scope("experiment-001")), ledger.refresh())
    run = load_sealed_run(ledger, "experiment-001")
    assert len(run.trials) == claim.counts.counted == (1 if by == "there" else 2)
    assert sum(run.left_out.values()) == claim.counts.superseded


def test_a_report_says_that_the_first_marks_count(ledger: Ledger) -> None:
    score = TrialScore(profile="harbor-0.25", certificate=certified(1.0))
    append_rescore(ledger, sit(ledger, "t1", 0.0), score, reason="mended", author="ana")
    run = load_sealed_run(ledger, "experiment-001")
    assert [each.reward for each in run.trials] == [0.0]
    assert "1 trial rescored later; the original score counts here" in "".join(run.notes)
