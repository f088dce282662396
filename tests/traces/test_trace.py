"""The trace of a trial: which file is used, and why those before it were not."""

import json
import os
from pathlib import Path

import pytest

from proctor.errors import TraceError
from proctor.traces.entry import TraceKind
from proctor.traces.trace import Trace, find_trace, load_trace_file

ENTRY = b'{"step": 1, "role": "user", "content": "x"}\n'
ROW = b'{"role": "user", "content": "x"}\n'
STEPS = [
    {"step_id": 1, "source": "user", "message": "m"},
    {"step_id": 2, "source": "agent", "message": "a", "model_name": "m-1"},
    {"step_id": 3, "source": "agent", "message": "b", "model_name": "m-2"},
    {"step_id": 4, "source": "agent", "message": "c", "model_name": "m-1"},
]
ATIF = json.dumps({"agent": {"name": "a", "version": "1"}, "steps": STEPS}).encode()
PRINTED = b'{"role": "output", "step": 0, "stdout": "x"}\n'
GOOD = {
    TraceKind.TRAJECTORY: ENTRY,
    TraceKind.ATIF: ATIF,
    TraceKind.CONVERSATION: ROW,
    TraceKind.OUTPUT: PRINTED,
}
NAMES = {
    TraceKind.TRAJECTORY: "trajectory.jsonl",
    TraceKind.ATIF: "trajectory.json",
    TraceKind.CONVERSATION: "conversation.jsonl",
    TraceKind.OUTPUT: "proctor-output.jsonl",
}


def find(root: Path, **files: bytes) -> tuple[Trace | None, tuple[str, ...]]:
    """Look among them, of which those given are there."""
    for name, data in files.items():
        (root / NAMES[TraceKind[name]]).write_bytes(data)
    return find_trace([(source, str(root / NAMES[source])) for source in TraceKind])


def test_the_trajectory_is_preferred_then_atif_conversation_and_output(tmp_path: Path) -> None:
    for source, data in reversed(GOOD.items()):
        trace, passed_over = find(tmp_path, **{source.name: data})
        assert trace is not None
        assert (trace.kind, trace.path) == (source, str(tmp_path / NAMES[source]))
        assert trace.is_usable
        assert passed_over == ()


def test_what_is_not_there_is_passed_over_in_silence(tmp_path: Path) -> None:
    assert find(tmp_path) == (None, ())


@pytest.mark.parametrize("empty", [b"", b"\n\n", b'{"version": 1, "format": "f"}\n', b"garbage\n"])
def test_a_trajectory_without_an_entry_does_not_hide_the_conversation(
    tmp_path: Path, empty: bytes
) -> None:
    trace, passed_over = find(tmp_path, TRAJECTORY=empty, CONVERSATION=ROW)
    assert trace is not None
    assert trace.kind is TraceKind.CONVERSATION
    assert [turn.text for turn in trace.turns] == ["x"]
    assert passed_over == (f"{tmp_path / 'trajectory.jsonl'}: no usable entry in it",)


def test_an_atif_file_that_is_torn_does_not_hide_the_conversation(tmp_path: Path) -> None:
    trace, (reason,) = find(tmp_path, ATIF=ATIF[:-5], CONVERSATION=ROW)
    assert trace is not None
    assert trace.kind is TraceKind.CONVERSATION
    assert reason.startswith(f"{tmp_path / 'trajectory.json'}:1: not JSON at column ")


def test_when_none_is_usable_every_one_has_its_reason(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "trajectory.jsonl")
    (tmp_path / "trajectory.json").symlink_to("nowhere")
    trace, passed_over = find(tmp_path, CONVERSATION=b"5\n")
    assert trace is None
    assert passed_over == (
        f"{tmp_path / 'trajectory.jsonl'}: not a regular file; expected a file of lines",
        f"{tmp_path / 'trajectory.json'}: cannot be read: No such file or directory",
        f"{tmp_path / 'conversation.jsonl'}: no usable turn in it",
    )


def test_a_torn_trace_is_still_a_trace(tmp_path: Path) -> None:
    trace, passed_over = find(tmp_path, TRAJECTORY=b"\n" + ENTRY + b'{"st')
    assert trace is not None
    assert passed_over == ()
    assert [entry.content for entry in trace.entries] == ["x"]
    assert trace.lines == [2]
    assert [(found.code, found.line) for found in trace.diagnostics] == [("torn-line", 3)]


def test_models_that_answered_are_named_once_in_their_order(tmp_path: Path) -> None:
    trace, _ = find(tmp_path, ATIF=ATIF)
    assert trace is not None
    assert trace.models == ("m-1", "m-2")
    assert [entry.role for entry in trace.entries] == ["user", *["assistant"] * 3]


@pytest.mark.parametrize("source", TraceKind)
def test_a_file_that_is_not_there_is_refused(tmp_path: Path, source: TraceKind) -> None:
    with pytest.raises(TraceError, match="missing: cannot be read: No such file"):
        load_trace_file(str(tmp_path / "missing"), source)
