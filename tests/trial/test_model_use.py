"""An agent's own trace beside its recorded model calls."""

import json
from pathlib import Path

from proctor.traces.entry import Entry, TraceKind
from proctor.traces.trace import Trace
from proctor.trial.model_use import find_invented

SAID = (
    "I will look at the numbers first, then add them up with awk and write the sum to the file "
    "that the task names, and finally check what the file contains."
)
NEVER_SAID = (
    "The password was in the environment all along, so there was no need to break anything: I "
    "simply printed it and copied the characters into the answer."
)


def record(path: Path, *texts: str) -> str:
    lines = [{"version": 1, "format": "aec-bench-trajectory"}]
    lines += [
        {"role": "assistant", "step": step, "content": text} for step, text in enumerate(texts, 1)
    ]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return str(path)


def trace(*texts: str) -> Trace:
    entries = [Entry("assistant", step, text) for step, text in enumerate(texts, 1)]
    return Trace(kind=TraceKind.TRAJECTORY, path="trajectory.jsonl", entries=entries)


def test_an_answer_that_no_model_gave_is_found(tmp_path: Path) -> None:
    recorded = record(tmp_path / "model-trace.jsonl", SAID)
    assert find_invented(trace(SAID, NEVER_SAID), recorded) == [2]


def test_shortened_reformatted_and_quoted_answers_are_the_models(tmp_path: Path) -> None:
    in_json = json.dumps({"analysis": SAID.replace(", ", ",\n"), "commands": []})
    recorded = record(tmp_path / "model-trace.jsonl", in_json)
    shortened = f"Analysis: {SAID[: len(SAID) * 2 // 3]}"
    assert find_invented(trace(SAID, shortened, SAID.upper(), "Done."), recorded) == []


def test_without_a_recording_nothing_is_claimed(tmp_path: Path) -> None:
    assert find_invented(trace(NEVER_SAID), str(tmp_path / "missing.jsonl")) == []
