"""Sealed trials to take out: real harbor trials, and small ones with traces of every kind."""

import json
from collections.abc import Sequence
from datetime import datetime
from io import BytesIO
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from proctor.exchange.exporting import Report, SelectedTrial, Selection, read_trials
from proctor.exchange.submission import SealOptions, find_submissions
from proctor.ledger.api import Ledger
from proctor.ledger.query import list_trials
from proctor.ledger.sealing import seal
from proctor.traces.entry import Entry
from proctor.traces.writer import render_line
from tests.ledger.trials import open_ledger, seal_files
from tests.task.trees import JOBS

EXPERIMENT = "experiment-001"
"""Of the small trials."""
TRAJECTORY = "agent/trajectory.jsonl"
CONVERSATION = "agent/conversation.jsonl"
ATIF = "agent/trajectory.json"
DATA = JOBS.parent.parent
CONVERSED = DATA / "conversations"
STEPS: Sequence[dict[str, Any]] = (
    {"role": "user", "step": 0, "content": "Do it.", "timestamp": "2026-03-01T10:00:00Z"},
    {"role": "assistant", "step": 1, "content": "I look.", "timestamp": "2026-03-01T10:00:02Z"},
    {
        "role": "tool_call",
        "step": 1,
        "tool_name": "bash",
        "command": "ls /nowhere",
        "arguments": {"command": "ls /nowhere"},
        "timestamp": "2026-03-01T10:00:03Z",
    },
    {
        "role": "tool_result",
        "step": 1,
        "tool_name": "bash",
        "stdout": "",
        "stderr": "ls: no such directory",
        "exit_code": 2,
        "timestamp": "2026-03-01T10:00:05Z",
    },
    {"role": "assistant", "step": 2, "content": "Done.", "timestamp": "2026-03-01T10:00:06Z"},
)


def trajectory(*steps: dict[str, Any]) -> bytes:
    """A trajectory.jsonl of these entries, or of STEPS."""
    return b"".join(render_line(step) for step in steps or STEPS)


def atif(number: int = 0) -> bytes:
    """A real ATIF file."""
    found = sorted((JOBS / "16-agent-nonzero").glob("*/agent/trajectory.json"))
    return found[number].read_bytes()


def seal_job(ledger: Ledger, job: str) -> list[Path]:
    """Seal all trials of a real job under the first two characters of its name."""
    trials = sorted(path.parent for path in next(JOBS.glob(job)).glob("*__*/config.json"))
    for trial in trials:
        seal(ledger, list(find_submissions(trial, SealOptions(experiment=f"job-{job[:2]}"))))
    return trials


def small_ledger(directory: Path, trials: dict[str, dict[str, bytes]]) -> Path:
    """A ledger with these trials and their evidence; where it is."""
    with open_ledger(directory) as ledger:
        for name, files in trials.items():
            seal_files(ledger, name, files)
    return directory / "ledger"


def read_lines(path: Path) -> list[Any]:
    """A file of JSON lines."""
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def lost_of(path: Path, trial: str) -> dict[str, str]:
    """What a loss report says of one trial: path to reason."""
    return {loss["path"]: loss["why"] for loss in read_lines(path) if loss["trial"] == trial}


def tree_of(directory: Path) -> dict[str, bytes]:
    """Every file below a directory, by its path."""
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


def sealed_trial(directory: Path) -> SelectedTrial:
    """One trial as the exports read it, with no trace of its own."""
    report = Report(BytesIO())
    report.trials = 1
    with open_ledger(directory, "a") as ledger:
        (trial,) = read_trials(Selection(ledger, list_trials(ledger), is_all=True), report)
    return trial


texts = st.text(max_size=6)
moments = st.datetimes(datetime(2026, 1, 1), datetime(2026, 12, 31)).map(  # noqa: DTZ001 - naive
    lambda when: f"{when.isoformat()}Z"
)


@st.composite
def honest_traces(draw: st.DrawFn) -> list[Entry]:
    """Entries as a harness writes them: words, calls and their results, in order."""
    entries = [Entry(role="user", step=0, content=draw(texts), timestamp=draw(moments))]
    for step in range(1, draw(st.integers(1, 4))):
        entries.append(
            Entry(role="assistant", step=step, content=draw(texts), timestamp=draw(moments))
        )
        for _ in range(draw(st.integers(0, 2))):
            entries += draw(_calls(step))
        if draw(st.booleans()):
            entries.append(Entry(role="user", step=step, content=draw(texts)))
    return entries


@st.composite
def _calls(draw: st.DrawFn, step: int) -> tuple[Entry, Entry]:
    arguments = draw(st.dictionaries(texts, texts, max_size=2))
    call = Entry(
        role="tool_call",
        step=step,
        tool_name=draw(st.sampled_from(("bash", "calc"))),
        command=arguments.get("command"),
        arguments=arguments,
        timestamp=draw(st.none() | moments),
    )
    result = Entry(
        role="tool_result",
        step=step,
        tool_name=call.tool_name,
        stdout=draw(texts),
        stderr=draw(st.none() | texts),
        exit_code=draw(st.none() | st.integers(-1, 2)),
        duration_ms=draw(st.none() | st.integers(0, 9999)),
        timestamp=draw(st.none() | moments),
    )
    return call, result
