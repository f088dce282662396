"""What people and programs see; hostile text is shown, never sent."""

import json
import os
import pty
import re
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from proctor.cli.ledger.progress import reading_progress
from proctor.cli.output import print_json
from proctor.sentence import printable
from tests.audit.directories import COPIED, copy_job, edit_json, find_trial, make_job, publish
from tests.cli.programs import Proctor, command_line, environment, run_child

JOB = COPIED / "01-binary-oracle-k1"
HOSTILE = "a\x1b[31mred\x1b]0;title\x07\n\r\x08\x7f\x9b2J\u202e\u2028z"
CONTROLS = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e]")


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A job whose every name was made to harm a terminal."""
    job = make_job(tmp_path / "job\x1b[2J\n", {"a": ["1"], "b": ["0"]})
    names = {
        "trial_name": HOSTILE,
        "task_name": HOSTILE,
        "source": HOSTILE,
        "agent_info": {"name": HOSTILE, "model_info": {"name": HOSTILE}},
        "exception_info": {"exception_type": HOSTILE},
        "config": {"job_id": HOSTILE, "verifier": {"import_path": HOSTILE}},
        "task_checksum": HOSTILE,
    }
    edit_json(find_trial(job, "a") / "result.json", lambda found: found.update(names))
    (find_trial(job, "b") / "verifier" / "reward.json").write_text(json.dumps({HOSTILE: 1}))
    publish(job)
    edit_json(job / "result.json", lambda result: result.update(id="ours"))
    edit_json(
        job / "result.json",
        lambda result: result["stats"]["evals"].update({HOSTILE: {"metrics": [{HOSTILE: 1}]}}),
    )
    return job


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain ünïcödé 測", "plain ünïcödé 測"),
        ("\x1b[31m", r"\x1b[31m"),
        ("a\nb\tc\r", r"a\nb\tc\r"),
        ("\x9b\x7f", r"\x9b\x7f"),
        ("\u202e", r"\u202e"),
        ("\udc80", r"\udc80"),
        ("\U000e0001", r"\U000e0001"),
    ],
)
def test_control_characters_are_spelled_out(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_no_control_character_of_a_job_reaches_the_terminal(
    proctor: Proctor, hostile: Path, tmp_path: Path
) -> None:
    certificate = tmp_path / "c\x1b[2J.json"
    commands: list[list[object]] = [
        ["score", hostile, "--explain", "--certificate", certificate],
        ["score", hostile, hostile],
        ["audit", hostile],
        ["audit", hostile, "--against", JOB],
        ["audit", JOB, "--against", hostile],
        ["check", certificate],
        ["check", hostile],
        ["outcome", hostile],
        ["outcome", "--reason", HOSTILE],
        ["score", hostile / HOSTILE],
    ]
    for arguments in commands:
        for flag in ([], ["--json"]):
            ran = proctor(*arguments, *flag)
            assert ran.code in (0, 1, 2, 3)
            assert "defect" not in ran.err
            assert not CONTROLS.search(ran.out), arguments
            assert not CONTROLS.search(ran.err), arguments


def test_a_hostile_name_cannot_forge_a_line(proctor: Proctor, hostile: Path) -> None:
    lines = proctor("audit", hostile).out.splitlines()
    assert lines[0].startswith(f"{printable(str(hostile))}: ")
    assert all(line.startswith("  ") for line in lines[1:])


def test_json_keeps_hostile_text_exactly(
    hostile: Path, proctor: Proctor, capsys: pytest.CaptureFixture[str]
) -> None:
    document = json.loads(proctor("score", hostile, "--json").out)
    assert HOSTILE in {trial["trial"] for trial in document["trials"]}
    print_json({"text": "測 \x9b\U000e0001"})
    out = capsys.readouterr().out
    assert out == '{\n  "text": "測 \\u009b\\udb40\\udc01"\n}\n'
    assert json.loads(out) == {"text": "測 \x9b\U000e0001"}


def test_a_table_heading_is_no_markup(proctor: Proctor, tmp_path: Path) -> None:
    left = make_job(tmp_path / "[bold]left[", {"a": ["1"]})
    right = make_job(tmp_path / "[red]", {"[red]a": ["1"]})
    heading, *rows = proctor("audit", left, "--against", right).out.splitlines()
    assert heading.split() == ["task", "attempt", "what", "[bold]left[", "[red]"]
    assert any(row.startswith("[red]a ") for row in rows)


def on_a_terminal(*arguments: object, **changes: str) -> str:
    """What a command writes to a terminal."""
    leader, follower = pty.openpty()
    with subprocess.Popen(
        command_line(*arguments), env=environment(**changes), stdout=follower, stderr=follower
    ):
        os.close(follower)
        seen = b""
        try:
            while data := os.read(leader, 65536):
                seen += data
        except OSError:  # Linux says so when the last writer has gone
            pass
    os.close(leader)
    return seen.decode()


def test_tables_have_no_escape_codes_on_a_terminal() -> None:
    arguments = ["audit", JOB, "--against", COPIED / "02-binary-nop-k1"]
    shown = on_a_terminal(*arguments, TERM="xterm", COLUMNS="120")
    assert shown.split()[:3] == ["task", "attempt", "what"]
    assert "\x1b" not in shown


@pytest.mark.parametrize("columns", ["80", "200"])
@pytest.mark.parametrize("name", ["01-binary-oracle-k1", "42-config-multi"])
def test_numbers_are_never_cut_by_a_narrow_terminal(name: str, columns: str) -> None:
    narrow = run_child("score", COPIED / name, env={"COLUMNS": columns})
    assert narrow == run_child("score", COPIED / name, env={"COLUMNS": "1000"})


def test_the_language_of_the_machine_does_not_matter(tmp_path: Path) -> None:
    job = make_job(tmp_path / "測", {"ünï": ["0.5"]})
    ran = run_child(
        "score", job, env={"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    )
    assert ran.code == 0
    assert "  mean  0.5" in ran.out


def test_progress_is_silent_where_nobody_looks(capsys: pytest.CaptureFixture[str]) -> None:
    watch = reading_progress("job")
    watch(1, 1)
    assert capsys.readouterr() == ("", "")


def test_progress_is_shown_on_a_terminal_after_a_second(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter([0.0, 0.5, 1.5, 2.5])
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    # Only the module's clock: servers of other tests run in threads, and ask time.monotonic too.
    ours = SimpleNamespace(monotonic=lambda: next(clock))
    monkeypatch.setattr("proctor.cli.ledger.progress.time", ours)
    watch = reading_progress("job\x1b")
    watch(500, 1500)
    assert capsys.readouterr().err == ""
    watch(1000, 1500)
    shown = capsys.readouterr().err
    assert shown.startswith("\r")
    assert r"░ job\x1b 1,000 of 1,500" in shown
    watch(1500, 1500)
    assert "1,500 of 1,500" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["score", JOB],
        ["audit", JOB],
        ["audit", JOB, "--against", JOB],
    ],
)
def test_whatever_reads_all_trials_shows_progress(
    proctor: Proctor,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    arguments: list[object],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.setattr("proctor.cli.ledger.progress._SHOW_AFTER_SECONDS", 0)
    shown = proctor(*arguments).err.count(f"{JOB} 3 of 3")
    assert shown == arguments.count(JOB)


def test_hostile_names_in_a_real_job_are_told_apart(proctor: Proctor, tmp_path: Path) -> None:
    job = copy_job("01-binary-oracle-k1", tmp_path)
    trial = find_trial(job, "oracle-wrong")
    trial.rename(job / "oracle-wrong\n  edited-metric  result.json")
    ran = proctor("audit", job)
    assert ran.code == 1
    assert "edited-metric" not in {line.strip().partition(" ")[0] for line in ran.out.splitlines()}


def run_into(stdout: int, *arguments: object) -> tuple[int, str]:
    """Exit code and stderr of a command whose stdout is this descriptor, which is then closed."""
    try:
        done = subprocess.run(
            command_line(*arguments),
            env=environment(),
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
        )
    finally:
        os.close(stdout)
    return done.returncode, done.stderr


PRINTING = pytest.mark.parametrize(
    "arguments",
    [
        ["score", JOB],
        ["score", JOB, "--json"],
        ["audit", COPIED / "29-passk-20", "--against", COPIED / "29-passk-20"],
        ["--help"],
        ["score", "--help"],
        ["--version"],
    ],
)


@PRINTING
def test_what_has_no_reader_goes_nowhere(arguments: list[object]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    assert run_into(writer, *arguments) == (0, "")


@PRINTING
def test_what_cannot_be_written_is_said(arguments: list[object]) -> None:
    message = "proctor: standard output: cannot be written: No space left on device\n"
    assert run_into(os.open("/dev/full", os.O_WRONLY), *arguments) == (2, message)
