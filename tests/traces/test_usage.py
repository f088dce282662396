"""Time from timestamps that may say anything; tokens from metadata that may, too."""

from typing import Any

import pytest

from proctor.traces.entry import Entry
from proctor.traces.summary import summarise
from proctor.traces.usage import TimeSummary, TokenSummary
from tests.traces.samples import called, gave, said


def at(second: float) -> str:
    return f"2026-01-01T00:00:{second:06.3f}Z"


def times_of(*stamps: str) -> TimeSummary:
    return summarise([said(step, timestamp=text) for step, text in enumerate(stamps, 1)]).times


def test_idle_is_what_no_duration_covers() -> None:
    trace = [
        said(1, timestamp=at(0)),
        called(1, timestamp=at(2)),
        gave(1, timestamp=at(12), duration_ms=7000),
        said(2, timestamp=at(20), duration_ms=9000),
    ]
    times = summarise(trace).times
    assert (times.wall_seconds, times.idle_seconds) == (20.0, 5.0)
    assert (times.tool_seconds, times.model_seconds) == (7.0, 9.0)
    assert (times.longest_gap_seconds, times.longest_gap_step) == (3.0, 1)


def test_one_timestamp_tells_no_time() -> None:
    times = times_of(at(1))
    assert (times.wall_seconds, times.idle_seconds, times.stamped) == (None, None, 1)


def test_clocks_that_go_back_or_jump_add_no_time() -> None:
    times = times_of(at(0), at(10), at(5), "9999-01-01T00:00:00Z", at(12), "1970-01-01", at(13))
    assert times.wall_seconds == 10.0
    assert (times.backward, times.jumps) == (1, 4)


@pytest.mark.parametrize("text", ["NaN", "99999-01-01T00:00:00Z", "", "yesterday", "-1", "\x00"])
def test_what_is_no_time_is_counted_and_left_out(text: str) -> None:
    times = times_of(at(0), text, at(3))
    assert (times.wall_seconds, times.unreadable, times.stamped) == (3.0, 1, 2)


def test_durations_that_cannot_be_are_no_time() -> None:
    trace = [gave(1, timestamp=at(0), duration_ms=-5), gave(2, timestamp=at(1), duration_ms=2**70)]
    assert summarise(trace).times.tool_seconds == 0.0


def test_the_time_to_the_first_write_is_from_the_first_timestamp() -> None:
    trace = [
        said(1, timestamp=at(1)),
        called(1, "cat a", timestamp=at(2)),
        called(2, "echo x > a", timestamp=at(4.5)),
    ]
    written = summarise(trace).written
    assert (written.first_step, written.seconds_to_first) == (2, 3.5)


def tokens_of(*metadata: dict[str, Any]) -> TokenSummary:
    return summarise([said(step, metadata=each) for step, each in enumerate(metadata, 1)]).tokens


def test_atif_metrics_count_the_cache_within_the_input() -> None:
    metrics = {"prompt_tokens": 100, "completion_tokens": 7, "cached_tokens": 60}
    found = tokens_of({"atif": {"metrics": metrics}}, {"atif": {"metrics": metrics}})
    assert (found.input, found.output, found.cache_read, found.with_usage) == (200, 14, 120, 2)
    assert found.source == "trace"


def test_anthropic_counts_the_cache_beside_the_input_and_it_is_added() -> None:
    usage = {
        "input_tokens": 10,
        "cache_read_input_tokens": 5,
        "cache_creation_input_tokens": 3,
        "output_tokens": 2,
    }
    found = tokens_of({"conversation": {"usage": usage}})
    assert (found.input, found.output) == (18, 2)
    assert (found.cache_read, found.cache_write) == (5, 3)


def test_one_answer_over_several_rows_is_counted_once() -> None:
    rows = [{"id": "m1", "usage": {"input_tokens": 5, "output_tokens": n}} for n in (1, 9)]
    found = tokens_of(*({"conversation": row} for row in rows))
    assert (found.input, found.output, found.with_usage) == (5, 9, 1)


def test_the_sums_of_a_document_stand_in_where_no_step_says_any() -> None:
    final = {"total_prompt_tokens": 9, "total_completion_tokens": 4}
    found = tokens_of({"atif": {"document": {"final_metrics": final}}})
    assert (found.input, found.output, found.with_usage) == (9, 4, 0)


@pytest.mark.parametrize("count", [-1, 1.5, True, "7", None, 1 << 60])
def test_what_is_no_count_is_no_tokens(count: object) -> None:
    assert tokens_of({"tokens": {"call_input": count}}) == TokenSummary()


def test_an_advisors_call_and_its_result_are_one_question() -> None:
    told = {"advisor": True, "advisor_tokens": {"input": 30, "output": 5}}
    trace: list[Entry] = [called(1, metadata={"advisor": True}), gave(1, metadata=told)]
    found = summarise(trace)
    assert (found.advisor.calls, found.advisor.input, found.advisor.output) == (1, 30, 5)
    assert found.tokens == TokenSummary()
