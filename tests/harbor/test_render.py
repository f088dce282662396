"""JSON text to the byte: pydantic's own serializer judges, then come the things it does not do."""

import json
import math
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import to_json

from proctor.harbor.render import render_json, render_string, render_time, written_text

text = st.text(st.characters(exclude_categories=["Cs"]))
others = st.none() | st.booleans() | st.integers() | text


def nested(scalars: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.recursive(
        scalars,
        lambda inner: st.lists(inner, max_size=5) | st.dictionaries(text, inner, max_size=5),
        max_leaves=20,
    )


values = nested(others | st.floats())
finite = nested(others | st.floats(allow_nan=False, allow_infinity=False))


@given(finite)
def test_what_is_rendered_reads_back_as_the_same(value: Any) -> None:
    assert repr(json.loads(render_json(value))) == repr(value)
    assert repr(json.loads(render_json(value, 4))) == repr(value)


@given(values, st.sampled_from([None, 1, 2, 4]))
def test_the_text_is_what_pydantic_writes(value: Any, indent: int | None) -> None:
    expected = to_json(value, indent=indent, inf_nan_mode="null").decode()
    assert render_json(value, indent) == expected


@given(values)
def test_a_value_at_a_level_is_what_stands_in_the_whole(value: Any) -> None:
    assert render_json({"a": value}, 4) == f'{{\n    "a": {render_json(value, 4, level=1)}\n}}'


@given(st.datetimes(), st.sampled_from([None, 0, 90, -330]))
def test_a_time_is_what_pydantic_writes(moment: datetime, minutes: int | None) -> None:
    if minutes is not None:
        moment = moment.replace(tzinfo=timezone(timedelta(minutes=minutes)))
    assert f'"{render_time(moment)}"' == to_json(moment).decode()


def test_a_time_has_a_fraction_only_when_it_is_not_on_the_second() -> None:
    assert render_time(datetime(2025, 1, 2, 3, 4, 5)) == "2025-01-02T03:04:05"  # noqa: DTZ001
    assert render_time(datetime(2025, 1, 2, 3, 4, 5, 60, UTC)) == "2025-01-02T03:04:05.000060Z"


@pytest.mark.parametrize(
    ("key", "rendered"),
    [
        (1, "1"),
        (1.0, "1.0"),
        (1e-5, "1e-05"),
        (1e-7, "1e-07"),
        (1e16, "1e+16"),
        (-0.0, "-0.0"),
        (math.nan, "nan"),
        (-math.inf, "-inf"),
        (2**70, str(2**70)),
    ],
)
def test_a_number_as_a_key_is_its_python_text(key: float, rendered: str) -> None:
    assert render_json({key: []}) == f'{{"{rendered}":[]}}'


def test_two_nan_keys_stay_two() -> None:
    assert render_json({float("nan"): 1, float("nan"): 2}) == '{"nan":1,"nan":2}'


@pytest.mark.parametrize(
    ("value", "rendered"),
    [(1e-5, "0.00001"), (1e-6, "1e-6"), (1e16, "1e+16"), (math.nan, "null"), (math.inf, "null")],
)
def test_a_number_as_a_value_is_pydantics_text(value: float, rendered: str) -> None:
    assert render_json([value]) == f"[{rendered}]"


def test_empty_containers_have_no_inside_at_any_indent() -> None:
    assert render_json({"a": {}, "b": []}, 4) == '{\n    "a": {},\n    "b": []\n}'
    assert render_json({}) == "{}"


def test_a_whole_number_of_any_length_is_written() -> None:
    assert render_json(10**5000) == "1" + "0" * 5000


def test_half_a_surrogate_pair_is_three_replacement_characters() -> None:
    assert written_text("a\ud800b\udfff") == "a\ufffd\ufffd\ufffdb\ufffd\ufffd\ufffd"
    assert render_json({"\udc00": "\ud83d"}) == '{"\ufffd\ufffd\ufffd":"\ufffd\ufffd\ufffd"}'
    assert render_string("\U0001f600é") == '"\U0001f600é"'


def test_tuples_are_lists() -> None:
    assert render_json(("a", 1)) == '["a",1]'


def test_what_has_no_json_text_is_refused() -> None:
    with pytest.raises(TypeError, match="object has no JSON text"):
        render_json({"a": [object()]})
    with pytest.raises(TypeError, match="set has no JSON text"):
        render_json({1})
