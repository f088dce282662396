"""What a reader noticed, as a sentence."""

import msgspec
import pytest

from proctor.diagnostic import Diagnostic


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        (Diagnostic("garbage", "not JSON", 3), "line 3: not JSON"),
        (Diagnostic("file-shrank", "5 bytes were cut off"), "5 bytes were cut off"),
        (Diagnostic("coerced", "step is 1.0", 1, is_problem=False), "line 1: step is 1.0"),
    ],
)
def test_its_place_comes_first(found: Diagnostic, sentence: str) -> None:
    assert str(found) == sentence


def test_it_is_a_problem_unless_said_otherwise() -> None:
    assert Diagnostic("garbage", "not JSON").is_problem


def test_programs_get_all_four_fields() -> None:
    assert msgspec.to_builtins(Diagnostic("a-code", "a sentence", 7, is_problem=False)) == {
        "code": "a-code",
        "message": "a sentence",
        "line": 7,
        "is_problem": False,
    }
