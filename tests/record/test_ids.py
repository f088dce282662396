"""Ids are names: one rule, and one way to a name that keeps it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.errors import RecordError
from proctor.record.ids import check_id, make_id


@pytest.mark.parametrize("text", ["a", "0", "trial-1", "A.b_c-d", "x" * 200, "a.."])
def test_names_that_keep_the_rule(text: str) -> None:
    check_id(text, "trial_id")
    assert make_id(text) == text


@pytest.mark.parametrize(
    "text",
    ["", ".", "..", "_a", "-a", ".a", "a/b", "a\\b", "../x", "a b", "a\n", "é", "x" * 201, "a\x00"],
)
def test_names_that_break_it_are_refused(text: str) -> None:
    with pytest.raises(RecordError) as caught:
        check_id(text, "trial_id")
    assert str(caught.value).startswith("trial_id is ")
    assert "expected 1 to 200 of the characters" in str(caught.value)
    assert len(str(caught.value)) < 250


@given(st.text())
def test_every_text_becomes_a_name(text: str) -> None:
    made = make_id(text)
    check_id(made, "made")
    assert make_id(text) == made


@given(st.text(), st.text())
def test_different_texts_become_different_names(first: str, second: str) -> None:
    assert (make_id(first) == make_id(second)) == (first == second)


def test_a_made_name_can_be_recognised() -> None:
    assert make_id("a/b c").startswith("a-b-c-")
    assert make_id("a b/c") != make_id("a/b c")
    assert make_id("//").startswith("unknown-")
    assert make_id("\ud800").startswith("unknown-")
