"""Reward files: which one decides, what harbor accepts, and what it says of the rest."""

import json
import math

import pytest
from pydantic_core import ValidationError

from proctor.errors import VerifierOutputParseError
from proctor.reward import read
from proctor.reward.number import Rewards, same_number
from proctor.reward.profile import HARBOR_0_13, HARBOR_0_25, Profile
from proctor.reward.read import (
    parse_reward_json,
    parse_reward_text,
    validate_rewards,
)

both_profiles = pytest.mark.parametrize("profile", [HARBOR_0_13, HARBOR_0_25])


def same_rewards(left: Rewards | None, right: Rewards | None) -> bool:
    if left is None or right is None:
        return left is right
    return list(left) == list(right) and all(same_number(left[key], right[key]) for key in left)


TEXTS: list[tuple[bytes, float]] = [
    (b"1", 1.0),
    (b"0.5\n", 0.5),
    (b" \t\r\n\v\f1 ", 1.0),
    (b"-0", -0.0),
    (b"1_0", 10.0),
    (b"1e400", math.inf),
    (b"1e-400", 0.0),
    (b"9" * 5000, math.inf),
    (b"0." + b"0" * 20000 + b"1", 0.0),
    (b" " * 20000 + b"0.25", 0.25),
    (b"nan", math.nan),
    (b"-Infinity", -math.inf),
    ("\u0663.\u0665".encode(), 3.5),
    ("\u20031\xa0".encode(), 1.0),
]


@pytest.mark.parametrize(("data", "value"), TEXTS, ids=lambda value: repr(value)[:20])
def test_a_text_file_is_whatever_float_takes(data: bytes, value: float) -> None:
    assert same_rewards(parse_reward_text(data, "reward.txt"), {"reward": value})


BAD_TEXTS: list[tuple[bytes, type[Exception], str]] = [
    (b"x", ValueError, "could not convert string to float: 'x'"),
    (b" \n", ValueError, "could not convert string to float: ' \\n'"),
    (b"1\r\n2\r3", ValueError, "could not convert string to float: '1\\n2\\n3'"),
    (b"\xef\xbb\xbf1", ValueError, "could not convert string to float: '\\ufeff1'"),
    (b"0x10", ValueError, "could not convert string to float: '0x10'"),
    (
        b"\xff",
        UnicodeDecodeError,
        "'utf-8' codec can't decode byte 0xff in position 0: invalid start byte",
    ),
]


@both_profiles
@pytest.mark.parametrize(("data", "cause", "detail"), BAD_TEXTS)
def test_a_text_file_that_is_no_number_is_a_parse_error(
    data: bytes, cause: type[Exception], detail: str, profile: Profile
) -> None:
    with pytest.raises(VerifierOutputParseError) as failure:
        parse_reward_text(data, "/v/reward.txt", profile)
    assert str(failure.value) == "Failed to parse rewards from text file /v/reward.txt"
    assert type(failure.value.__cause__) is cause
    assert str(failure.value.__cause__) == detail


JSONS: list[tuple[str, Rewards | None]] = [
    ('{"reward": 1}', {"reward": 1}),
    ('{"reward": 1.0}', {"reward": 1.0}),
    ('{"reward": -0}', {"reward": 0}),
    ('{"reward": -0.0}', {"reward": -0.0}),
    ('{"b": 1, "a": 0.5}', {"b": 1, "a": 0.5}),
    ('{"a": 1, "b": 2, "a": 3}', {"a": 3, "b": 2}),
    ('{"a": null, "a": 1}', {"a": 1}),
    ('{"reward": 123456789012345678901234567890}', {"reward": 123456789012345678901234567890}),
    ('{"reward": true, "x": false}', {"reward": 1.0, "x": 0.0}),
    ('{"x": true, "y": 1, "z": 0.5}', {"x": 1.0, "y": 1, "z": 0.5}),
    ('\r\n{"reward":\r1}\n', {"reward": 1}),
    ("{}", {}),
]

ODD_JSONS: list[tuple[str, Rewards | None]] = [
    ("null", None),
    ('{"reward": NaN}', {"reward": math.nan}),
    ('{"reward": -Infinity}', {"reward": -math.inf}),
    ('{"reward": 1e999}', {"reward": math.inf}),
    ('{"reward": " 1 "}', {"reward": 1.0}),
    ('{"reward": "nan"}', {"reward": math.nan}),
]


@both_profiles
@pytest.mark.parametrize(("text", "rewards"), JSONS)
def test_a_json_map_of_finite_numbers_is_taken_by_every_profile(
    text: str, rewards: Rewards | None, profile: Profile
) -> None:
    assert same_rewards(parse_reward_json(text.encode(), "reward.json", profile), rewards)


@pytest.mark.parametrize(("text", "rewards"), ODD_JSONS)
def test_odd_json_is_coerced_or_kept_by_0_13(text: str, rewards: Rewards | None) -> None:
    assert same_rewards(parse_reward_json(text.encode(), "reward.json"), rewards)


def test_whole_numbers_are_exact_up_to_4300_digits() -> None:
    assert parse_reward_json(b'{"r": 1%s}' % (b"0" * 4299), "p") == {"r": 10**4299}


