"""A sample to a record with its evidence."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from proctor.errors import PrimeError
from proctor.record.rules import find_foreign
from tests.exchange.prime.samples import CALL, evaluation, make_a, make_b, record_of, submit


def test_every_field_has_its_place() -> None:
    record = record_of(make_b())
    assert (record.trial_id, record.experiment_id) == ("prime-ev1-s1", "nightly")
    assert record.dataset_id == "aec@1.2"
    assert record.timestamp == datetime(2026, 5, 2, 10, tzinfo=UTC)
    assert (record.task.task_id, record.task.task_revision) == ("hvac/heat-load", "abc123")
    assert (record.agent.adapter, record.agent.model) == ("prime-hosted", "acme/m")
    assert record.agent.configuration == {
        "source": "prime-eval-samples",
        "evaluation_id": "ev1",
        "evaluation_name": "Nightly",
        "viewer_url": "https://example.org/ev1",
        "eval_config": {"num_examples": 2, "rollouts_per_example": 3},
    }
    assert record.environment.runtime_image == record.environment.compute_backend == "prime-hosted"
    assert record.inputs.instruction == "Compute the heat load."
    assert record.inputs.system_prompt is None
    assert record.completeness == "partial"
    assert (record.timing.total_seconds, record.timing.agent_seconds) == (12.5, 10.0)
    assert record.timing.verification_seconds == 2.5
    assert record.cost is not None
    assert (record.cost.tokens_in, record.cost.tokens_out) == (120, 30)
    assert record.cost.estimated_cost_usd is None
    assert [note for note in find_foreign(record) if note.is_problem] == []


def test_the_outcome_stands_in_outputs_and_evaluation() -> None:
    record = record_of(make_b())
    assert record.evaluation.reward == 0.5
    assert record.evaluation.breakdown == make_b()["metrics"]
    assert record.evaluation.validity.verifier_completed
    assert record.outputs.agent_output is not None
    assert record.outputs.agent_output.status == "completed"
    assert record.outputs.raw_output_path == record.outputs.agent_output.output_path == "output.md"
    assert record.outputs.conversation_path == "conversation.jsonl"
    assert record.outputs.trajectory_path is None
    assert record.outputs.agent_result == {
        "source": "prime-eval-samples",
        "prime_evaluation_id": "ev1",
        "prime_sample_id": "s1",
        "example_id": 7,
        "rollout_number": 2,
        "stop_condition": "submitted",
        "is_completed": True,
        "is_truncated": False,
        "error": None,
        "reward_key": "reward",
        "tool_calls": {"total": 1, "submit_answer": 1, "by_tool": {"submit_answer": 1}},
        "metrics": make_b()["metrics"],
        "notes": [],
    }


def test_the_evidence_is_the_messages_the_sample_and_the_answer() -> None:
    sample = make_b()
    files = submit(sample).attached
    assert sorted(files) == ["conversation.jsonl", "output.md", "prime_sample.json"]
    assert files["output.md"] == b"# Heat load\n"
    assert files["prime_sample.json"] == json.dumps(sample, indent=2, sort_keys=True).encode()
    rows = [
        {"role": "system", "content": "Be exact."},
        {"role": "user", "content": "Compute the heat load."},
        {"role": "assistant", "content": "", "tool_calls": [CALL]},
        {"role": "tool", "content": "ok", "tool_call_id": "call-1"},
    ]
    expected = "".join(json.dumps(row, sort_keys=True) + "\n" for row in rows)
    assert files["conversation.jsonl"] == expected.encode()


def test_both_shapes_give_the_same_record_and_conversation() -> None:
    one, other = record_of(make_a()), record_of(make_b(is_truncated=None))
    assert one == other
    talk = "conversation.jsonl"
    assert submit(make_a()).attached[talk] == submit(make_b()).attached[talk]


def test_the_same_sample_gives_the_same_bytes() -> None:
    assert submit(make_b()) == submit(json.loads(json.dumps(make_b())))


@pytest.mark.parametrize(
    ("changes", "reward", "key"),
    [
        ({"reward": 0}, 0.0, "reward"),
        ({"reward": -3.5}, -3.5, "reward"),
        ({"reward": None, "score": 0.7}, None, None),
        ({"reward": ..., "aec_bench_reward": 0.25, "score": 0.7}, 0.25, "aec_bench_reward"),
        ({"reward": ..., "score": 0.7}, 0.7, "score"),
        ({"reward": ...}, 0.5, "metrics.aec_bench_reward"),
        ({"reward": ..., "metrics": {}}, None, None),
    ],
)
def test_a_reward_is_what_is_said_and_a_missing_one_is_null(
    changes: dict[str, Any], reward: float | None, key: str | None
) -> None:
    sample = {name: value for name, value in make_b(**changes).items() if value is not ...}
    record = record_of(sample)
    assert record.evaluation.reward == reward
    assert record.evaluation.validity.verifier_completed is (reward is not None)
    assert record.evaluation.validity.output_parseable is (reward is not None)
    assert (record.outputs.agent_result or {})["reward_key"] == key
    assert submit(sample).reason_code == (None if reward is not None else "harbor_reward_missing")


@pytest.mark.parametrize(
    "reward", [float("nan"), float("inf"), "0.5", True, [1], pytest.param(10**400, id="huge")]
)
def test_a_reward_that_is_no_number_refuses_the_sample(reward: object) -> None:
    with pytest.raises(PrimeError, match=r'^sample "s1": reward is .*; expected a finite'):
        submit(make_b(reward=reward))


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"reward": 0.0}, "completed"),
        ({"is_truncated": True}, "partial"),
        ({"is_completed": False}, "partial"),
        ({"is_completed": None}, "partial"),
        ({"error": {"error": "boom", "error_chain_str": "a -> boom"}}, "failed"),
        ({"error": "boom", "is_truncated": True}, "failed"),
    ],
)
def test_how_it_ended_does_not_hang_on_the_reward(changes: dict[str, Any], status: str) -> None:
    record = record_of(make_b(**changes))
    assert record.outputs.agent_output is not None
    assert record.outputs.agent_output.status == status
    error = "a -> boom" if isinstance(changes.get("error"), dict) else changes.get("error")
    assert record.outputs.agent_output.error_message == error
    assert record.evaluation.validity.errors == ((error,) if error else ())


def test_an_unscored_failure_has_the_reason_of_a_failure() -> None:
    assert submit(make_b(reward=None, error="boom")).reason_code == "harbor_trial_failed"


def test_a_metric_cannot_stand_in_for_a_fact() -> None:
    result = record_of(make_b(metrics={"source": 1.0, "error": 2.0})).outputs.agent_result or {}
    assert (result["source"], result["error"]) == ("prime-eval-samples", None)
    assert result["metrics"] == {"source": 1.0, "error": 2.0}


@pytest.mark.parametrize(
    ("changes", "task"),
    [
        ({"info": {}, "answer": "hvac/duct-2"}, "hvac/duct-2"),
        ({"info": {}, "answer": "42"}, "prime/7"),
        ({"info": {}, "answer": "3/4 of it"}, "prime/7"),
        ({"info": None, "example_id": None}, "prime/unknown"),
        ({"info": {}, "example_id": "ex-1"}, "prime/ex-1"),
    ],
)
def test_a_task_is_named_by_what_names_it(changes: dict[str, Any], task: str) -> None:
    assert record_of(make_b(**changes)).task.task_id == task


def test_a_time_that_is_missing_is_the_evaluations_and_said_to_be() -> None:
    record = record_of(make_b(created_at=None))
    assert record.timestamp == datetime(2026, 5, 1, tzinfo=UTC)
    assert (record.outputs.agent_result or {})["notes"] == [
        "timestamp is the evaluation's: the sample has no created_at"
    ]
    record = record_of(make_b(created_at="soon"), created_at=None)
    assert record.timestamp == datetime(1970, 1, 1, tzinfo=UTC)
    assert (record.outputs.agent_result or {})["notes"] == [
        "timestamp is no time: neither sample nor evaluation has a created_at",
    ]


def test_a_time_without_an_offset_is_utc() -> None:
    record = record_of(make_b(created_at="2026-05-02T10:00:00.5"))
    assert record.timestamp == datetime(2026, 5, 2, 10, 0, 0, 500000, tzinfo=UTC)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"timing": {"total": -1}}, "total_seconds"),
        ({"timing": {"scoring": "long"}}, "verification_seconds"),
        ({"token_usage": {"input_tokens": -5}}, "tokens_in"),
        ({"prompt": {"role": "user"}}, "Expected `str | array`, got `object` - at `\\$.prompt`"),
        ({"completion": ["x"]}, "Expected `object`, got `str` - at `\\$.completion"),
        ({"completion": [{"tool_calls": ["no json"]}]}, "Expecting value"),
        ({"info": "no json"}, "Expecting value"),
    ],
)
def test_what_is_not_in_primes_format_refuses_the_sample(
    changes: dict[str, Any], said: str
) -> None:
    with pytest.raises(PrimeError, match=rf'^sample "s1": .*{said}'):
        submit(make_b(**changes))


def test_a_prompt_may_be_plain_text() -> None:
    sample = make_b(prompt="2+2?", completion="4")
    assert record_of(sample).inputs.instruction == "2+2?"
    assert submit(sample).attached["conversation.jsonl"] == (
        b'{"content": "2+2?", "role": "user"}\n{"content": "4", "role": "assistant"}\n'
    )


def submitting(path: object, content: str = "mine") -> dict[str, Any]:
    call = {"function": {"name": "submit_answer", "arguments": {"path": path, "content": content}}}
    return make_b(completion=[{"role": "assistant", "tool_calls": [call]}])


@pytest.mark.parametrize(
    ("path", "name"),
    [
        (None, "output.md"),
        ("", "output.md"),
        ("report.md", "report.md"),
        ("./out/report.md", "out/report.md"),
        ("/workspace/report.md", "report.md"),
        ("../../etc/passwd", "passwd"),
        ("prime_sample.json", "output.md"),
        ("x/PRIME_sample.json", "output.md"),
        ("conversation.jsonl", "output.md"),
        ("conversation.jsonl/x", "x"),
        ("agent/trajectory.jsonl", "output.md"),
        ("_generation2/x.json", "x.json"),
        ("..", "output.md"),
        ("a\nb", "output.md"),
        ("..\\..\\x", "output.md"),
        ("a" * 5000, "output.md"),
        ("x\0y", "output.md"),
        (["x"], "output.md"),
    ],
)
def test_a_submitted_file_stays_in_its_place(path: object, name: str) -> None:
    trial = submit(submitting(path))
    assert sorted(trial.attached) == sorted(["conversation.jsonl", "prime_sample.json", name])
    assert trial.attached[name] == b"mine"
    assert json.loads(trial.attached["prime_sample.json"]) == submitting(path)
    is_own = path in (None, "", "report.md", "./out/report.md")
    assert [finding["code"] for finding in trial.findings] == ([] if is_own else ["files-refused"])


def test_the_first_answer_with_anything_in_it_counts() -> None:
    rows = [
        {"role": "assistant", "tool_calls": [{"function": {"name": "submit_answer"}}]},
        *submitting("a.md", "")["completion"],
        *submitting("b.md")["completion"],
        *submitting("c.md", "later")["completion"],
    ]
    trial = submit(make_b(completion=rows))
    assert "b.md" in trial.attached
    assert "c.md" not in trial.attached
    result = record_of(make_b(completion=rows)).outputs.agent_result or {}
    assert result["tool_calls"]["submit_answer"] == 4


def test_ids_with_one_slug_stay_apart() -> None:
    names = ["a-b", "a b", "a/b", "a:b", "A" * 300, "A" * 301, "ü", "../x"]
    ids = {json.loads(submit(make_b(), name).record)["trial_id"] for name in names}
    assert len(ids) == len(names)
    assert "prime-ev1-a-b" in ids
    assert max(map(len, ids)) <= 200


@pytest.mark.parametrize("sample", [None, 3, "x", [make_b()]])
def test_what_is_no_object_is_no_sample(sample: object) -> None:
    with pytest.raises(PrimeError, match=r'^sample "s1": Expected `object`, got'):
        submit(sample)


def test_a_model_is_found_under_any_of_its_names() -> None:
    assert evaluation(model_name=None, inference_model="x/y").model == "x/y"
    assert evaluation(model_name=None, metadata={"model": "z"}).model == "z"
    assert evaluation(model_name=None).model == "unknown"
