"""The differential fuzz: one random case to both programs, and a vector line when they differ.

A subject says how to make a case and how each program answers it; cases are vector inputs and
answers are vector facts, so a failure is printed as a line for the vector file. A case depends
only on the seed, the subject and its index.

    PROCTOR_FUZZ_CASES    how many cases each subject gets, instead of the test's own number
    PROCTOR_FUZZ_SEED     another seed
"""

import copy
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

from tests.conformance.facts import Fact, difference
from tests.conformance.ours import Case

SEED = 20_240_229


@dataclass(frozen=True, slots=True)
class Subject:
    """Something both programs compute."""

    name: str
    """The vector file that a failing case belongs in."""
    generate: Callable[[Random], Case]
    ours: Callable[[Case], Fact]
    theirs: Callable[[Case], Fact]


def check_parity(subject: Subject, cases: int) -> None:
    """Run that many cases; the first on which the programs differ is shrunk and shown."""
    cases = int(os.environ.get("PROCTOR_FUZZ_CASES") or cases)
    seed = os.environ.get("PROCTOR_FUZZ_SEED") or SEED
    for index in range(cases):
        case = subject.generate(Random(f"{seed}/{subject.name}/{index}"))
        if find_difference(subject, case):
            raise AssertionError(render_failure(subject, shrink(subject, case), f"{seed}/{index}"))


def find_difference(subject: Subject, case: Case) -> str | None:
    return difference(subject.theirs(case), subject.ours(case))


def shrink(subject: Subject, case: Case) -> Case:
    """The case without everything that can go while the programs still differ."""
    for smaller in smaller_cases(case):
        if find_difference(subject, smaller):
            return shrink(subject, smaller)
    return case


def smaller_cases(case: Case) -> Iterator[Case]:
    """The case without one stretch of one of its lists, longer stretches first."""
    for path, length in sorted(_find_lists(case, ()), key=lambda found: len(found[0])):
        width = length
        while width:
            for start in range(0, length, width):
                smaller = copy.deepcopy(case)
                del _follow(smaller, path)[start : start + width]
                yield smaller
            width //= 2


def _find_lists(
    value: Any, path: tuple[str | int, ...]
) -> Iterator[tuple[tuple[str | int, ...], int]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _find_lists(item, (*path, key))
    elif isinstance(value, list):
        # A [key, value] of an encoded dict is no list to shorten, but its value may hold one.
        if not (value and isinstance(value[0], str)):
            yield path, len(value)
        for index, item in enumerate(value):
            yield from _find_lists(item, (*path, index))


def _follow(value: Any, path: tuple[str | int, ...]) -> Any:
    for step in path:
        value = value[step]
    return value


def render_failure(subject: Subject, case: Case, origin: str) -> str:
    """The difference for a person, then harbor's answer as a line for the vectors."""
    line = {
        "id": f"{subject.name}-fuzz-{origin}",
        "category": "fuzz",
        "note": "found by the differential fuzz",
        "input": case,
        "expect": subject.theirs(case),
    }
    return "\n".join(
        [
            f"{subject.name}: not what harbor gives",
            find_difference(subject, case) or "(gone on the second run)",
            f"a line for tests/conformance/vectors/{subject.name}.jsonl:",
            json.dumps(line),
        ]
    )
