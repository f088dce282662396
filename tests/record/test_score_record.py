"""Score record v1: made from trials, and checked against them."""

import copy
import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.errors import ScoreRecordError
from proctor.record.policy import Aggregation, Keep, KeepPolicy
from proctor.record.score_record import (
    ScoreRecord,
    ScoringPolicy,
    check_score_record,
    make_score_record,
    parse_score_record,
    render_score_record,
)

MEAN = ScoringPolicy()
TRIALS = {"b-task": [1.0, 0.0], "a-task": [1.0, 1.0]}
ONE, ZERO, HALF = "3ff0000000000000", "0000000000000000", "3fe0000000000000"
DOCUMENT: dict[str, Any] = {
    "schema_version": 1,
    "eval_run_id": "run-1",
    "policy_digest": "cb400ff5278105d9b5fdfbd562385a962103108a6c70ccb1ed86ccdc60a5af84",
    "k": 2,
    "tasks": [
        {
            "task_id": "a-task",
            "trial_scores_f64be": [ONE, ONE],
            "aggregate_score_f64be": ONE,
            "passed_trials": 2,
        },
        {
            "task_id": "b-task",
            "trial_scores_f64be": [ONE, ZERO],
            "aggregate_score_f64be": HALF,
            "passed_trials": 1,
        },
    ],
    "final": {"job_score_f64be": "3fe8000000000000", "passed_tasks": 1, "total_tasks": 2},
}


def changed(path: tuple[str | int, ...], value: object) -> bytes:
    document = copy.deepcopy(DOCUMENT)
    place: Any = document
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return json.dumps(document).encode()


def without(path: tuple[str | int, ...]) -> bytes:
    document = copy.deepcopy(DOCUMENT)
    place: Any = document
    for key in path[:-1]:
        place = place[key]
    del place[path[-1]]
    return json.dumps(document).encode()


def refusal(data: bytes) -> str:
    with pytest.raises(ScoreRecordError) as caught:
        check_score_record(parse_score_record(data), MEAN)
    return str(caught.value)


def test_a_record_is_made_from_the_trials_of_its_tasks() -> None:
    assert make_score_record("run-1", MEAN, TRIALS).document == DOCUMENT


def test_a_record_has_the_published_digest() -> None:
    assert make_score_record("run-1", MEAN, TRIALS).digest == (
        "7b060dc2380102859b6863c191b3a226067288e6452a1458040d35052e4d831c"
    )


def test_a_record_is_written_in_its_one_spelling() -> None:
    record = make_score_record("run-1", MEAN, TRIALS)
    written = render_score_record(record)
    assert written.startswith(b'{"eval_run_id":"run-1","final":{"job_score_f64be":')
    assert parse_score_record(written) == record


def test_a_good_record_passes() -> None:
    check_score_record(parse_score_record(json.dumps(DOCUMENT).encode()), MEAN)


def test_best_of_k_takes_the_best_trial() -> None:
    record = make_score_record("r", ScoringPolicy(Aggregation.BEST_OF_K), TRIALS)
    assert [task.aggregate for task in record.tasks] == [1.0, 1.0]
    assert (record.job_score, record.passed_tasks, record.total_tasks) == (1.0, 2, 2)


def test_tasks_that_are_not_kept_are_still_counted() -> None:
    policy = ScoringPolicy(keep=Keep(KeepPolicy.DROP_LOWEST_N, drop_lowest_n=1))
    record = make_score_record("r", policy, TRIALS)
    assert (record.job_score, record.passed_tasks, record.total_tasks) == (1.0, 1, 2)
    check_score_record(record, policy)


def test_only_a_full_score_is_a_pass() -> None:
    record = make_score_record("r", MEAN, {"t": [0.9999999999999, 1, 1.0]})
    assert record.tasks[0].passed_trials == 2
    assert record.passed_tasks == 0
    assert record.k == 3


def test_whole_numbers_become_doubles() -> None:
    record = make_score_record("r", MEAN, {"t": [1, 0]})
    assert repr(record.tasks[0].trials) == "(1.0, 0.0)"


