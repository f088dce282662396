"""A file to its summary: every kind, whole or torn, large or hostile."""

import json
import tracemalloc
from collections.abc import Iterable
from pathlib import Path

import pytest

from proctor.errors import TraceError
from proctor.traces.entry import TraceKind
from proctor.traces.summary import summarise_file

ENTRY = {"role": "assistant", "step": 1, "content": "x"}
ROWS = [
    {"role": "user", "content": "go"},
    {
        "role": "assistant",
        "content": [{"type": "tool_use", "id": "t", "name": "bash", "input": {"command": "ls"}}],
    },
    {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": "t", "content": "no", "is_error": True}],
    },
]


def write_lines(path: Path, rows: Iterable[object]) -> str:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return str(path)


def test_a_torn_trajectory_is_summed_up_and_called_degraded(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(json.dumps(ENTRY) + '\n{"role": "assis')
    found = summarise_file(str(path), TraceKind.TRAJECTORY)
    assert (found.messages, found.degraded, found.diagnostics) == (1, True, 1)
    assert found.noticed[0].startswith("line 2: ")
    assert found.source == "trajectory"


def test_a_conversation_has_the_same_numbers_as_its_entries(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "c.jsonl", ROWS)
    found = summarise_file(path, TraceKind.CONVERSATION)
    assert (found.source, found.turns, found.tool_calls) == ("conversation", 1, 1)
    assert found.errors.by_reason == {"is_error": 1}
    assert found.errors.first is not None
    assert (found.errors.first.tool, found.errors.first.command) == ("bash", "ls")


def test_a_file_that_is_not_there_cannot_be_summed_up(tmp_path: Path) -> None:
    with pytest.raises(TraceError):
        summarise_file(str(tmp_path / "none.jsonl"), TraceKind.TRAJECTORY)


@pytest.mark.parametrize("kind", [TraceKind.TRAJECTORY, TraceKind.CONVERSATION])
def test_turns_are_labelled_in_the_same_reading(kind: TraceKind, tmp_path: Path) -> None:
    rows = [{**ENTRY, "step": step} for step in (1, 2, 3)]
    path = write_lines(tmp_path / "t.jsonl", rows)
    found = summarise_file(path, kind, labelled=True)
    assert found.behaviour is not None
    assert found.behaviour.turns == len(rows) == found.by_role["assistant"]
    assert summarise_file(path, kind).behaviour is None


def hold(path: str, kind: TraceKind) -> int:
    """Bytes that summing up a file holds at most."""
    tracemalloc.start()
    try:
        summarise_file(path, kind)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def write_long(path: Path, steps: int) -> str:
    with path.open("w") as file:
        for step in range(1, steps + 1):
            call = {
                "role": "tool_call",
                "step": step,
                "tool_name": f"t{step}",
                "command": str(step),
            }
            gave = {"role": "tool_result", "step": step, "stdout": "x" * 200, "exit_code": step % 3}
            file.write(f"{json.dumps(call)}\n{json.dumps(gave)}\n")
    return str(path)


def test_memory_does_not_grow_with_the_trace(tmp_path: Path) -> None:
    path = write_long(tmp_path / "t.jsonl", 20_000)
    assert Path(path).stat().st_size > 6_000_000
    assert hold(path, TraceKind.TRAJECTORY) < 5_000_000


@pytest.mark.soak
def test_a_million_steps_are_summed_up_in_bounded_memory(tmp_path: Path) -> None:
    path = write_long(tmp_path / "t.jsonl", 1_000_000)
    assert hold(path, TraceKind.TRAJECTORY) < 30_000_000
    found = summarise_file(path, TraceKind.TRAJECTORY)
    assert (found.turns, found.tool_calls) == (1_000_000, 1_000_000)
    assert not found.loops.is_exact
