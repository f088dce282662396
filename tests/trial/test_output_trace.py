"""A trial whose agent writes no trace: what its command printed is found by everything."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from proctor.cli.showing.text import render_entry
from proctor.traces import writer
from proctor.traces.entry import Entry
from tests.cli.programs import Proctor, Ran, run_here
from tests.faults.site import wait_until
from tests.task.trees import make_task

PRINTS = (
    r"echo begun; echo wrong >&2; printf '\033[31mred\033[0m \xff\n'; echo key $API_KEY;"
    " printf 'no end'; exit 3"
)
SECRET = "s3cr3t-value-123"  # noqa: S105 - of a test


pytestmark = pytest.mark.sandbox


@pytest.fixture
def proctor(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Proctor:
    return run_here(monkeypatch, capsys)


def run_in(place: Path, proctor: Proctor, command: str, *words: object) -> tuple[Ran, Path]:
    task = make_task(place / "task")
    where = ("-o", place / "jobs", "--job-name", "job", "--ledger", place / "ledger")
    ran = proctor("run", "-p", task, "--command", command, *where, *words)
    (trial,) = [each.parent for each in (place / "jobs" / "job").glob("*/record.json")]
    return ran, trial


def load(path: Path) -> Any:
    return json.loads(path.read_text())


def test_what_a_command_printed_is_the_trace_of_its_trial(
    tmp_path: Path, proctor: Proctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    _, trial = run_in(tmp_path, proctor, PRINTS, "--ae", f"API_KEY={SECRET}")
    file = trial / "agent" / "proctor-output.jsonl"
    text = (trial / "agent" / "command.txt").read_text()
    assert text == "begun\nwrong\n\x1b[31mred\x1b[0m �\nkey [redacted:API_KEY]\nno end"
    assert load(trial / "record.json")["outputs"]["trajectory_path"] == f"agent/{file.name}"
    shown = proctor("show", trial).out
    assert "  begun\n" in shown
    assert r"\x1b[31mred\x1b[0m" in shown
    assert "[exit 3, after " in shown
    assert SECRET not in shown + file.read_text()
    summary = load_summary(proctor, trial)
    assert (summary["source"], summary["file"]) == ("command output", f"agent/{file.name}")
    assert [summary[name] for name in ("turns", "tool_calls", "messages")] == [0, 0, 0]
    page = proctor("trace", "summary", trial).out
    assert "source         command output: agent/proctor-output.jsonl" in page
    assert "turns          none: the agent wrote no trace of its own" in page
    assert "no problem" in proctor("check", file).out
    assert "  begun" in proctor("show", "-f", trial).out
    found = proctor("search", "--ledger", tmp_path / "ledger", "wrong")
    assert "output\n" in found.out
    sealed = f"{load(trial / 'record.json')['experiment_id']}/{trial.name}"
    assert "  begun\n" in proctor("show", sealed, "--ledger", tmp_path / "ledger").out


def load_summary(proctor: Proctor, trial: Path) -> Any:
    return json.loads(proctor("trace", "summary", trial, "--json").out)["trials"][0]["trace"]


@pytest.mark.parametrize("is_named", [True, False])
def test_the_agents_own_trace_goes_first_and_the_writer_needs_no_workspace(
    tmp_path: Path, proctor: Proctor, is_named: bool
) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "trajectory_writer.py").write_bytes(Path(writer.__file__).read_bytes())
    (tree / "agent.py").write_text(
        "from trajectory_writer import TrajectoryWriter\n"
        "with TrajectoryWriter() as trace:\n"
        "    trace.new_step(); trace.assistant('mine'); print('printed')\n"
    )
    forget = "" if is_named else "unset PROCTOR_TRAJECTORY; "
    command = f"{forget}rm -rf /workspace; python3 /installed-agent/agent.py"
    _, trial = run_in(tmp_path, proctor, command, "--agent-tree", tree)
    summary = load_summary(proctor, trial)
    assert (summary["source"], summary["turns"]) == ("trajectory", 1)
    outputs = load(trial / "record.json")["outputs"]
    assert outputs["trajectory_path"] == "agent/trajectory.jsonl"
    assert "printed" in (trial / "agent" / "proctor-output.jsonl").read_text()


def test_the_oracles_output_is_its_trace_too(tmp_path: Path, proctor: Proctor) -> None:
    script = {"solution/solve.sh": "#!/bin/bash\necho solved\n"}
    task = make_task(tmp_path / "task", "", **script)
    proctor("run", "-p", task, "-a", "oracle", "-o", tmp_path / "jobs", "--no-ledger")
    (trial,) = [each.parent for each in (tmp_path / "jobs").glob("*/*/record.json")]
    assert (trial / "agent" / "oracle.txt").read_text() == "solved\n"
    assert load_summary(proctor, trial)["source"] == "command output"


def test_commands_of_a_class_by_import_path_are_recorded_too(
    tmp_path: Path, proctor: Proctor
) -> None:
    words = ("--agent-import-path", "tests.faults.agents:Printer", "--ak", "n_bytes=5")
    where = ("-o", tmp_path / "jobs", "--no-ledger")
    proctor("run", "-p", make_task(tmp_path / "task"), *words, *where)
    (trial,) = [each.parent for each in (tmp_path / "jobs").glob("*/*/record.json")]
    assert load_summary(proctor, trial)["source"] == "command output"


def test_output_is_on_the_host_while_the_command_runs_and_survives_a_killed_runner(
    tmp_path: Path, proctor: Proctor
) -> None:
    task = make_task(tmp_path / "task")
    words = ("run", "-p", task, "--command", "echo begun; sleep 600", "-o", tmp_path / "jobs")
    runner = subprocess.Popen(
        [sys.executable, "-m", "proctor", *map(str, words), "--no-ledger", "--job-name", "job"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        jobs = tmp_path / "jobs" / "job"
        name = "*/agent/proctor-output.jsonl"
        wait_until(lambda: any('"begun\\n"' in file.read_text() for file in jobs.glob(name)))
    finally:
        os.kill(runner.pid, signal.SIGKILL)
        runner.wait()
    (trial,) = [file.parent.parent for file in jobs.glob(name)]
    assert load_summary(proctor, trial)["source"] == "command output"
    assert "  begun\n" in proctor("show", trial).out


@pytest.mark.parametrize(
    ("entry", "lines"),
    [
        (Entry("output", 0, command="a\nb"), ["18:00:00.123  $ a", "              b"]),
        (Entry("output", 0, stdout="a\n\tb\n"), ["18:00:00.123  a", "                  b"]),
        (Entry("output", 0, exit_code=1, duration_ms=65_000),
         ["18:00:00.123  [exit 1, after 1m 05s]"]),
        (Entry("output", 0, "stopped before it ended", duration_ms=10),
         ["18:00:00.123  [stopped before it ended, after 0.0s]"]),
        (Entry("output", 0, "9 bytes were cut here"), ["18:00:00.123  [9 bytes were cut here]"]),
    ],
)  # fmt: skip
def test_an_entry_of_output_is_shown_as_lines_with_the_time(entry: Entry, lines: list[str]) -> None:
    timed = msgspec.structs.replace(entry, timestamp="2026-01-01T18:00:00.123Z")
    assert render_entry(timed) == lines
