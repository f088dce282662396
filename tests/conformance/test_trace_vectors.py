"""Every trace in the vectors loads; what the peer's reader rightly refuses is refused here too.

Only the inputs are replayed here, and how many entries and messages they come to. The summaries
that the vectors hold beside the traces are replayed by test_summary_vectors.py.
"""

import json
from pathlib import Path

import pytest

from proctor.errors import TraceError
from proctor.traces.conversation import load_conversation
from proctor.traces.trajectory import load_trajectory
from tests.conformance.vectors import Line, line_params

READABLE_HERE = {"raw_u2028_inside_string_breaks_reader", "raw_u0085_inside_string_breaks_reader"}
"""Lines that the peer cuts in two: its own writer makes them."""
NO_TRACE_ERRORS = {"rep_turns_bad_string_raises"}
"""Vectors whose error is not about the trace."""


def traces_of(vector: Line) -> list[tuple[str, str]]:
    """Every trace of a vector: its kind, and its text."""
    found: list[tuple[str, str]] = []
    inputs = vector["inputs"] or {}
    for record in [{**inputs, "trajectory": vector["trajectory"]}, *inputs.get("records", ())]:
        for kind in ("trajectory", "conversation"):
            if record.get(kind) is not None:
                lines = "".join(f"{json.dumps(row)}\n" for row in record[kind])
                found.append((kind, lines))
            if record.get(f"{kind}_raw") is not None:
                found.append((kind, record[f"{kind}_raw"]))
    return found


@pytest.mark.parametrize(
    "vector", [*line_params("trace_summary"), *line_params("trace_classification")]
)
def test_the_traces_of_a_vector_load(vector: Line, tmp_path: Path) -> None:
    for kind, text in traces_of(vector):
        path = tmp_path / f"{kind}.jsonl"
        path.write_text(text, encoding="utf-8", newline="")
        if kind == "conversation":
            check_conversation(path, text, vector)
        else:
            check_trajectory(path, text, vector)


def is_refused(vector: Line, kind: str) -> bool:
    """Whether the peer refuses this trace, and rightly."""
    if vector["name"] in READABLE_HERE | NO_TRACE_ERRORS or vector["kind"] not in (
        "summary",
        "load",
    ):
        return False
    output = vector.get("output_docs_era") or vector["output"]
    about = kind == "trajectory" or vector["trajectory"] is None
    return "error_type" in output and about


def check_trajectory(path: Path, text: str, vector: Line) -> None:
    if is_refused(vector, "trajectory"):
        with pytest.raises(TraceError, match=r"trajectory\.jsonl:\d+: "):
            load_trajectory(str(path))
        assert load_trajectory(str(path), salvage=True).diagnostics
        return
    rows = [json.loads(line) for line in text.split("\n") if line.strip()]
    entries = [row for row in rows if not {"version", "format"} <= row.keys()]
    found = load_trajectory(str(path))
    assert len(found.entries) == len(entries)
    for entry, row in zip(found.entries, entries, strict=True):
        assert {key: getattr(entry, key) for key in row} == row


def check_conversation(path: Path, text: str, vector: Line) -> None:
    if is_refused(vector, "conversation"):
        with pytest.raises(TraceError, match=r"conversation\.jsonl:\d+: "):
            load_conversation(str(path))
        assert load_conversation(str(path), salvage=True).diagnostics
        return
    rows = [line for line in text.split("\n") if line.strip()]
    found = load_conversation(str(path))
    assert {turn.line for turn in found.turns} == set(range(1, len(rows) + 1))
