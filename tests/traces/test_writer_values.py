"""What becomes of values that JSON or the format has no place for."""

import datetime
import enum
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.trace_reading import read_as_peer
from proctor.traces.entry import Entry
from proctor.traces.trajectory import load_trajectory
from proctor.traces.writer import KEYS, TrajectoryWriter
from tests.examples import examples
from tests.traces.rows import rows_of

AT = 1_763_248_000_123_456_789
STAMP = "2025-11-15T23:06:40.123Z"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "trajectory.jsonl"


@pytest.fixture
def trace(path: Path) -> TrajectoryWriter:
    """A writer whose clock stands still."""
    return TrajectoryWriter(path, clock=lambda: AT)


class Broken:
    """An object that cannot even be shown."""

    def __str__(self) -> str:
        raise RuntimeError("no")


class Colour(enum.StrEnum):
    RED = "red"


class Whole:
    """A number of another library."""

    def __index__(self) -> int:
        return 7


def deep(levels: int) -> list[Any]:
    found: list[Any] = []
    for _ in range(levels):
        found = [found]
    return found


ROUND: dict[str, Any] = {"n": 1}
ROUND["self"] = ROUND


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (float("nan"), "NaN"),
        (float("inf"), "Infinity"),
        (-float("inf"), "-Infinity"),
        (1.7976931348623157e308, 1.7976931348623157e308),
        (2**64, 2**64),
        (1 << 1024, hex(1 << 1024)),
        (True, True),
        (b"caf\xc3\xa9 \xff", "café \\xff"),
        (bytearray(b"x"), "x"),
        (Path("/a/b"), "/a/b"),
        (datetime.date(2026, 1, 2), "2026-01-02"),
        ({3, 1, 2}, [1, 2, 3]),
        ((1, (2,)), [1, [2]]),
        (Colour.RED, "red"),
        (Whole(), 7),
        ("\ud800x\udc80", "\\ud800x\\udc80"),
        (Broken(), "<Broken that cannot be shown>"),
        (
            {1: "a", "1": "b", None: "c", False: "d"},
            {"1": "a", "1#2": "b", "null": "c", "false": "d"},
        ),
        ({1.5: 1, b"k": 2}, {"1.5": 1, "k": 2}),
        (range(3), "range(0, 3)"),
    ],
)
def test_a_value_that_json_lacks_is_written_as_something_it_has(
    trace: TrajectoryWriter, path: Path, value: object, written: object
) -> None:
    trace.tool_call("t", arguments={"value": value})
    assert rows_of(path)[0]["arguments"]["value"] == written


def test_a_value_that_holds_itself_is_written_once(trace: TrajectoryWriter, path: Path) -> None:
    trace.tool_call("t", arguments=ROUND)
    assert rows_of(path)[0]["arguments"] == {"n": 1, "self": "{'n': 1, 'self': {...}}"}


@pytest.mark.parametrize("levels", [99, 500, 100_000])
def test_a_value_as_deep_as_it_may_be_is_written(
    trace: TrajectoryWriter, path: Path, levels: int
) -> None:
    trace.tool_call("t", arguments={"deep": deep(levels)})
    assert len(load_trajectory(str(path)).entries) == 1


@pytest.mark.parametrize(
    ("fields", "fitted", "unfit"),
    [
        ({"exit_code": "SIGKILL"}, {}, {"exit_code": "SIGKILL"}),
        ({"exit_code": True}, {"exit_code": 1}, None),
        ({"exit_code": Whole()}, {"exit_code": 7}, None),
        ({"exit_code": 1 << 63}, {}, {"exit_code": 1 << 63}),
        ({"duration_ms": 142.7}, {"duration_ms": 143}, None),
        ({"duration_ms": float("nan")}, {}, {"duration_ms": "NaN"}),
        ({"step": -1}, {"step": 0}, {"step": -1}),
        ({"arguments": [1]}, {}, {"arguments": [1]}),
        ({"metadata": "m"}, {}, {"metadata": "m"}),
        ({"media": "a.png"}, {"media": ["a.png"]}, None),
        ({"media": (Path("/a"), 1)}, {"media": ["/a", "1"]}, None),
        ({"content": [{"type": "text"}]}, {"content": '[{"type": "text"}]'}, None),
        ({"stdout": b"x\xff"}, {"stdout": "x\\xff"}, None),
        ({"content": 5}, {"content": "5"}, None),
    ],
)
def test_what_does_not_fit_its_field_is_kept_in_metadata(
    trace: TrajectoryWriter,
    path: Path,
    fields: dict[str, Any],
    fitted: dict[str, Any],
    unfit: dict[str, Any] | None,
) -> None:
    trace.entry(role="r", **fields)
    expected = {"role": "r", "step": 0, **fitted, "timestamp": STAMP}
    if unfit:
        expected["metadata"] = {"unfit": unfit}
    assert rows_of(path) == [expected]
    assert len(read_as_peer(path)) == 1


def test_metadata_keeps_its_own_unfit_key(trace: TrajectoryWriter, path: Path) -> None:
    trace.entry(role="r", exit_code="x", metadata={"unfit": 1})
    assert rows_of(path)[0]["metadata"] == {"unfit": 1, "unfit#2": {"exit_code": "x"}}


LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters())
    | st.binary()
    | st.dates()
    | st.just(Broken())
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text() | st.integers() | st.none() | st.floats(), inner, max_size=4)
        | st.tuples(inner, inner)
    ),
    max_leaves=12,
)


@settings(max_examples=examples(150))
@given(st.lists(st.dictionaries(st.sampled_from(KEYS[1:-2]), VALUES, max_size=6), max_size=5))
def test_no_value_stops_the_harness_and_every_reader_takes_the_line(
    tmp_path_factory: pytest.TempPathFactory, entries: list[dict[str, Any]]
) -> None:
    path = tmp_path_factory.mktemp("any") / "t.jsonl"
    with TrajectoryWriter(path) as trace:
        for fields in entries:
            trace.entry(role="assistant", **fields)
    ours = load_trajectory(str(path)).entries
    assert len(ours) == len(entries) == len(read_as_peer(path))
    assert [msgspec.json.decode(json.dumps(row), type=Entry) for row in rows_of(path)] == ours