BAD_JSONS: list[tuple[bytes, type[Exception], str]] = [
    (b"x", json.JSONDecodeError, "Expecting value: line 1 column 1 (char 0)"),
    (b"{}\r\n\rx", json.JSONDecodeError, "Extra data: line 3 column 1 (char 4)"),
    (
        b"\xef\xbb\xbf{}",
        json.JSONDecodeError,
        "Unexpected UTF-8 BOM (decode using utf-8-sig): line 1 column 1 (char 0)",
    ),
    (
        b'{"\xe9":1}',
        UnicodeDecodeError,
        "'utf-8' codec can't decode byte 0xe9 in position 2: invalid continuation byte",
    ),
    (
        b'{"r": %s}' % (b"1" * 5000),
        ValueError,
        "Exceeds the limit (4300 digits) for integer string conversion: value has 5000 digits; "
        "use sys.set_int_max_str_digits() to increase the limit",
    ),
]


@both_profiles
@pytest.mark.parametrize(("data", "cause", "detail"), BAD_JSONS, ids=range(len(BAD_JSONS)))
def test_a_json_file_that_is_no_json_is_a_parse_error(
    data: bytes, cause: type[Exception], detail: str, profile: Profile
) -> None:
    with pytest.raises(VerifierOutputParseError) as failure:
        parse_reward_json(data, "/v/reward.json", profile)
    assert str(failure.value) == "Failed to parse rewards from JSON file /v/reward.json"
    assert type(failure.value.__cause__) is cause
    assert str(failure.value.__cause__) == detail


def test_plain_numbers_are_taken_without_asking_pydantic(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read, "validate_rewards", lambda _: None)
    assert parse_reward_json(b'{"a": 1, "b": 0.5}', "p") == {"a": 1, "b": 0.5}
    assert parse_reward_json(b'{"a": 1, "b": true}', "p") is None


def problems_of(document: object) -> list[tuple[tuple[int | str, ...], str]]:
    with pytest.raises(ValidationError) as failure:
        validate_rewards(document)
    assert failure.value.title == "VerifierResult"
    return [(detail["loc"], detail["type"]) for detail in failure.value.errors()]


@pytest.mark.parametrize("document", [0, 1.5, "1", True, [], [1]])
def test_a_document_that_is_no_map_is_pydantics_error(document: object) -> None:
    assert problems_of(document) == [(("rewards",), "dict_type")]


def test_a_value_that_is_no_number_is_pydantics_error_once_as_float_and_once_as_int() -> None:
    assert problems_of({"a": "x", "b": None, "c": []}) == [
        (("rewards", "a", "float"), "float_parsing"),
        (("rewards", "a", "int"), "int_parsing"),
        (("rewards", "b", "float"), "float_type"),
        (("rewards", "b", "int"), "int_type"),
        (("rewards", "c", "float"), "float_type"),
        (("rewards", "c", "int"), "int_type"),
    ]


def test_a_document_that_was_parsed_before_is_coerced_the_same_way() -> None:
    assert same_rewards(
        validate_rewards({"a": True, "b": 1, "c": "0.5"}), {"a": 1.0, "b": 1, "c": 0.5}
    )
    assert validate_rewards(None) is None
    assert validate_rewards({}) == {}


REFUSED = [
    ('{"a": 1, "reward": "0.5"}', "Non-numeric reward '0.5' in JSON file /v/reward.json"),
    ('{"reward": null}', "Non-numeric reward None in JSON file /v/reward.json"),
    ('{"reward": [1]}', "Non-numeric reward [1] in JSON file /v/reward.json"),
    ("null", "Non-numeric reward None in JSON file /v/reward.json"),
    ('"1"', "Non-numeric reward '1' in JSON file /v/reward.json"),
    ("[]", "Non-numeric reward [] in JSON file /v/reward.json"),
    ('{"reward": NaN}', "Non-finite reward nan in JSON file /v/reward.json"),
    ('{"a": 1, "b": -Infinity}', "Non-finite reward -inf in JSON file /v/reward.json"),
    ('{"reward": 1e309}', "Non-finite reward inf in JSON file /v/reward.json"),
    ("NaN", "Non-finite reward nan in JSON file /v/reward.json"),
]


@pytest.mark.parametrize(("text", "message"), REFUSED)
def test_odd_json_is_refused_by_0_25(text: str, message: str) -> None:
    with pytest.raises(VerifierOutputParseError) as failure:
        parse_reward_json(text.encode(), "/v/reward.json", HARBOR_0_25)
    assert str(failure.value) == message
    assert failure.value.__cause__ is None


@pytest.mark.parametrize("text", ["1", "0.5", "true"])
@both_profiles
def test_a_bare_number_is_pydantics_error_in_every_profile(text: str, profile: Profile) -> None:
    with pytest.raises(ValidationError):
        parse_reward_json(text.encode(), "reward.json", profile)


@pytest.mark.parametrize(("data", "value"), [(b"nan", "nan"), (b"1e400", "inf"), (b"-inf", "-inf")])
def test_a_text_that_is_not_finite_is_refused_by_0_25(data: bytes, value: str) -> None:
    with pytest.raises(VerifierOutputParseError) as failure:
        parse_reward_text(data, "/v/reward.txt", HARBOR_0_25)
    assert str(failure.value) == f"Non-finite reward {value} in text file /v/reward.txt"


def test_a_finite_text_is_taken_by_0_25() -> None:
    assert parse_reward_text(b"1e308", "reward.txt", HARBOR_0_25) == {"reward": 1e308}


def test_a_huge_whole_number_is_finite_to_0_25() -> None:
    assert parse_reward_json(b'{"r": 1%s}' % (b"0" * 400), "p", HARBOR_0_25) == {"r": 10**400}
