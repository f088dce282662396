"""Sums with CPython 3.12's bits, and harbor's number texts."""

import math
import struct
import sys
from collections.abc import Callable, Iterable
from fractions import Fraction

import pydantic_core
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from proctor.reward import number
from proctor.reward.number import (
    Number,
    bits,
    exact_sum,
    find_primary,
    is_finite,
    json_number,
    portable_sum,
    same_number,
)

nan, inf = math.nan, math.inf
INT64_MAX, INT64_MIN = 2**63 - 1, -(2**63)

type Add = Callable[[Iterable[Number]], Number]

edges = st.sampled_from([INT64_MAX, INT64_MAX + 1, INT64_MIN, INT64_MIN - 1, 2**53 + 1, 10**30])
numbers = st.lists(
    st.one_of(
        st.integers(), st.floats(), st.booleans(), edges, st.sampled_from([1e16, -1e16, 0.1, 1e308])
    ),
    max_size=30,
)

SUMS = [
    ([], 0),
    ([1, 2], 3),
    ([True, True], 2),
    ([-0.0], 0.0),
    ([-0.0, -0.0], 0.0),
    ([0.1, 0.2, 0.3], 0.6),
    ([0.3, 0.2, 0.1], 0.6),
    ([0.1] * 10, 1.0),
    ([1e16, 1.0, -1e16], 1.0),
    ([1.0, 1e16, -1e16], 1.0),
    ([1e16, 1, 1, -1e16], 0.0),
    ([1e16, 1.0, 1.0, -1e16], 2.0),
    ([0.5, 1e16, 1, 1.0, -1e16], 1.5),
    ([2**63, 0.1, 0.2, 0.3, -(2**63)], 0.0),
    ([0.5, 1e16, 1.0, 2**63, -(2**63)], 1e16),
    ([0.1, 0.2, 0.3, 2**70, -(2**70)], 0.0),
    ([INT64_MAX, 0.0, 1e-9], 2.0**63),
    # The correction so far outlives a larger item, and an int beyond 64 bits takes it in.
    ([1e16, 1.0, 1e17, -1.1e17], 1.0),
    ([-(2.0**64), 1000.0, 1000.0, 1000.0, 2**64], 2048.0),
    # At the edges of 64 bits an int does not end compensation, one further it does.
    ([0.0, INT64_MAX, 1000.0, 1000.0, 1000.0, -(2.0**63)], 3000.0),
    ([0.0, INT64_MAX + 1, 1000.0, 1000.0, 1000.0, -(2.0**63)], 0.0),
    ([0.0, INT64_MIN, 500.0, 500.0, 500.0, 2.0**63], 1500.0),
    ([0.0, INT64_MIN - 1, 500.0, 500.0, 500.0, 2.0**63], 0.0),
    ([INT64_MAX], INT64_MAX),
    ([INT64_MAX, 1], 2**63),
    ([INT64_MAX, 1, -1, 0.1, 0.2, 0.3, -(2**63)], 0.0),
    ([INT64_MIN], INT64_MIN),
    ([INT64_MIN, -1], INT64_MIN - 1),
    ([INT64_MIN - 1, INT64_MAX + 2], 0),
    ([1e308, 1e308], inf),
    ([1e308, 1e308, -1e308], inf),
    ([inf, 1.0], inf),
    ([inf, -inf], nan),
    ([1.0, nan], nan),
    ([-inf, 1], -inf),
]


def sum_by_fractions(values: Iterable[Number]) -> Number:
    """The sum of 3.12 by its definition: the error of each float addition is kept, exactly."""
    total: Number = 0
    lost, keeps = 0.0, True
    for item in values:
        before, total = total, total + item
        if isinstance(before, int) and isinstance(total, int):
            keeps = keeps and all(INT64_MIN <= value <= INT64_MAX for value in (item, total))
        elif keeps and isinstance(item, float) and isinstance(before, float):
            lost += error_of(before, item)
        elif keeps and isinstance(before, float) and not INT64_MIN <= item <= INT64_MAX:
            total, keeps = with_lost(before, lost) + item, False
    return with_lost(total, lost) if keeps else total


def error_of(left: float, right: float) -> float:
    """What a float addition rounds away; no number when the sum has left the finite ones."""
    if not math.isfinite(left + right):
        return nan
    return float(Fraction(left) + Fraction(right) - Fraction(left + right))


def with_lost(total: Number, lost: float) -> Number:
    return total + lost if lost and math.isfinite(lost) else total


@pytest.mark.parametrize("add", [exact_sum, portable_sum, sum_by_fractions])
@pytest.mark.parametrize(("values", "total"), SUMS)
def test_a_sum_has_the_value_and_the_type_of_python_3_12(
    add: Add, values: list[Number], total: Number
) -> None:
    assert same_number(add(values), total)


@pytest.mark.parametrize("add", [exact_sum, portable_sum])
def test_a_sum_takes_an_iterator(add: Add) -> None:
    assert add(iter([1, 2.0, 2**64])) == 3.0 + 2**64


REFERENCES: list[Add] = [sum_by_fractions, sum] if number._BUILTIN_IS_EXACT else [sum_by_fractions]
"""Sums of 3.12 to compare with: one on every interpreter, and the builtin where it is one."""


