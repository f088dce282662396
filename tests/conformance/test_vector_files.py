"""No vector is left out: every file is known, and every line of it is a test."""

import importlib
import json
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

from tests.conformance.vectors import VECTORS, load_lines

NAMES = sorted(path.stem for path in VECTORS.glob("*.jsonl"))


@cache
def replayed_lines() -> Counter[str]:
    """Every parameter of every test in a `test_*_vectors.py`, as text."""
    stems = sorted(path.stem for path in Path(__file__).parent.glob("test_*_vectors.py"))
    modules = [importlib.import_module(f"tests.conformance.{stem}") for stem in stems]
    return Counter(text for module in modules for text in find_parameters(module))


def find_parameters(module: ModuleType) -> Iterator[str]:
    tests = [value for name, value in vars(module).items() if name.startswith("test_")]
    marks = [mark for test in tests for mark in getattr(test, "pytestmark", [])]
    for mark in marks:
        if mark.name == "parametrize":
            for parameters in mark.args[1]:
                yield from (as_text(value) for value in getattr(parameters, "values", ()))


def as_text(line: object) -> str:
    return json.dumps(line, sort_keys=True, default=repr)


def find_untested(name: str) -> list[int]:
    """Numbers of the lines of a file that no test replays; a line that stands twice needs two."""
    left = replayed_lines().copy()
    untested = []
    for number, line in enumerate(map(as_text, load_lines(name)), start=1):
        left[line] -= 1
        if left[line] < 0:
            untested.append(number)
    return untested


def test_there_are_vectors() -> None:
    assert NAMES


def test_the_directory_holds_nothing_but_vectors() -> None:
    others = {path.name for path in VECTORS.iterdir()} - {f"{name}.jsonl" for name in NAMES}
    assert others <= {"README.md"}


@pytest.mark.parametrize("name", NAMES)
def test_every_line_of_a_known_file_is_a_test(name: str) -> None:
    assert load_lines(name)
    assert find_untested(name) == [], f"{name}.jsonl: a test_*_vectors.py must replay these lines"
