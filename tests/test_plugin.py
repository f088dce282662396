"""Classes by import path."""

from fractions import Fraction

import pytest

from proctor.errors import PluginError
from proctor.plugin import load_class


def test_a_class_is_found_by_its_path() -> None:
    assert load_class("fractions:Fraction", "agent") is Fraction


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        ("fractions.Fraction", "names no agent; expected module.path:ClassName"),
        ("nowhere_at_all:Agent", "the agent's module cannot be imported: ModuleNotFoundError"),
        ("fractions:Fractal", "fractions has no class 'Fractal'"),
        ("math:pi", "math has no class 'pi'"),
    ],
)
def test_what_names_no_class_gets_a_sentence(path: str, sentence: str) -> None:
    with pytest.raises(PluginError, match=sentence):
        load_class(path, "agent")
