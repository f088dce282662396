"""Depth of reward.json: harbor's interpreter gives up at one more than 1493, so do we."""

import json
import json.scanner
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic_core import ValidationError

from proctor.errors import VerifierOutputParseError
from proctor.reward import read
from proctor.reward.read import parse_reward_json
from tests.examples import examples


def error_of(text: str) -> Exception:
    """What reading the text raises on a fresh stack: pytest's own depth is not our subject."""
    with ThreadPoolExecutor(1) as pool:
        error = pool.submit(parse_reward_json, text.encode(), "p").exception()
    assert isinstance(error, Exception)
    return error


def nested(depth: int, opening: str = "[", closing: str = "]") -> str:
    return opening * depth + "1" + closing * depth


@pytest.mark.parametrize(
    ("opening", "closing", "kind"), [("[", "]", "array"), ('{"a":', "}", "object")]
)
def test_1493_levels_are_parsed_and_one_more_is_not(opening: str, closing: str, kind: str) -> None:
    assert isinstance(error_of(nested(1493, opening, closing)), ValidationError)
    error = error_of(nested(1494, opening, closing))
    assert type(error) is RecursionError
    assert str(error) == (
        f"maximum recursion depth exceeded while decoding a JSON {kind} from a unicode string"
    )


def test_the_level_that_is_too_deep_names_its_own_kind() -> None:
    assert "a JSON object from" in str(error_of(nested(1493).replace("1", '{"a": 1}')))
    assert "a JSON array from" in str(error_of(nested(1493, '{"a":', "}").replace("1", "[1]")))


FLAT = [
    "[" + "[]," * 2000 + "1]",
    "[" + "{}," * 2000 + "1]",
    json.dumps(["[{" * 2000]),
    json.dumps(['"[' * 2000]),
    json.dumps(["\\" + "[" * 2000]),
    "[" + '"[",' * 2000 + '"\\\\"]',
    nested(1490)[:-1490] + ',"' + "[" * 10 + '"' + "]" * 1490,
]


@pytest.mark.parametrize("text", FLAT, ids=range(len(FLAT)))
def test_many_brackets_are_not_depth(text: str) -> None:
    assert isinstance(error_of(text), ValidationError)


def test_brackets_in_strings_of_a_good_file_do_not_count() -> None:
    key = "[" * 5000
    assert parse_reward_json(json.dumps({key: 1, '\\"{': 2}).encode(), "p") == {key: 1, '\\"{': 2}


def test_closing_brackets_give_depth_back() -> None:
    levels = nested(1493)
    assert isinstance(error_of(f"[{levels[1:-1]}]"), ValidationError)
    assert isinstance(error_of(f"[{nested(1492)},{nested(1492)}]"), ValidationError)
    objects = nested(1492, '{"a":', "}")
    assert isinstance(error_of(f"[{objects},{objects}]"), ValidationError)
    assert type(error_of(f"[{nested(1492)},{nested(1493)}]")) is RecursionError


BROKEN = [
    ("]" + "[" * 2000, "Expecting value: line 1 column 1 (char 0)"),
    ("{} " + "[" * 2000, "Extra data: line 1 column 4 (char 3)"),
    ('"a" ' + "[" * 2000, "Extra data: line 1 column 5 (char 4)"),
    ("[1 " * 1494, "Expecting ',' delimiter: line 1 column 4 (char 3)"),
    ("[" * 1493 + "1[", "Expecting ',' delimiter: line 1 column 1495 (char 1494)"),
    ("[" * 1493 + '"' + "[" * 9, "Unterminated string starting at: line 1 column 1494 (char 1493)"),
    ('{"a"' + "[" * 2000, "Expecting ':' delimiter: line 1 column 5 (char 4)"),
    ("[" * 1493 + "x[", "Expecting value: line 1 column 1494 (char 1493)"),
]


@pytest.mark.parametrize(("text", "detail"), BROKEN, ids=range(len(BROKEN)))
def test_a_mistake_before_the_depth_is_what_is_reported(text: str, detail: str) -> None:
    error = error_of(text)
    assert isinstance(error, VerifierOutputParseError)
    assert str(error.__cause__) == detail


@pytest.mark.parametrize("text", ["[" * 1494, "[" * 1494 + "x", '[1,"[",' * 1494, "[ \n" * 3000])
def test_depth_before_a_mistake_is_what_is_reported(text: str) -> None:
    assert type(error_of(text)) is RecursionError


class ShallowDecoder(json.JSONDecoder):
    """The standard library's decoder in Python, giving up below three levels."""

    parse_array: Callable[..., Any]
    parse_object: Callable[..., Any]

    def __init__(self) -> None:
        super().__init__()
        self.depth = 0
        self.parse_array = self.limited(self.parse_array, "array")
        self.parse_object = self.limited(self.parse_object, "object")
        self.scan_once = json.scanner.py_make_scanner(self)  # type: ignore[attr-defined]

    def limited(self, parse: Callable[..., Any], kind: str) -> Callable[..., Any]:
        def descend(*arguments: Any) -> Any:
            self.depth += 1
            if self.depth > 3:
                raise RecursionError(kind)
            found = parse(*arguments)
            self.depth -= 1
            return found

        return descend


def outcome_of(decode: Callable[[str], object], text: str) -> object:
    try:
        return decode(text)
    except RecursionError as error:
        return "array" if "array" in str(error) else "object"
    except ValueError as error:
        return str(error)


json_like = st.lists(st.sampled_from([*'[]{}",:1 \\x', '"a":', "{}", "[]", "1,", "[[[", "]]]"]))


@settings(max_examples=examples(500))
@given(json_like.map("".join))
def test_depth_and_mistakes_are_met_in_the_order_of_the_text(text: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(read, "_MAX_NESTING", 3)
        found = outcome_of(read._parse_json, text)
    assert found == outcome_of(lambda text: ShallowDecoder().decode(text), text)


@pytest.mark.parametrize("text", ["[[[],[[1]]]]", '{"a":{"a":{},"b":{"a":{"a":1}}}}', "[[[[1]]]]"])
def test_one_level_too_many_is_seen_after_others_were_closed(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read, "_MAX_NESTING", 3)
    with pytest.raises(RecursionError):
        read._parse_json(text)
    monkeypatch.setattr(read, "_MAX_NESTING", 4)
    read._parse_json(text)
