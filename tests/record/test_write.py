"""The bytes of a record are those of aec-bench's first generation."""

import json
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given

from proctor.errors import RecordError
from proctor.record.document import UnknownKey
from proctor.record.model import TrialRecord
from proctor.record.read import parse_record, render_record
from tests.record import seed
from tests.record.samples import Json, complete, documents, made, read_data, spelled, tree


@pytest.mark.parametrize("name", ["g1-complete.json", "g1-complete-hollow.json", "g1-partial.json"])
def test_a_record_is_written_as_it_was_read(name: str) -> None:
    data = read_data(name)
    assert render_record(parse_record(data, name, salvage=True).record) == data


@given(documents)
def test_every_record_has_the_bytes_of_an_independent_model(document: Json) -> None:
    loaded = parse_record(spelled(document), "drawn", salvage=True)
    data = render_record(loaded.record)
    assert data == seed.render(spelled(document))
    again = parse_record(data, "again", salvage=True)
    assert again.record == loaded.record
    assert render_record(again.record) == data


def test_keys_stand_in_the_order_of_the_format_and_none_is_left_out() -> None:
    document = tree("g1-partial.json")
    shuffled = dict(reversed(document.items()))
    for optional in ("dataset_id", "cost", "adaptation"):
        del shuffled[optional]
    data = render_record(parse_record(spelled(shuffled), "shuffled").record)
    assert json.loads(data) == document
    assert list(json.loads(data)) == list(document)


def test_a_whole_reward_is_written_as_a_float() -> None:
    data = spelled(tree(**{"evaluation.reward": 1}))
    assert b'"reward": 1,' in data
    assert b'"reward": 1.0,' in render_record(parse_record(data, "x").record)


@pytest.mark.parametrize("reward", [None, -0.5, 17.25])
def test_rewards_that_aec_bench_cannot_hold_are_ours(reward: float | None) -> None:
    record = made(**{"evaluation.reward": reward})
    assert record.evaluation.reward == reward
    assert json.loads(render_record(record))["evaluation"]["reward"] == reward


@pytest.mark.parametrize(
    ("time", "text"),
    [
        (datetime(2026, 3, 13, 10, tzinfo=UTC), "2026-03-13T10:00:00Z"),
        (datetime(2026, 3, 13, 10, 0, 0, 5, tzinfo=UTC), "2026-03-13T10:00:00.000005Z"),
        (
            datetime(2026, 3, 13, 10, tzinfo=timezone(timedelta(hours=10))),
            "2026-03-13T10:00:00+10:00",
        ),
        (datetime(2026, 3, 13, 10), "2026-03-13T10:00:00"),  # noqa: DTZ001 - old records have such
    ],
)
def test_times_are_written_as_given(time: datetime, text: str) -> None:
    record = complete().model_copy(update={"timestamp": time})
    assert json.loads(render_record(record))["timestamp"] == text


def test_text_stands_raw_and_no_newline_ends_the_file() -> None:
    data = render_record(made("g1-partial.json"))
    assert "ΔU ≤ 5 %".encode() in data
    assert not data.endswith(b"\n")


def test_added_keys_go_back_where_they_stood() -> None:
    data = read_data("g1x.json")
    loaded = parse_record(data, "g1x.json")
    assert render_record(loaded.record, loaded.kept) == data
    plain = json.loads(render_record(loaded.record))
    assert list(plain) == list(tree())
    assert plain["task"].keys() == {"task_id", "task_revision"}


def test_a_key_without_a_place_is_not_dropped_in_silence() -> None:
    record = made(cost=None)
    with pytest.raises(RecordError, match=r"cost\.model_calls has no place in the record any more"):
        render_record(record, [UnknownKey(("cost", "model_calls"), 0, 3)])


def test_a_record_that_cannot_be_spelled_is_refused() -> None:
    record = TrialRecord.model_construct(**{**dict(complete()), "trial_id": "\ud800"})
    with pytest.raises(RecordError, match="cannot be written"):
        render_record(record)
