"""Tokens are counted one way, whoever counted them first."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.errors import RecordError
from proctor.record.cost import Usage, sum_usage

counts = st.integers(0, 10**9)


def test_anthropics_input_leaves_the_cache_out() -> None:
    usage = Usage.from_anthropic(
        input_tokens=1000,
        cache_creation_input_tokens=5000,
        cache_read_input_tokens=10_000,
        output_tokens=7,
    )
    assert usage == Usage(input=16_000, output=7, cache_read=10_000, cache_write=5000)


def test_harbors_input_holds_it() -> None:
    expected = Usage(input=1200, output=300, cache_read=1000)
    harbor = Usage.from_harbor(n_input_tokens=1200, n_cache_tokens=1000, n_output_tokens=300)
    assert harbor == expected


def test_what_is_not_known_stays_so() -> None:
    usage = Usage.from_anthropic(
        input_tokens=None,
        cache_creation_input_tokens=None,
        cache_read_input_tokens=4,
        output_tokens=None,
    )
    assert usage == Usage(cache_read=4)
    assert Usage.from_harbor(n_input_tokens=5, n_cache_tokens=None, n_output_tokens=None) == Usage(
        input=5
    )


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ({"input": 1000, "cache_read": 1001}, "1,001 cached tokens"),
        ({"input": 1000, "cache_read": 600, "cache_write": 600}, "1,200 cached tokens"),
        ({"input": -1}, "input is -1 tokens; expected a whole number, 0 or more"),
        ({"output": True}, "output is True tokens"),
        ({"cache_write": 1.5}, "cache_write is 1.5 tokens"),
    ],
)
def test_impossible_counts_are_refused_not_clamped(numbers: dict[str, int], message: str) -> None:
    with pytest.raises(RecordError, match=message):
        Usage(**numbers)


def test_impossible_counts_are_seen_before_they_are_added_up() -> None:
    with pytest.raises(RecordError, match="cache_read_input_tokens is -5 tokens"):
        Usage.from_anthropic(
            input_tokens=10,
            cache_creation_input_tokens=0,
            cache_read_input_tokens=-5,
            output_tokens=0,
        )


@given(counts, counts, counts, counts)
def test_anthropics_counts_always_keep_the_algebra(a: int, b: int, c: int, d: int) -> None:
    usage = Usage.from_anthropic(
        input_tokens=a,
        cache_creation_input_tokens=b,
        cache_read_input_tokens=c,
        output_tokens=d,
    )
    assert usage.input == a + b + c


def test_a_sum_knows_what_all_its_parts_know() -> None:
    known = Usage(input=10, output=1, cache_read=4)
    assert sum_usage([known, known]) == Usage(input=20, output=2, cache_read=8)
    assert sum_usage([known, Usage(input=1)]) == Usage(input=11)
    assert sum_usage([]) == Usage()
