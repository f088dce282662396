"""The format's types, ranges and rules between fields."""

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from pydantic import ValidationError

from proctor.errors import RecordError
from proctor.record.fields import check_json
from proctor.record.model import AgentReference, TrialRecord
from proctor.record.read import parse_record
from proctor.record.schema import render_schema
from tests.record import seed
from tests.record.samples import complete, lineage, spelled, tree, without


def refusal(document: object) -> str:
    with pytest.raises(RecordError) as caught:
        parse_record(spelled(document), "r.json")
    return str(caught.value)


def test_the_fields_and_their_order_are_the_seeds() -> None:
    assert list(TrialRecord.model_fields) == list(seed.TrialRecord.model_fields)
    explained = json.loads(render_schema())["properties"]
    for name, field in seed.TrialRecord.model_fields.items():
        ours = TrialRecord.model_fields[name]
        assert ours.is_required() == field.is_required()
        assert explained[name]["description"]


def test_a_record_cannot_be_changed() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        setattr(complete(), "trial_id", "other")  # noqa: B010 - a type checker sees it too


REQUIRED = [
    "trial_id",
    "experiment_id",
    "timestamp",
    "task",
    "task.task_id",
    "task.task_revision",
    "agent.adapter",
    "agent.model",
    "environment.runtime_image",
    "environment.compute_backend",
    "inputs.instruction",
    "outputs",
    "evaluation.reward",
    "evaluation.validity.output_parseable",
    "timing.total_seconds",
]


@pytest.mark.parametrize("path", REQUIRED)
def test_a_missing_field_is_named(path: str) -> None:
    assert refusal(without(path)) == f"r.json: {path} is missing"


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("trial_id", " ", "trial_id: expected text that is not blank"),
        ("trial_id", 7, "trial_id is 7; expected a valid string"),
        ("task.task_id", "", "task.task_id: expected text that is not blank"),
        ("inputs.instruction", None, "inputs.instruction is None; expected a valid string"),
        ("cost.tokens_in", -1, "cost.tokens_in is -1; expected greater than or equal to 0"),
        ("cost.tokens_in", "12", "cost.tokens_in is '12'; expected a valid integer"),
        ("cost.tokens_in", True, "cost.tokens_in is True; expected a valid integer"),
        ("cost.estimated_cost_usd", -0.1, "cost.estimated_cost_usd is -0.1; expected greater"),
        ("evaluation.reward", True, "evaluation.reward is True; expected a valid number"),
        ("evaluation.reward", "1", "evaluation.reward is '1'; expected a valid number"),
        ("timing.total_seconds", -1, "timing.total_seconds is -1; expected greater than"),
        ("timing.setup_seconds", "x", "timing.setup_seconds is 'x'; expected a valid number"),
        ("timestamp", "yesterday", "timestamp is 'yesterday'; expected a valid datetime"),
        ("timestamp", [], "timestamp is an array; expected a valid datetime"),
        ("completeness", "done", "completeness is 'done'; expected 'complete' or 'partial'"),
        ("agent.configuration", [], "agent.configuration is an array; expected an object"),
        ("outputs.agent_output.status", "ok", "outputs.agent_output.status is 'ok'; expected"),
        ("inputs.input_files", [{"path": "a"}], "inputs.input_files[0].hash is missing"),
        ("environment.tool_versions", {"a": 1}, "environment.tool_versions.a is 1; expected"),
    ],
)
def test_a_wrong_value_is_named_with_what_was_expected(
    path: str, value: object, message: str
) -> None:
    assert refusal(tree(**{path: value})).startswith(f"r.json: {message}")


CONFIDENCE = {"annotator_count": 2, "inter_rater_agreement": 0.5, "confidence_interval": [0.2, 0.4]}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"confidence_interval": [0.5, 0.4]}, "expected the low end first, then the high"),
        ({"confidence_interval": [0.5]}, "confidence_interval"),
        ({"inter_rater_agreement": 1.1}, "expected less than or equal to 1"),
        ({"annotator_count": -1}, "expected greater than or equal to 0"),
        ({"confidence_method": " "}, "expected text that is not blank"),
    ],
)
def test_confidence_has_its_rules(changes: dict[str, Any], message: str) -> None:
    assert message in refusal(tree(**{"evaluation.confidence": {**CONFIDENCE, **changes}}))


