"""What becomes of a sample: its record, its trace, its evidence."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from proctor.errors import InspectError
from proctor.exchange.inspect import messages
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
            "timestamp": "2026-03-01T10:00:01+00:00",
            "completed": "2026-03-01T10:00:02+00:00",
            "output": {
                "choices": [{"message": {"id": "c"}}],
                "usage": {
                    "input_tokens": 4,
                    "output_tokens": 2,
                    "total_tokens": 9,
                    "input_tokens_cache_read": 3,
                },
            },
        },
        {"event": "tool", "id": "t1", "timestamp": "2026-03-01T10:00:03+00:00"},
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
    (10**400, None),
    ([1], None),
    ([], None),
    ({}, None),
    (None, None),
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
        ({"scores": 3}, "harbor_reward_missing", "completed"),
        ({"scores": None, "error": {"message": "boom"}}, "harbor_trial_failed", "failed"),
        ({"scores": None, "error": "boom"}, "harbor_trial_failed", "failed"),
        (
            {"scores": None, "limit": {"type": "time", "limit": 9}},
            "harbor_agent_timeout_error",
            "partial",
        ),
        ({"scores": None, "limit": {"type": "token"}}, "harbor_reward_missing", "partial"),
        ({"limit": {"type": "message", "limit": 9}}, None, "partial"),
        ({"error": {"message": "boom"}}, None, "failed"),
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
        ({"input_tokens": 1.5, "output_tokens": 1}, None),
        ({"input_tokens": 10**16, "output_tokens": 1}, None),
        ({"input_tokens": True, "output_tokens": 1}, None),
        ({"input_tokens": 1}, None),
        ("many", None),
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


def test_attachments_that_are_used_without_end_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(messages._Texts, "__init__", _limited)
    said = [{"role": "user", "content": "attachment://a"}] * 100
    path = write_archive(
        tmp_path / "a.eval", make_sample(messages=said, attachments={"a": "x" * 100})
    )
    (offer,) = find(path).offers
    with pytest.raises(InspectError, match="its attachments are more than"):
        offer.submit()


def _limited(self: Any, attachments: Any) -> None:
    self.attachments, self.left = attachments, 1000


def test_a_sample_without_messages_has_those_of_its_last_call_of_a_model(tmp_path: Path) -> None:
    asked = {"role": "user", "content": "Go."}
    answered = {"role": "assistant", "content": "Gone."}
    event = {"event": "model", "output": {"choices": [{"message": answered}]}}
    for changes in (
        {"events": [event | {"input": [asked]}]},
        {
            "events": [event | {"input": [], "input_refs": [[1, 2], [-5, 0], [3, 10**9], "x"]}],
            "events_data": {"messages": [answered, asked]},
        },
    ):
        entries = entries_of(make(tmp_path, messages=[], **changes))
        assert [each["content"] for each in entries] == ["Go.", "Gone."]


def test_parts_that_are_no_text_are_named(tmp_path: Path) -> None:
    parts = [{"type": "text", "text": "Look"}, {"type": "image", "image": "data:…"}, 3]
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
    trial = make(tmp_path, messages=[], input=None)
    assert sorted(trial.attached) == ["inspect_eval.json", "inspect_sample.json"]
    assert record_of(trial)["outputs"]["trajectory_path"] is None
    assert record_of(trial)["inputs"]["instruction"] == "unresolved"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"id": None}, "id is null; expected text or a whole number"),
        ({"id": 1.5}, "id is 1.5"),
        ({"id": True}, "id is true"),
        ({"id": " "}, 'id is " "'),
        ({"epoch": 0}, "epoch is 0; expected a whole number, 1 or more"),
        ({"epoch": "1"}, 'epoch is "1"'),
    ],
)
def test_a_sample_without_an_id_or_an_epoch_is_refused(
    tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    path = write_archive(tmp_path / "a.eval", make_sample() | changes)
    (offer,) = find(path).offers
    with pytest.raises(InspectError) as refused:
        offer.submit()
    assert said in str(refused.value)


def test_a_sample_without_a_time_has_that_of_its_log(tmp_path: Path) -> None:
    changes = {"started_at": None, "completed_at": "soon", "total_time": None}
    record = record_of(make(tmp_path, **changes))
    assert record["timestamp"] == "2026-03-01T10:00:00Z"
    notes = record["outputs"]["agent_result"]["notes"]
    assert any("timestamp is that of the log" in note for note in notes)
    assert any("total_seconds is 0" in note for note in notes)
    header = {**HEADER, "eval": {**EVAL, "created": None}}
    path = write_archive(tmp_path / "b.eval", make_sample(**changes), header=header)
    (offer,) = find(path).offers
    with pytest.raises(InspectError, match="neither the sample nor the log says when it ran"):
        offer.submit()


def test_values_that_a_record_cannot_store_are_left_out_and_noted(tmp_path: Path) -> None:
    header = {**HEADER, "eval": {**EVAL, "task_args": {"x": math.nan}}}
    record = record_of(make(tmp_path, header=header, uuid="\ud800"))
    assert record["agent"]["configuration"] == {"limits": {"message_limit": 30}}
    notes = record["outputs"]["agent_result"]["notes"]
    assert any(note.startswith("task_args has nan") for note in notes)


def test_the_answer_is_what_the_model_said_last(tmp_path: Path) -> None:
    for output in (
        {"completion": "attachment://x"},
        {"choices": [{"message": {"content": [{"type": "text", "text": "the answer"}]}}]},
    ):
        trial = make(tmp_path, output=output, attachments={"x": "the answer"})
        assert trial.attached["output.md"] == b"the answer"
        assert record_of(trial)["outputs"]["raw_output_path"] == "output.md"
    for nothing in (None, {}, {"completion": " "}, {"choices": [3]}):
        assert "output.md" not in make(tmp_path, output=nothing).attached


def test_the_evidence_is_the_sample_byte_for_byte_and_what_was_run(tmp_path: Path) -> None:
    data = b'{ "id": "a",\t"epoch": 1, "scores": {"exact": {"value": NaN}}, "x": 1.50 }'
    (trial,) = submit(write_archive(tmp_path / "a.eval", data))
    assert trial.attached["inspect_sample.json"] == data
    assert json.loads(trial.attached["inspect_eval.json"]) == {
        key: HEADER[key] for key in ("version", "eval", "plan")
    }
    assert evaluation_of(trial)["breakdown"] == {"exact": "nan"}
