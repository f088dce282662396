"""What becomes of a sample: its record, its trace, its evidence."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from proctor.errors import InspectError
from proctor.ledger.sealing import Submission
from tests.exchange.inspect.logs import (
    EVAL,
    HEADER,
    entries_of,
    find,
    make_sample,
    record_of,
    submit,
    write_archive,
)


def make(tmp_path: Path, /, header: Any = HEADER, scorer: str | None = None, **changes: Any) -> Any:
    """The one trial of a sample with these changes."""
    path = write_archive(tmp_path / "a.eval", make_sample(**changes), header=header)
    (trial,) = submit(path, scorer=scorer)
    return trial


def evaluation_of(trial: Submission) -> dict[str, Any]:
    evaluation: dict[str, Any] = record_of(trial)["evaluation"]
    return evaluation


def test_a_sample_becomes_a_partial_record(tmp_path: Path) -> None:
    trial = make(tmp_path, model_usage={"acme/model-x": {"input_tokens": 7, "output_tokens": 2}})
    record = record_of(trial)
    assert record["trial_id"] == "1.epoch-1.Ev1"
    assert (record["experiment_id"], record["dataset_id"]) == ("arithmetic", "arithmetic@2")
    assert record["task"] == {"task_id": "1", "task_revision": "unresolved"}
    assert record["agent"] == {
        "adapter": "react",
        "model": "acme/model-x",
        "adapter_revision": "inspect_ai 0.3.1",
        "configuration": {"limits": {"message_limit": 30}},
    }
    assert record["inputs"]["instruction"] == "Add 1 and 2."
    assert record["inputs"]["system_prompt"] == "Be brief."
    assert (record["evaluation"]["reward"], record["completeness"]) == (1.0, "partial")
    assert record["timestamp"] == "2026-03-01T10:00:08Z"
    assert record["timing"]["total_seconds"] == 8.0
    assert (record["cost"]["tokens_in"], record["cost"]["tokens_out"]) == (7, 2)
    assert (trial.reason_code, trial.cost_basis) == (None, "unknown")
    assert (trial.slot.task, trial.slot.attempt) == ("1", 0)
    assert (trial.source.kind, trial.source.name) == ("inspect", "a.eval")


def test_the_trace_has_the_messages_with_calls_and_results(tmp_path: Path) -> None:
    entries = entries_of(make(tmp_path))
    assert [(each["role"], each["step"]) for each in entries] == [
        ("system", 0),
        ("user", 0),
        ("assistant", 1),
        ("tool_call", 1),
        ("tool_result", 1),
        ("assistant", 2),
    ]
    assert entries[2]["metadata"]["conversation"]["thinking"] == "I need a tool."
    assert (entries[3]["tool_name"], entries[3]["command"]) == ("bash", "expr 1 + 2")
    assert (entries[4]["tool_name"], entries[4]["stdout"]) == ("bash", "3")


def test_times_tokens_and_models_come_from_the_events(tmp_path: Path) -> None:
    events = [
        {
            "event": "model",
            "model": "acme/model-x",
            "input": [],
            "tools": [],
            "tool_choice": "auto",
            "config": {},
            "working_start": 0,
            "timestamp": "2026-03-01T10:00:01+00:00",
            "completed": "2026-03-01T10:00:02+00:00",
            "output": {
                "choices": [{"message": {"id": "c", "content": "I add."}, "stop_reason": "stop"}],
                "usage": {
                    "input_tokens": 4,
                    "output_tokens": 2,
                    "total_tokens": 9,
                    "input_tokens_cache_read": 3,
                },
            },
        },
        {
            "event": "tool",
            "id": "t1",
            "timestamp": "2026-03-01T10:00:03+00:00",
            "function": "bash",
            "arguments": {},
            "working_start": 0,
        },
    ]
    entries = entries_of(make(tmp_path, events=events))
    assert entries[2]["timestamp"] == "2026-03-01T10:00:02+00:00"
    assert entries[2]["metadata"]["conversation"]["model_name"] == "acme/model-x"
    assert entries[2]["metadata"]["conversation"]["usage"] == {
        "input_tokens": 7,
        "output_tokens": 2,
        "cache_read_tokens": 3,
    }
    assert entries[4]["timestamp"] == "2026-03-01T10:00:03+00:00"


SCORES: list[tuple[Any, float | None]] = [
    ("C", 1.0),
    ("P", 0.5),
    ("I", 0.0),
    ("N", 0.0),
    (True, 1.0),
    (False, 0.0),
    (3, 3.0),
    (-0.5, -0.5),
    ("TRUE", 1.0),
    ("no", 0.0),
    ("1e-3", 0.001),
    ("c", None),
    ("good", None),
    ("", None),
    ("nan", None),
    ("inf", None),
    (math.nan, None),
    (math.inf, None),
    ([1], None),
    ([], None),
    ({}, None),
    ({"a": "P"}, 0.5),
    ({"reward": 2, "a": 1}, 2.0),
    ({"a": 1, "b": 1}, None),
    ({"a": math.nan}, None),
]


@pytest.mark.parametrize(("value", "reward"), SCORES)
def test_a_value_is_a_number_or_the_trial_is_not_scored(
    tmp_path: Path, value: Any, reward: float | None
) -> None:
    trial = make(tmp_path, scores={"exact": {"value": value}})
    assert evaluation_of(trial)["reward"] == reward
    assert trial.reason_code == (None if reward is not None else "harbor_reward_parse_error")
    said = evaluation_of(trial)["validity"]["errors"]
    assert said == [] if reward is not None else said[0].startswith("not scored: ")


def test_the_reward_is_the_value_of_the_first_scorer_that_the_task_declares(tmp_path: Path) -> None:
    scores = {
        "length": {"value": 12},
        "exact": {"value": "I"},
        "parts": {"value": {"a": 1, "b": 2}},
    }
    trial = make(tmp_path, scores=scores)
    assert evaluation_of(trial)["reward"] == 0
    assert evaluation_of(trial)["breakdown"] == {
        "length": 12,
        "exact": "I",
        "parts": {"a": 1, "b": 2},
    }
    assert record_of(trial)["outputs"]["agent_result"]["scorer"] == "exact"
    assert evaluation_of(make(tmp_path, scores=scores, scorer="length"))["reward"] == 12
    assert evaluation_of(make(tmp_path, scores=scores, scorer="parts:b"))["reward"] == 2
    undeclared = {**HEADER, "eval": {**EVAL, "scorers": None}}
    assert evaluation_of(make(tmp_path, scores=scores, header=undeclared))["reward"] == 12
    headline = {**HEADER, "eval": {**EVAL, "headline_metric": {"scorer": "length"}}}
    assert evaluation_of(make(tmp_path, scores=scores, header=headline))["reward"] == 12


BOOM = {"message": "boom", "traceback": "", "traceback_ansi": ""}
BY_SCORER = {"exact": {"value": "C"}, "parts": {"value": {"a": 1, "b": 2}}}


@pytest.mark.parametrize("scorer", ["other", "other:a"])
def test_a_sample_with_scores_by_others_than_the_one_asked_for_is_refused(
    tmp_path: Path, scorer: str
) -> None:
    with pytest.raises(InspectError, match=f"--scorer {scorer}: no score by other; there are"):
        make(tmp_path, scores=BY_SCORER, scorer=scorer)
    assert evaluation_of(make(tmp_path, scores=None, scorer=scorer))["reward"] is None


# The values of one scorer may differ in form from sample to sample.
@pytest.mark.parametrize("scorer", ["parts:c", "exact:a", "parts"])
def test_no_other_part_stands_in_for_the_one_that_was_asked_for(
    tmp_path: Path, scorer: str
) -> None:
    assert evaluation_of(make(tmp_path, scores=BY_SCORER, scorer=scorer))["reward"] is None


@pytest.mark.parametrize(
    ("changes", "code", "status"),
    [
        ({"scores": None}, "harbor_reward_missing", "completed"),
        ({"scores": {}}, "harbor_reward_missing", "completed"),
        ({"scores": None, "error": BOOM}, "harbor_trial_failed", "failed"),
        (
            {"scores": None, "limit": {"type": "time", "limit": 9}},
            "harbor_agent_timeout_error",
            "partial",
        ),
        (
            {"scores": None, "limit": {"type": "token", "limit": 9}},
            "harbor_reward_missing",
            "partial",
        ),
        ({"limit": {"type": "message", "limit": 9}}, None, "partial"),
        ({"error": BOOM}, None, "failed"),
    ],
)
def test_errors_and_limits_are_reasons(
    tmp_path: Path, changes: dict[str, Any], code: str | None, status: str
) -> None:
    trial = make(tmp_path, **changes)
    record = record_of(trial)
    assert trial.reason_code == code
    assert record["outputs"]["agent_output"]["status"] == status
    assert (record["evaluation"]["reward"] is None) == (code is not None)
    if "error" in changes:
        assert record["outputs"]["agent_output"]["error_message"] == "boom"
        assert record["evaluation"]["error_taxonomy"][0]["category"] == "harbor_trial_failed"


@pytest.mark.parametrize(
    ("used", "tokens"),
    [
        ({"input_tokens": 9, "output_tokens": 1, "total_tokens": 10}, (9, 1, None)),
        # The total says whether cached tokens are part of the input.
        (
            {
                "input_tokens": 9,
                "output_tokens": 1,
                "total_tokens": 10,
                "input_tokens_cache_read": 4,
            },
            (9, 1, 4),
        ),
        (
            {
                "input_tokens": 5,
                "output_tokens": 1,
                "total_tokens": 10,
                "input_tokens_cache_read": 4,
            },
            (9, 1, 4),
        ),
        ({"input_tokens": 9, "output_tokens": 1, "total_tokens": 11}, None),
        ({"input_tokens": 1, "output_tokens": 1, "input_tokens_cache_read": 4}, None),
        ({"input_tokens": -1, "output_tokens": 1}, None),
        ({"input_tokens": 1}, None),
    ],
)
def test_tokens_are_counted_once_or_unknown(
    tmp_path: Path, used: Any, tokens: tuple[int, int, int | None] | None
) -> None:
    cost = record_of(make(tmp_path, model_usage={"acme/model-x": used}))["cost"]
    if tokens is None:
        assert cost is None
    else:
        assert (cost["tokens_in"], cost["tokens_out"], cost["cache_read_tokens"]) == tokens


def test_the_cost_is_that_of_all_models_if_each_has_one(tmp_path: Path) -> None:
    each = {"input_tokens": 1, "output_tokens": 1, "total_cost": 0.25}
    trial = make(tmp_path, model_usage={"acme/a": each, "acme/b": each})
    assert record_of(trial)["cost"]["estimated_cost_usd"] == 0.5
    assert (trial.cost_basis, record_of(trial)["cost"]["tokens_in"]) == ("reported", 2)
    unpriced = {"input_tokens": 1, "output_tokens": 1}
    trial = make(tmp_path, model_usage={"acme/a": each, "acme/b": unpriced})
    assert (record_of(trial)["cost"]["estimated_cost_usd"], trial.cost_basis) == (None, "unknown")


def test_attachments_are_put_in_place(tmp_path: Path) -> None:
    said = [
        {"role": "user", "content": "attachment://one"},
        {"role": "assistant", "content": [{"type": "text", "text": "tc://two"}], "tool_calls": [
            {"id": "t", "function": "f", "arguments": {"x": ["attachment://one"]}}
        ]},
        {"role": "tool", "content": "attachment://missing", "tool_call_id": "t"},
    ]  # fmt: skip
    attachments = {"one": "the long text", "two": "another"}
    entries = entries_of(make(tmp_path, messages=said, attachments=attachments))
    assert [each.get("content") for each in entries[:2]] == ["the long text", "another"]
    assert entries[2]["arguments"] == {"x": ["the long text"]}
    assert entries[3]["stdout"] == "attachment://missing"


def test_parts_that_are_no_text_are_named(tmp_path: Path) -> None:
    parts = [{"type": "text", "text": "Look"}, {"type": "image", "image": "data:…"}]
    (entry,) = entries_of(make(tmp_path, messages=[{"role": "user", "content": parts}]))
    assert entry["content"] == "Look"
    assert entry["metadata"]["conversation"]["omitted"] == ["image"]


def test_a_sample_without_any_messages_has_no_trace(tmp_path: Path) -> None:
    trial = make(tmp_path, messages=[], input="")
    assert sorted(trial.attached) == [
        "inspect_eval.json",
        "inspect_sample.json",
        "trajectory.jsonl",
    ]
    trial = make(tmp_path, messages=[], input=[])
    assert sorted(trial.attached) == ["inspect_eval.json", "inspect_sample.json"]
    assert record_of(trial)["outputs"]["trajectory_path"] is None
    assert record_of(trial)["inputs"]["instruction"] == "unresolved"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"id": " "}, "task_id: expected text that is not blank"),
        ({"epoch": 0}, "Expected `int` >= 1 - at `$.epoch`"),
        ({"uuid": "\ud800"}, "cannot be written as JSON"),
        ({"messages": 3}, "Inspect cannot read it: messages: Input should be a valid list"),
    ],
)
def test_a_sample_that_cannot_be_a_trial_is_refused(
    tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    path = write_archive(tmp_path / "a.eval", make_sample() | changes)
    (offer,) = find(path).offers
    with pytest.raises(InspectError) as refused:
        offer.submit()
    assert said in str(refused.value)


def test_a_sample_without_a_time_has_that_of_its_log(tmp_path: Path) -> None:
    changes = {"started_at": None, "completed_at": None, "total_time": None}
    record = record_of(make(tmp_path, **changes))
    assert record["timestamp"] == "2026-03-01T10:00:00Z"
    notes = record["outputs"]["agent_result"]["notes"]
    assert any("timestamp is that of the log" in note for note in notes)
    assert any("total_seconds is 0" in note for note in notes)


def test_values_that_a_record_cannot_store_are_left_out_and_noted(tmp_path: Path) -> None:
    header = {**HEADER, "eval": {**EVAL, "task_args": {"x": math.nan}}}
    record = record_of(make(tmp_path, header=header))
    assert record["agent"]["configuration"] == {"limits": {"message_limit": 30}}
    notes = record["outputs"]["agent_result"]["notes"]
    assert any(note.startswith("task_args has nan") for note in notes)


def test_the_answer_is_what_the_model_said_last(tmp_path: Path) -> None:
    said = {"role": "assistant", "content": [{"type": "text", "text": "the answer"}]}
    trial = make(tmp_path, output={"choices": [{"message": said, "stop_reason": "stop"}]})
    assert trial.attached["output.md"] == b"the answer"
    assert record_of(trial)["outputs"]["raw_output_path"] == "output.md"
    for nothing in ({}, {"completion": " "}):
        assert "output.md" not in make(tmp_path, output=nothing).attached


def test_the_evidence_is_the_sample_and_what_was_run(tmp_path: Path) -> None:
    trial = make(tmp_path, scores={"exact": {"value": math.nan}}, metadata={"x": 1.50, "y": None})
    sealed = json.loads(trial.attached["inspect_sample.json"])
    assert sealed["metadata"] == {"x": 1.5, "y": None}
    assert math.isnan(sealed["scores"]["exact"]["value"])
    assert {key: sealed[key] for key in ("id", "epoch", "total_time")} == {
        "id": 1,
        "epoch": 1,
        "total_time": 8.0,
    }
    ran = json.loads(trial.attached["inspect_eval.json"])
    assert ran["eval"].items() >= EVAL.items()
    assert evaluation_of(trial)["breakdown"] == {"exact": "nan"}