def test_an_interval_of_one_point_is_one() -> None:
    changes = {"evaluation.confidence": {**CONFIDENCE, "confidence_interval": [0.4, 0.4]}}
    record = parse_record(spelled(tree(**changes)), "x").record
    assert record.evaluation.confidence is not None
    assert record.evaluation.confidence.confidence_interval == (0.4, 0.4)


@pytest.mark.parametrize(("reward", "is_refused"), [(0.5, True), (0, False), (None, False)])
def test_an_unreadable_answer_scores_nothing(reward: float | None, is_refused: bool) -> None:
    document = tree(**{"evaluation.reward": reward, "evaluation.validity.output_parseable": False})
    if is_refused:
        assert "reward is 0.5 although validity.output_parseable is false" in refusal(document)
    else:
        assert parse_record(spelled(document), "x").record.evaluation.reward == reward


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"variation": {}}, "adaptation.variation is an object; expected"),
        ({"variation": {"a": " "}}, "expected text that is not blank"),
        ({"variation": {"b": "2"}}, "has the axis 'a'; expected one of variation: 'b'"),
        ({"variation": {"a": "9"}}, "changes 'a' to '1'; expected '9', as variation has it"),
        ({"derivation_lineage": lineage["derivation_lineage"] * 2}, "has the axis 'a' twice"),
        (
            {"derivation_lineage": [{"axis": "a", "value": "1", "parent_value": "1"}]},
            "value and parent_value are both '1'; expected a change",
        ),
    ],
)
def test_a_lineage_fits_its_variation(changes: dict[str, Any], message: str) -> None:
    assert message in refusal(tree(adaptation={**lineage, **changes}))


def test_blanks_around_a_name_are_kept() -> None:
    assert parse_record(spelled(tree(trial_id=" a ")), "x").record.trial_id == " a "


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("2026-03-13T10:00:00+00:00", datetime(2026, 3, 13, 10, tzinfo=UTC)),
        (1773396000, datetime(2026, 3, 13, 10, tzinfo=UTC)),
        ("2026-03-13T10:00:00", datetime(2026, 3, 13, 10)),  # noqa: DTZ001 - old records have such
    ],
)
def test_times_are_read_as_aec_bench_reads_them(given: object, expected: datetime) -> None:
    time = parse_record(spelled(tree(timestamp=given)), "x").record.timestamp
    assert time == expected
    assert time.utcoffset() == expected.utcoffset()


def test_an_offset_that_cannot_be_written_is_refused() -> None:
    odd = datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=1, seconds=3)))
    fields = {**dict(complete()), "timestamp": odd}
    with pytest.raises(ValidationError, match="in whole minutes"):
        TrialRecord(**fields)


ROUND: dict[str, Any] = {}
ROUND["again"] = ROUND


@pytest.mark.parametrize(
    ("configuration", "message"),
    [
        ({"a": [float("nan")]}, "has nan; expected a finite number"),
        ({"a": {"b": float("-inf")}}, "has -inf"),
        ({"a": {1: 2}}, "has the key 1; expected text"),
        ({"a": {3}}, "has a set; expected a JSON value"),
        ({"a": "\ud800"}, "lone surrogate"),
        (ROUND, "nested more than 100 levels deep"),
    ],
)
def test_a_configuration_is_json(configuration: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        AgentReference(adapter="a", model="m", configuration=configuration)


def test_json_may_be_as_deep_as_is_said() -> None:
    deep: object = 1
    for _ in range(100):
        deep = [deep]
    assert len(json.dumps(deep)) == 201
    check_json(deep)
    with pytest.raises(ValueError, match="nested"):
        check_json([deep])