@pytest.mark.parametrize(
    ("trials", "message"),
    [
        ({}, "there are no tasks; expected at least one"),
        ({"t": []}, "task 't' has no trials; expected at least one"),
        (
            {"a": [1.0, 1.0], "b": [1.0]},
            "task 'b' has 1 trials; expected 2, as many as task 'a'",
        ),
        (
            {"b": [1.0], "a": [1.0, 1.0], "c": [1.0, 1.0]},
            "task 'b' has 1 trials; expected 2, as many as task 'a'",
        ),
        *(
            (
                {"t": [1.0, score]},
                f"task 't' has score {score!r}; "
                "expected a finite number from 0 to 1, not negative zero",
            )
            for score in (1.5, -0.1, -0.0, float("nan"), float("inf"))
        ),
        ({"": [1.0]}, "task_id is ''; expected 1 to 128 visible ASCII characters"),
        ({"a b": [1.0]}, "task_id is 'a b'; expected 1 to 128 visible ASCII characters"),
        ({"é": [1.0]}, "task_id is 'é'; expected 1 to 128 visible ASCII characters"),
        ({"\x7f": [1.0]}, "task_id is '\\x7f'; expected 1 to 128 visible ASCII characters"),
    ],
)
def test_trials_that_make_no_record_are_refused(
    trials: dict[str, list[float]], message: str
) -> None:
    with pytest.raises(ScoreRecordError) as caught:
        make_score_record("r", MEAN, trials)
    assert str(caught.value) == message


def test_an_id_may_be_as_long_as_it_may_be() -> None:
    longest = "!" + "x" * 126 + "~"
    assert make_score_record(longest, MEAN, {longest: [1.0]}).eval_run_id == longest
    with pytest.raises(ScoreRecordError) as caught:
        make_score_record(f"{longest}x", MEAN, TRIALS)
    assert str(caught.value) == (
        f"eval_run_id is '{longest}x'; expected 1 to 128 visible ASCII characters"
    )


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("policy_digest",), "0" * 64, None),
        (("k",), 3, "k is 3; expected 2"),
        (("tasks", 0, "aggregate_score_f64be"), HALF, None),
        (("tasks", 1, "aggregate_score_f64be"), ONE, None),
        (("tasks", 0, "passed_trials"), 1, "tasks[0].passed_trials is 1; expected 2"),
        (("tasks", 1, "passed_trials"), 2, "tasks[1].passed_trials is 2; expected 1"),
        (("tasks", 0, "task_id"), "c-task", "tasks[0].task_id is 'c-task'; expected 'b-task'"),
        (("tasks", 0, "task_id"), "b-task", "tasks has 2 entries; expected 1"),
        (("final", "job_score_f64be"), ONE, None),
        (("final", "passed_tasks"), 2, "final.passed_tasks is 2; expected 1"),
        (("final", "total_tasks"), 1, "final.total_tasks is 1; expected 2"),
        (
            ("tasks", 1, "trial_scores_f64be"),
            [ONE, ONE],
            f"tasks[1].aggregate_score_f64be is '{HALF}'; expected '{ONE}'",
        ),
        (
            ("tasks", 1, "trial_scores_f64be"),
            [ONE],
            "task 'b-task' has 1 trials; expected 2, as many as task 'a-task'",
        ),
    ],
)
def test_the_first_field_that_does_not_follow_is_named(
    path: tuple[str | int, ...], value: object, message: str | None
) -> None:
    if message is None:
        place: Any = DOCUMENT
        for key in path:
            place = place[key]
        where = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path)
        message = f"{where[1:]} is {value!r}; expected {place!r}"
    assert refusal(changed(path, value)) == message


def test_a_record_checked_by_another_policy_fails_at_its_digest() -> None:
    record = make_score_record("r", MEAN, TRIALS)
    other = ScoringPolicy(Aggregation.BEST_OF_K)
    with pytest.raises(ScoreRecordError) as caught:
        check_score_record(record, other)
    assert str(caught.value) == (f"policy_digest is '{MEAN.digest}'; expected '{other.digest}'")


def test_a_record_without_tasks_does_not_pass() -> None:
    record = dataclasses.replace(make_score_record("r", MEAN, TRIALS), tasks=())
    with pytest.raises(ScoreRecordError, match=r"^there are no tasks; expected at least one$"):
        check_score_record(record, MEAN)


