"""`proctor check`: exit codes and sentences, whatever it is given."""

import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.audit.directories import COPIED
from tests.cli.programs import Proctor, run_unprivileged
from tests.record.samples import DATA, spelled, tree
from tests.task.trees import TASKS, make_task

GOOD = b'{"step": 1, "role": "user", "content": "x"}\n'
JOB = COPIED / "04-binary-scripted-k5"


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trajectory.jsonl"
    path.write_bytes(GOOD)
    return path


def test_a_good_trace_is_said_to_be(proctor: Proctor, trace: Path) -> None:
    ran = proctor("check", trace)
    said = f"{trace}: trajectory: no header, 1 entry, last step 1: 1 user: no problem\n"
    assert (ran.code, ran.out, ran.err) == (0, said, "")


def test_a_problem_is_exit_1_whatever_else_is_good(proctor: Proctor, trace: Path) -> None:
    bad = trace.with_name("bad.jsonl")
    bad.write_bytes(GOOD + b"5\n")
    ran = proctor("check", trace, bad, DATA / "g1-complete.json")
    assert ran.code == 1
    assert ran.out.splitlines()[1:3] == [
        f"{bad}: trajectory: no header, 1 entry, last step 1: 1 user: 1 problem",
        "  line 2: 5; expected a JSON object",
    ]
    document = json.loads(proctor("check", trace, bad, "--json").out)
    assert document["sound"] is False
    assert [found["sound"] for found in document["checked"]] == [True, False]


def test_what_cannot_be_opened_is_exit_2_with_a_sentence(proctor: Proctor, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "broken").symlink_to("nowhere")
    (tmp_path / "loop").symlink_to("loop")
    reasons: dict[Path | str, str] = {
        tmp_path / "missing": "No such file or directory",
        tmp_path / "fifo": "not a regular file",
        "/dev/zero": "not a regular file",
        tmp_path / "broken": "No such file or directory",
        tmp_path / "loop": "Too many levels of symbolic links",
    }
    for command in (["check"], ["show"], ["trace", "convert", "--to", "atif"]):
        for path, reason in reasons.items():
            ran = proctor(*command, path)
            said = f"proctor: {path}: cannot be read: {reason}\n"
            if command == ["show"] and not os.path.lexists(path):
                # It might have been a sealed trial.
                assert f"{path}: there is no such file, and no ledger at " in ran.err
                said = ran.err
            assert (ran.code, ran.out, ran.err) == (2, "", said)


@pytest.fixture
def readable() -> Iterator[Path]:
    """A directory that nobody can look into; pytest's own are closed to others."""
    with tempfile.TemporaryDirectory() as path:
        Path(path).chmod(0o755)
        yield Path(path)


def test_what_may_not_be_read_is_exit_2_with_a_sentence(proctor: Proctor, readable: Path) -> None:
    (readable / "file.jsonl").write_bytes(GOOD)
    (readable / "file.jsonl").chmod(0)
    (readable / "set").mkdir(mode=0)
    for words in (["check", readable / "file.jsonl"], ["task", "lint", readable / "set"]):
        ran = run_unprivileged(proctor, *words)
        assert (ran.code, ran.out) == (2, "")
        assert ran.err.endswith(": Permission denied\n")


@pytest.mark.parametrize("path", [JOB, JOB / "pass-simple__35oQqES"])
def test_a_job_is_for_audit(proctor: Proctor, path: Path) -> None:
    ran = proctor("check", path)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.endswith("; `proctor audit` checks a job with its trials\n")


def test_a_torn_document_is_exit_2(proctor: Proctor, tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    path.write_bytes((DATA / "g1-complete.json").read_bytes()[:-9])
    ran = proctor("check", path)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"proctor: {path}: torn or not JSON; expected one of: ")


def test_an_option_without_its_companion_is_refused(proctor: Proctor, trace: Path) -> None:
    ran = proctor("check", trace, "--evidence", trace.parent)
    assert (ran.code, ran.out) == (2, "")
    assert "--evidence requires" in ran.err


def test_nothing_to_check_is_wrong_use(proctor: Proctor) -> None:
    assert proctor("check").code == 2


def test_a_record_without_a_field_is_refused(proctor: Proctor, tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    document = tree()
    del document["task"]
    path.write_bytes(spelled(document))
    ran = proctor("check", path)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"proctor: {path}: ")
    assert "task" in ran.err


def test_a_record_and_its_files(proctor: Proctor, tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    document = tree()
    document["inputs"]["input_files"][0]["path"] = "in.json"
    document["outputs"]["trajectory_path"] = None
    document["outputs"]["conversation_path"] = None
    path.write_bytes(spelled(document))
    assert (
        "  not checked: 1 file that it names; pass their directory with --evidence DIR"
        in proctor("check", path).out
    )
    (tmp_path / "in.json").write_bytes(b"altered")
    ran = proctor("check", path, "--evidence", tmp_path)
    assert ran.code == 1
    assert "'in.json' has the SHA-256 " in ran.out


def test_a_dataset_names_what_harbor_passes_over(proctor: Proctor) -> None:
    ran = proctor("task", "lint", TASKS / "partial")
    assert ran.code == 1
    first, *rest = ran.out.splitlines()
    assert first.endswith(": dataset: harbor accepts 2 of 5 directories: 3 problems")
    named = [text.split(": skipped: ")[0].strip() for text in rest if "skipped: " in text]
    assert named == ["bad-toml", "bad-type", "no-tests"]


def test_a_task_by_itself(proctor: Proctor, tmp_path: Path) -> None:
    ran = proctor("task", "lint", make_task(tmp_path / "good"))
    assert ran.code == 0
    assert ": task: task_checksum " in ran.out
    assert proctor("task", "lint", make_task(tmp_path / "bad", config="x = [")).code == 1


def test_tasks_have_a_command_of_their_own(proctor: Proctor, trace: Path) -> None:
    ran = proctor("check", TASKS / "partial")
    assert (ran.code, ran.out) == (2, "")
    assert f"a dataset; `proctor task lint {TASKS / 'partial'}` checks it" in ran.err
    ran = proctor("task", "lint", trace)
    assert (ran.code, ran.out) == (2, "")
    assert "a trajectory; expected a task or a dataset of tasks" in ran.err


def test_hostile_names_and_texts_are_spelled_out(proctor: Proctor, tmp_path: Path) -> None:
    path = tmp_path / "a\x1b[31m\u202e\udcff.jsonl"
    path.write_bytes(GOOD + b'{"step": 1, "role": "\\u009b", "\\u001b\\u202e": 1}\n')
    for options in ((), ("--json",)):
        ran = proctor("check", path, *options)
        assert ran.code == 1
        raw = ran.out.replace("\n", "")
        assert raw.isprintable(), [char for char in raw if not char.isprintable()]
