"""Attempts that did the very same at the very same times."""

import json
from pathlib import Path

import pytest

from proctor.audit.findings import Finding, Kind
from proctor.audit.traces import audit_traces
from proctor.harbor.job import load_job
from tests.audit.directories import make_job, write_json


def leave_trace(trial: Path, command: str | None, time: str | None) -> None:
    calls = [{"function_name": "bash", "arguments": {"command": command}}] if command else None
    (trial / "agent").mkdir()
    step = {"timestamp": time, "tool_calls": calls}
    write_json(trial / "agent" / "trajectory.json", {"steps": [step]})


def audit(job: Path) -> list[Finding]:
    return list(audit_traces(load_job(str(job))))


@pytest.fixture
def trials(tmp_path: Path) -> list[Path]:
    job = make_job(tmp_path / "job", {"a": ["1", "0"], "b": ["1"]})
    return [job / name for name in ("a__job1", "a__job2", "b__job1")]


def leave_times(trial: Path, times: list[str]) -> None:
    steps = [{"timestamp": time} for time in times]
    (trial / "agent").mkdir(exist_ok=True)
    (trial / "agent" / "trajectory.json").write_text(json.dumps({"steps": steps}))


@pytest.mark.parametrize(
    "times", [["10:00", "10:01", "10:02"], ["10:00.1", "10:00.2"], ["10:00.1"] * 3]
)
def test_few_or_coarse_times_may_be_shared_by_chance(trials: list[Path], times: list[str]) -> None:
    for trial in trials[:2]:
        leave_times(trial, times)
    assert audit(trials[0].parent) == []


def test_the_same_clock_is_a_copy(trials: list[Path]) -> None:
    for trial in trials[:2]:
        leave_times(trial, ["10:00.1", "10:00.2", "10:00.3"])
    (finding,) = audit(trials[0].parent)
    assert finding.kind is Kind.COPIED_TRIAL
    assert finding.path == f"{trials[1]}/agent/trajectory.json"


def test_other_tasks_may_go_the_same_way(trials: list[Path]) -> None:
    leave_trace(trials[0], "ls", "10:00")
    leave_trace(trials[2], "ls", "10:00")
    assert audit(trials[0].parent) == []


def test_attempts_without_trace_commands_or_times_are_not_judged(trials: list[Path]) -> None:
    for trial in trials[:2]:
        leave_trace(trial, None, None)
    assert audit(trials[0].parent) == []


def test_a_torn_trace_is_a_difference(trials: list[Path]) -> None:
    leave_trace(trials[0], "ls", "10:00")
    leave_trace(trials[1], "ls", "10:00")
    path = trials[1] / "agent" / "trajectory.json"
    path.write_text("{")
    (finding,) = audit(trials[0].parent)
    assert (finding.kind, finding.path) == (Kind.TORN_FILE, str(path))