@pytest.mark.parametrize(
    "path",
    [
        *((field,) for field in DOCUMENT),
        *(("tasks", 1, field) for field in DOCUMENT["tasks"][0]),
        *(("final", field) for field in DOCUMENT["final"]),
    ],
)
def test_no_field_may_be_left_out(path: tuple[str | int, ...]) -> None:
    where = {1: "the score record", 2: "final", 3: "tasks[1]"}[len(path)]
    assert refusal(without(path)) == f"{where} has no {path[-1]}"


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (
            ("extra",),
            "the score record has a field 'extra'; expected schema_version, eval_run_id, "
            "policy_digest, k, tasks, final",
        ),
        (
            ("tasks", 0, "extra"),
            "tasks[0] has a field 'extra'; expected task_id, trial_scores_f64be, "
            "aggregate_score_f64be, passed_trials",
        ),
        (
            ("final", "extra"),
            "final has a field 'extra'; expected job_score_f64be, passed_tasks, total_tasks",
        ),
    ],
)
def test_no_field_may_be_added(path: tuple[str | int, ...], message: str) -> None:
    assert refusal(changed(path, 1)) == message


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("schema_version",), 2, "schema_version is 2; expected 1"),
        (("schema_version",), 0, "schema_version is 0; expected 1"),
        (("schema_version",), True, "schema_version is True; expected a whole number, 0 or more"),
        (("eval_run_id",), 1, "eval_run_id is 1; expected a text"),
        (("eval_run_id",), "", "eval_run_id is ''; expected 1 to 128 visible ASCII characters"),
        (("policy_digest",), None, "policy_digest is None; expected a text"),
        (("k",), 0, "k is 0; expected a whole number, 1 or more"),
        (("tasks",), [], "tasks is []; expected a list that is not empty"),
        (("tasks", 1), 5, "tasks[1] is 5; expected an object"),
        (("tasks", 1, "task_id"), 5, "tasks[1].task_id is 5; expected a text"),
        (
            ("tasks", 1, "task_id"),
            " ",
            "tasks[1].task_id is ' '; expected 1 to 128 visible ASCII characters",
        ),
        (
            ("tasks", 1, "trial_scores_f64be"),
            [],
            "tasks[1].trial_scores_f64be is []; expected a list that is not empty",
        ),
        (
            ("tasks", 1, "trial_scores_f64be", 1),
            "0",
            "tasks[1].trial_scores_f64be[1] is '0'; expected 16 lower-case hex digits",
        ),
        (
            ("tasks", 0, "aggregate_score_f64be"),
            1,
            "tasks[0].aggregate_score_f64be is 1; expected 16 lower-case hex digits",
        ),
        (
            ("tasks", 0, "passed_trials"),
            -1,
            "tasks[0].passed_trials is -1; expected a whole number, 0 or more",
        ),
        (("final",), None, "final is None; expected an object"),
        (
            ("final", "job_score_f64be"),
            "",
            "final.job_score_f64be is ''; expected 16 lower-case hex digits",
        ),
        (
            ("final", "passed_tasks"),
            "1",
            "final.passed_tasks is '1'; expected a whole number, 0 or more",
        ),
        (
            ("final", "total_tasks"),
            -1,
            "final.total_tasks is -1; expected a whole number, 0 or more",
        ),
        (("k",), 2.0, "the document has the number 2.0; expected whole numbers only"),
    ],
)
def test_a_field_that_breaks_the_format_is_named(
    path: tuple[str | int, ...], value: object, message: str
) -> None:
    with pytest.raises(ScoreRecordError) as caught:
        parse_score_record(changed(path, value))
    assert str(caught.value) == message


def test_a_record_that_is_no_object_is_refused() -> None:
    with pytest.raises(ScoreRecordError, match=r"^the score record is \[\]; expected an object$"):
        parse_score_record(b"[]")


def test_a_key_given_twice_is_refused() -> None:
    with pytest.raises(ScoreRecordError, match=r"^the key 'k' is given twice in one object$"):
        parse_score_record(b'{"k": 2, "k": 2}')


@st.composite
def runs(draw: st.DrawFn) -> dict[str, list[float]]:
    k = draw(st.integers(1, 4))
    scores = st.lists(st.floats(0, 1).map(abs), min_size=k, max_size=k)
    return draw(st.dictionaries(st.text("abc-", min_size=1), scores, min_size=1, max_size=5))


@given(runs(), st.sampled_from([MEAN, ScoringPolicy(Aggregation.BEST_OF_K)]))
def test_whatever_is_made_is_read_back_and_passes(
    trials: dict[str, list[float]], policy: ScoringPolicy
) -> None:
    record = make_score_record("run", policy, trials)
    read = parse_score_record(render_score_record(record))
    assert read == record
    assert isinstance(read, ScoreRecord)
    assert read.digest == record.digest
    check_score_record(read, policy)
