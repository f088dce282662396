"""The same configuration has the same digest, however it was spelled."""

import hashlib
from typing import Any

import pytest

from proctor.errors import RecordError
from proctor.record.fields import configuration_digest


def test_the_digest_is_of_one_documented_spelling() -> None:
    spelling = '{"a":[1,1.0,null],"é":{"x":true,"y":"z"}}'
    expected = hashlib.sha256(spelling.encode()).hexdigest()
    assert configuration_digest({"é": {"y": "z", "x": True}, "a": [1, 1.0, None]}) == expected


def test_settings_that_differ_have_other_digests() -> None:
    settings: list[dict[str, Any]] = [
        {},
        {"a": 1},
        {"a": 1.0},
        {"a": "1"},
        {"a": None},
        {"a": True},
        {"b": 1},
    ]
    assert len({configuration_digest(setting) for setting in settings}) == len(settings)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "\ud800", {1: 2}, object()])
def test_what_json_cannot_hold_is_refused(value: object) -> None:
    with pytest.raises(RecordError, match=r"^configuration (has|holds) "):
        configuration_digest({"a": value})
