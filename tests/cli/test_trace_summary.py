"""`proctor trace summary`: a page for one trial, a table for many, aec-bench's numbers beside."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from proctor.exchange.submission import SealOptions, find_submissions
from proctor.ledger.sealing import seal
from tests.cli.programs import Proctor
from tests.ledger.ledgers import make_ledger
from tests.task.trees import JOBS

HOSTILE = "\x1b]0;pwned\x07\x1b[2J\u202e<script>"


def entry(role: str, step: int, **more: Any) -> str:
    return json.dumps({"role": role, "step": step, **more}) + "\n"


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """A trajectory with an error that is got over, a loop and a file that is written."""
    commands = [("make", 2), ("make", 2), ("make", 2), ("vi > Makefile", 0), ("make", 0)]
    path = tmp_path / "trajectory.jsonl"
    text = ""
    for step, (command, code) in enumerate(commands, 1):
        text += entry("assistant", step, content="x", timestamp=f"2026-01-01T00:00:{step:02}Z")
        text += entry("tool_call", step, tool_name="bash", command=command)
        text += entry("tool_result", step, tool_name="bash", stderr="no rule", exit_code=code)
    path.write_text(text)
    return path


@pytest.fixture(autouse=True)
def no_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROCTOR_LEDGER", str(tmp_path / "ledger"))
    monkeypatch.setenv("COLUMNS", "80")


def test_a_page_says_the_first_error_and_what_became_of_it(proctor: Proctor, trace: Path) -> None:
    ran = proctor("trace", "summary", trace)
    assert ran.code == 0
    page = ran.out
    assert "source         trajectory: trajectory.jsonl" in page
    assert "turns          5\n" in page
    assert "first error    step 1, bash, exit_nonzero, exit 2" in page
    assert "$ make" in page
    assert "recovered: the same command worked at step 5" in page
    assert "3 times in a row (steps 1 to 3): make" in page
    assert "time           4.0s" in page
    assert "Makefile" in page


def test_json_has_every_number_and_the_aggregate(proctor: Proctor, trace: Path) -> None:
    ran = proctor("trace", "summary", trace, "--json")
    document = json.loads(ran.out)
    (found,) = document["trials"]
    assert found["trace"]["errors"]["first"]["step"] == 1
    assert found["trace"]["errors"]["first"]["command_worked_at"] == 5
    assert found["trace"]["loops"]["longest"]["times"] == 3
    assert found["reward"] is None
    assert document["experiment"]["averages"]["turns"] == {"mean": 5.0, "median": 5.0, "n": 1}


@pytest.mark.parametrize("columns", ["80", "200"])
def test_a_job_is_a_table_that_fits_and_what_it_comes_to(
    proctor: Proctor, monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    ran = proctor("trace", "summary", JOBS / "06-errors-oracle-k1")
    assert ran.code == 0
    lines = ran.out.splitlines()
    assert max(map(len, lines)) <= int(columns)
    assert lines[0].split()[:2] == ["trial", "reward"]
    assert any(
        line.startswith("causes         task 3, infrastructure 1, limit 1") for line in lines
    )
    assert "No usable trace, so not counted in means over traces: 9 trials" in lines


@pytest.mark.parametrize("columns", ["80", "200", "20"])
def test_hostile_text_reaches_no_terminal(
    proctor: Proctor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    paths = [tmp_path / f"{name}.jsonl" for name in ("one", "two")]
    for path in paths:
        path.write_text(
            entry(HOSTILE, 1, timestamp=HOSTILE)
            + entry("tool_call", 10**18, tool_name=HOSTILE, command=f"{HOSTILE} > {HOSTILE}")
            + entry("tool_result", 10**18, tool_name=HOSTILE, stderr=HOSTILE, exit_code=1)
            + "{torn \x1b[31m"
        )
    for arguments in (paths[:1], paths, [*paths, "--json"]):
        ran = proctor("trace", "summary", *arguments)
        assert ran.code == 0
        assert all(char.isprintable() or char == "\n" for char in ran.out)


def test_sealed_trials_are_summed_up_by_name_and_by_filter(
    proctor: Proctor, tmp_path: Path
) -> None:
    job = tmp_path / "job"
    for original in sorted((JOBS / "16-agent-nonzero").glob("pass-*")):
        shutil.copytree(original, job / original.name)
    made = make_ledger(tmp_path)
    seal(
        made,
        [
            each
            for trial in job.iterdir()
            for each in find_submissions(trial, SealOptions(experiment="night"))
        ],
    )
    names = sorted(trial.name for trial in job.iterdir())
    by_name = proctor("trace", "summary", "night", "--json")
    by_filter = proctor("trace", "summary", "--experiment", "night", "--json")
    assert by_name.out == by_filter.out
    trials = json.loads(by_name.out)["trials"]
    assert sorted(trial["trial_id"] for trial in trials) == names
    one = proctor("trace", "summary", names[0])
    assert one.out.startswith(f"trial          night/{names[0]}")
    none = proctor("trace", "summary", "--experiment", "other")
    assert (none.code, none.out) == (0, "no trial matches\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing-here"], "there is no such file, and no ledger"),
        ([], "not a ledger"),
        (["."], "expected"),
    ],
)
def test_what_is_not_there_gets_a_sentence(
    proctor: Proctor,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = proctor("trace", "summary", *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert message in ran.err


def test_filters_are_for_sealed_trials(proctor: Proctor, trace: Path) -> None:
    ran = proctor("trace", "summary", trace, "--where", "model=x")
    assert ran.code == 2
    assert "filters apply only to sealed trials" in ran.err


def test_a_table_at_80_columns_has_names_that_can_be_given_to_show(proctor: Proctor) -> None:
    job = JOBS / "06-errors-oracle-k1"
    lines = proctor("trace", "summary", job).out.splitlines()
    names = [line.split()[0] for line in lines[1 : lines.index("")]]
    assert all((job / name).is_dir() for name in names)
    assert max(map(len, lines)) <= 80
