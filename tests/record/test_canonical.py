"""JSON that has one spelling."""

import hashlib

import pytest

from proctor.errors import ScoreRecordError
from proctor.record.score_record import (
    Json,
    canonical_digest,
    parse_count,
    parse_json,
    parse_list,
    parse_object,
    parse_text,
    render_canonical,
)


def test_keys_are_sorted_and_blanks_left_out_at_every_depth() -> None:
    value: Json = {"b": [1, {"d": None, "c": "x"}], "a": "é"}
    assert render_canonical(value) == '{"a":"é","b":[1,{"c":"x","d":null}]}'.encode()


def test_the_digest_is_that_of_the_spelling() -> None:
    assert canonical_digest({"b": 1, "a": 2}) == hashlib.sha256(b'{"a":2,"b":1}').hexdigest()


@pytest.mark.parametrize("value", [{"a": "e\u0301"}, {"e\u0301": 1}, ["e\u0301"]])
def test_text_that_is_not_nfc_is_refused(value: Json) -> None:
    with pytest.raises(ScoreRecordError) as caught:
        render_canonical(value)
    assert str(caught.value) == ("the document has text that is not NFC; expected NFC throughout")


def test_a_document_is_read_in_any_spelling() -> None:
    assert parse_json(b' {"b": [1, null], "a": "\\u00e9"} ') == {"a": "é", "b": [1, None]}


@pytest.mark.parametrize(
    "data", [b'{"a": 1, "b": 2, "a": 1}', b'[{"x": {"a": 1, "a": 2}}]', b'{"b": 1, "a": 1, "a": 1}']
)
def test_a_key_given_twice_is_refused_at_any_depth(data: bytes) -> None:
    with pytest.raises(ScoreRecordError) as caught:
        parse_json(data)
    assert str(caught.value) == "the key 'a' is given twice in one object"


def test_one_key_in_two_objects_is_no_repetition() -> None:
    assert parse_json(b'[{"a": 1}, {"a": 1}]') == [{"a": 1}, {"a": 1}]


@pytest.mark.parametrize("number", ["1.0", "1e2", "NaN", "Infinity", "-Infinity"])
def test_a_number_that_is_not_whole_is_refused(number: str) -> None:
    with pytest.raises(ScoreRecordError) as caught:
        parse_json(f'{{"a": {number}}}'.encode())
    assert str(caught.value) == (
        f"the document has the number {number}; expected whole numbers only"
    )


@pytest.mark.parametrize("data", [b"", b"{", b"\xff", b"\xef\xbb\xbf{}", b"{} x", b"1" * 4301])
def test_what_is_not_json_in_utf8_is_refused(data: bytes) -> None:
    with pytest.raises(ScoreRecordError, match=r"^the document is not JSON in UTF-8: .+"):
        parse_json(data)


def test_a_document_nested_beyond_reason_is_refused() -> None:
    with pytest.raises(ScoreRecordError, match=r"^the document is nested too deeply to parse$"):
        parse_json(b"[" * 200_000)


def test_an_object_has_exactly_its_fields() -> None:
    value = {"a": 1, "b": 2}
    assert parse_object(value, "it", ("b", "a")) == value


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([], "it is []; expected an object"),
        (None, "it is None; expected an object"),
        ({}, "it has no a"),
        ({"a": 1}, "it has no b"),
        ({"a": 1, "b": 2, "c": 3}, "it has a field 'c'; expected a, b"),
    ],
)
def test_an_object_of_another_shape_is_refused(value: object, message: str) -> None:
    with pytest.raises(ScoreRecordError) as caught:
        parse_object(value, "it", ("a", "b"))
    assert str(caught.value) == message


def test_a_list_has_something_in_it() -> None:
    assert parse_list([None], "it") == [None]


@pytest.mark.parametrize("value", [[], None, {}, "x", {"a": 1}])
def test_what_is_no_list_or_an_empty_one_is_refused(value: object) -> None:
    with pytest.raises(ScoreRecordError) as caught:
        parse_list(value, "it")
    assert str(caught.value) == f"it is {value!r}; expected a list that is not empty"


def test_a_count_may_be_the_least() -> None:
    assert parse_count(0, "it") == 0
    assert parse_count(1, "it", least=1) == 1
    assert parse_count(7, "it", least=1) == 7


@pytest.mark.parametrize(
    ("value", "least"), [(-1, 0), (0, 1), (True, 0), (False, 0), (1.0, 0), ("1", 0), (None, 0)]
)
def test_what_is_no_count_is_refused(value: object, least: int) -> None:
    with pytest.raises(ScoreRecordError) as caught:
        parse_count(value, "it", least=least)
    assert str(caught.value) == f"it is {value!r}; expected a whole number, {least} or more"


def test_a_text_may_be_empty() -> None:
    assert parse_text("", "it") == ""


@pytest.mark.parametrize("value", [None, 1, [], {}])
def test_what_is_no_text_is_refused(value: object) -> None:
    with pytest.raises(ScoreRecordError) as caught:
        parse_text(value, "it")
    assert str(caught.value) == f"it is {value!r}; expected a text"