@given(numbers)
@example([0.1, INT64_MAX, 0.2])
@example([0.1, INT64_MAX + 1, 0.2, 0.3])
@example([0.1, INT64_MIN, 0.2])
@example([0.1, INT64_MIN - 1, 0.2, 0.3])
def test_the_portable_sum_is_the_builtin_one(values: list[Number]) -> None:
    def attempt(add: Add) -> Number | str:
        try:
            return add(values)
        except OverflowError as error:
            return str(error)

    ours = attempt(portable_sum)
    for theirs in map(attempt, REFERENCES):
        if isinstance(ours, str) or isinstance(theirs, str):
            assert ours == theirs
        else:
            assert same_number(ours, theirs)


def test_interpreters_without_the_builtin_sum_of_3_12_use_the_portable_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    values = [0.5, 1e16, 1, 1.0, -1e16]
    monkeypatch.setattr(number, "sum", lambda _: 99, raising=False)
    monkeypatch.setattr(number, "_BUILTIN_IS_EXACT", False)
    assert exact_sum(values) == 1.5
    monkeypatch.setattr(number, "_BUILTIN_IS_EXACT", True)
    assert exact_sum(values) == 99


def test_the_builtin_sum_is_trusted_on_cpython_3_12_and_3_13_only() -> None:
    cpython = sys.implementation.name == "cpython"
    assert (cpython and sys.version_info[:2] in {(3, 12), (3, 13)}) == number._BUILTIN_IS_EXACT


def test_a_huge_int_after_a_float_overflows_as_it_does_in_harbor() -> None:
    with pytest.raises(OverflowError, match="int too large to convert to float"):
        portable_sum([0.5, 10**400])


PAIRS = [
    (1, 1, True),
    (1, 2, False),
    (1, 1.0, False),
    (1.0, 1, False),
    (True, 1, False),
    (0.0, -0.0, False),
    (-0.0, -0.0, True),
    (nan, nan, True),
    (nan, -nan, True),
    (nan, 1.0, False),
    (1.0, nan, False),
    (nan, 1, False),
    (0.1 + 0.2, 0.3, False),
    (inf, inf, True),
    (inf, -inf, False),
    (10**30, 10**30, True),
]


@pytest.mark.parametrize(("left", "right", "same"), PAIRS)
def test_same_number_looks_at_type_and_bits(left: Number, right: Number, same: bool) -> None:
    assert same_number(left, right) is same


@given(st.floats())
def test_bits_are_those_of_the_double(value: float) -> None:
    assert struct.pack(">Q", bits(value)) == struct.pack(">d", value)


@pytest.mark.parametrize(("value", "pattern"), [(0.0, 0), (-0.0, 1 << 63), (1.0, 0x3FF << 52)])
def test_bits_are_unsigned(value: float, pattern: int) -> None:
    assert bits(value) == pattern
    assert type(bits(value)) is int


def pydantic_text(value: Number) -> str:
    return pydantic_core.to_json(value, inf_nan_mode="null").decode()


TEXTS = [
    (0, "0"),
    (-7, "-7"),
    (INT64_MAX + 1, "9223372036854775808"),
    (INT64_MIN - 1, "-9223372036854775809"),
    (1.0, "1.0"),
    (-0.0, "-0.0"),
    (nan, "null"),
    (inf, "null"),
    (-inf, "null"),
    (0.0001, "0.0001"),
    (1e-05, "0.00001"),
    (-1e-05, "-0.00001"),
    (1.5e-05, "0.000015"),
    (-1.2345e-05, "-0.000012345"),
    (9.999999999999999e-05, "0.00009999999999999999"),
    (9.999999999999999e-06, "9.999999999999999e-6"),
    (1e-06, "1e-6"),
    (-2.5e-09, "-2.5e-9"),
    (1e-10, "1e-10"),
    (1e-50, "1e-50"),
    (1e-305, "1e-305"),
    (5e-324, "5e-324"),
    (1e15, "1000000000000000.0"),
    (9999999999999998.0, "9999999999999998.0"),
    (1e16, "1e+16"),
    (-1.5e300, "-1.5e+300"),
]


@pytest.mark.parametrize(("value", "text"), TEXTS)
def test_json_numbers_are_written_as_harbor_writes_them(value: Number, text: str) -> None:
    assert json_number(value) == text
    assert pydantic_text(value) == text


small_floats = st.builds(
    lambda mantissa, exponent: float(f"{mantissa}e{exponent}"),
    st.integers(-(10**17), 10**17),
    st.integers(-30, 5),
)


@given(st.one_of(st.integers(), st.floats(), small_floats))
def test_json_numbers_are_pydantics(value: Number) -> None:
    assert json_number(value) == pydantic_text(value)


@pytest.mark.parametrize("digits", [4300, 4301, 5000])
def test_a_whole_number_of_any_length_has_a_text(digits: int) -> None:
    value = -(10 ** (digits - 1))
    assert json_number(value) == "-1" + "0" * (digits - 1)
    assert json_number(value) == pydantic_text(value)


@pytest.mark.parametrize(
    ("rewards", "primary"),
    [
        ({"reward": 0.25, "speed": 3}, 0.25),
        ({"speed": 3, "reward": 0.25}, 0.25),
        ({"speed": 3}, 3),
        ({"speed": 3, "memory": 4}, None),
        ({"Reward": 1, "XX": 2}, None),
        ({}, None),
    ],
)
def test_the_primary_reward_is_the_one_called_reward_or_the_only_one(
    rewards: dict[str, Number], primary: Number | None
) -> None:
    assert find_primary(rewards) == primary


@pytest.mark.parametrize(
    ("value", "expected"),
    [(10**400, True), (True, True), (0.5, True), (nan, False), (inf, False), (-inf, False)],
)
def test_every_int_is_finite_however_large(value: Number, expected: bool) -> None:
    assert is_finite(value) is expected
