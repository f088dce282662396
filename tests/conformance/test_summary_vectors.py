"""Every summary in the vectors is reproduced, field for field, by `compat`.

Where the peer stops with an error there is an answer here, and it stands below.
"""

import json
from pathlib import Path

import msgspec
import pytest

from proctor.record.model import TrialRecord
from proctor.traces.compat_summary import Signals, aggregate, make_summary_record, read_signals
from tests.conformance.vectors import Line, line_params
from tests.record.samples import made

INSTEAD_OF_A_CRASH = {
    # The line is left out, and with it all there was.
    "missing_step_rejected": {"has_transcript": 0},
    # What is wrong with a line is left out; the rest of it counts.
    "unknown_field_rejected": {"total_messages": 1, "assistant_messages": 1},
    "float_exit_code_1_5_rejected": {"total_messages": 1, "tool_result_messages": 1},
    "malformed_line_raises": {"total_messages": 1, "assistant_messages": 1},
    "conv_malformed_line_raises": {"total_messages": 1, "assistant_messages": 1},
    # Lines end at \n and nowhere else.
    "raw_u2028_inside_string_breaks_reader": {"total_messages": 1, "assistant_messages": 1},
    "raw_u0085_inside_string_breaks_reader": {"total_messages": 1, "assistant_messages": 1},
    # The trace is whole; that `turns_used` is no number shows as null.
    "rep_turns_bad_string_raises": {"total_messages": 1, "assistant_messages": 1},
}


def write_trace(place: Path, kind: str, given: Line) -> str | None:
    """The trace of a vector as a file; None where it has none of that kind."""
    if given.get(f"{kind}_raw") is not None:
        text = given[f"{kind}_raw"]
    elif given.get(kind) is not None:
        text = "".join(f"{json.dumps(row)}\n" for row in given[kind])
    else:
        return None
    path = place / f"trial-001-{kind}.jsonl"
    path.write_text(text, encoding="utf-8", newline="")
    return str(path)


def signals_of(place: Path, given: Line) -> Signals:
    return read_signals(
        write_trace(place, "trajectory", given), write_trace(place, "conversation", given)
    )


def record_of(place: Path, given: Line) -> TrialRecord:
    """The record that the vectors were made with."""
    kinds = {kind: (place / f"trial-001-{kind}.jsonl") for kind in ("trajectory", "conversation")}
    names = {kind: path.name if path.exists() else None for kind, path in kinds.items()}
    changes = {
        "outputs.trajectory_path": names["trajectory"],
        "outputs.conversation_path": names["conversation"],
        "outputs.agent_result": given.get("agent_result"),
        "evaluation.breakdown": given.get("breakdown"),
        "evaluation.reward": 1.0,
        "cost": None,
    }
    return made(**changes)


@pytest.mark.parametrize("vector", line_params("trace_summary"))
def test_compat_says_what_the_peer_says(vector: Line, tmp_path: Path) -> None:
    inputs = vector["inputs"] or {}
    if vector["kind"] == "summary_aggregate":
        check_aggregate(vector, tmp_path)
        return
    given = {**inputs, "trajectory": vector["trajectory"]}
    signals = signals_of(tmp_path, given)
    row = msgspec.to_builtins(make_summary_record(record_of(tmp_path, given), signals))
    if "error_type" in vector["output"]:
        expected = {"has_transcript": 1} | INSTEAD_OF_A_CRASH[vector["name"]]
        assert signals == msgspec.convert(expected, Signals)
        assert row["turns_used"] == (None if "turns" in vector["name"] else 0)
        return
    assert msgspec.to_builtins(signals) == vector["output"]["signals"]
    assert row == vector["output"]["trace_summary_record"]


def check_aggregate(vector: Line, place: Path) -> None:
    found = []
    for number, given in enumerate(vector["inputs"]["records"]):
        (place / str(number)).mkdir()
        found.append(signals_of(place / str(number), given))
    assert msgspec.to_builtins(aggregate(found)) == vector["output"]


def test_nothing_sums_up_to_zeros() -> None:
    assert set(msgspec.to_builtins(aggregate([])).values()) == {0}
