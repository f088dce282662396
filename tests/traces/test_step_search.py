"""Steps found without decoding everything are exactly those of a full reading."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.traces.trajectory import load_trajectory, read_steps, survey_piece
from tests.examples import examples

ODD = [
    '{"\\u0073tep": 3, "role": "user"}',
    '{"step" : 3.0, "role": "user"}',
    '{"step": "3", "role": "user"}',
    '{"step": " +3. ", "role": "user"}',
    '{"step": 30e-1, "role": "user"}',
    '{"step": true, "role": "user"}',
    '{"step": 1, "role": "user", "step": 3}',
    '{"step": 3, "role": "user", "step": 1}',
    '{"role": "user", "content": "\\"step\\": 3", "step": 2}',
    '{"step": 1, "x": [',
    '{"step": 3, "role": "user"}',
    "]}",
    '{"step": 1, "role": "a"}{"step": 3, "role": "b"}',
    ' {"step": 3, "role": "indented"}',
    '\ufeff{"step": 3, "role": "marked"}',
    '{"step": 3, "role": "user", "unknown": 1}',
    '{"step": 3}',
    '{"step": -3, "role": "user"}',
    '{"step": 3, "role": "user", "content": "\ud800"}'.encode("utf-8", "replace").decode(),
    '{"step": 3, "role": "user", "content": NaN}',
    '{"step": 100000000000000000000000000000000, "role": "user"}',
    "",
    "5",
    "[]",
    "null",
    '{"version": 1, "format": "aec-bench-trajectory"}',
]


def plain(step: int) -> str:
    return json.dumps({"role": "assistant", "step": step, "content": f"at {step}"})


def found_quickly(path: Path, first: int, last: int, **how: int) -> list[tuple[object, int]]:
    chunks = read_steps(str(path), first, last, **how)
    return [pair for chunk in chunks for pair in zip(chunk.entries, chunk.lines, strict=True)]


def found_fully(path: Path, first: int, last: int) -> list[tuple[object, int]]:
    whole = load_trajectory(str(path), salvage=True)
    both = zip(whole.entries, whole.lines, strict=True)
    return [pair for pair in both if first <= pair[0].step <= last]


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("steps") / "trajectory.jsonl"


lines = st.lists(st.sampled_from(ODD) | st.integers(0, 5).map(plain), max_size=12)


@settings(max_examples=examples(150), deadline=None)
@given(lines=lines, ended=st.booleans(), first=st.integers(0, 4), more=st.integers(0, 2))
def test_any_lines_give_what_a_full_reading_gives(
    scratch: Path, lines: list[str], ended: bool, first: int, more: int
) -> None:
    scratch.write_text("\n".join(lines) + ("\n" if ended else ""), encoding="utf-8")
    assert found_quickly(scratch, first, first + more) == found_fully(scratch, first, first + more)


def test_steps_that_go_back_are_found_in_all_their_places(tmp_path: Path) -> None:
    path = tmp_path / "trajectory.jsonl"
    steps = [step for _ in range(3) for step in range(2000)]
    path.write_text("".join(plain(step) + "\n" for step in steps))
    found = found_quickly(path, 7, 7)
    assert [line for _, line in found] == [8, 2008, 4008]
    assert found == found_fully(path, 7, 7)


def test_an_object_that_hides_within_another_is_not_taken_for_known() -> None:
    hidden = b'{"step": 1, "x": [\n{"step": 3, "role": "user"}\n]}\n'
    assert survey_piece(hidden).is_odd
    assert not survey_piece(b'{"step": 1}\n{"step": 2}\n').is_odd


def test_a_line_that_is_too_long_is_said_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "trajectory.jsonl"
    path.write_text(f"{plain(1)}\n{plain(2)}{' ' * 600_000}\n{plain(3)}\n")
    chunks = list(read_steps(str(path), 3, 3, line_limit=200_000))
    assert [line for chunk in chunks for line in chunk.lines] == [3]
    (noticed,) = [each for chunk in chunks for each in chunk.diagnostics]
    assert (noticed.code, noticed.line) == ("line-too-long", 2)
