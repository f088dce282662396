"""`proctor resume` as a program: what is kept, run and redone."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.agents import Unwritten
from tests.cli.programs import Proctor, Ran
from tests.cli.test_run import NULL, TASKS, Run, make_task, only_job
from tests.cli.test_run import run as run  # a fixture


@pytest.fixture
def job(run: Run, tmp_path: Path) -> Path:
    """A job of three trials that ended."""
    assert run("-p", TASKS, *NULL).code == 0
    return only_job(tmp_path)


def trials_of(job: Path) -> list[Path]:
    """The trials of a job, by name."""
    return sorted(path.parent for path in job.glob("*/config.json"))


type Resume = Callable[..., Ran]


@pytest.fixture
def resume(proctor: Proctor) -> Resume:
    """`proctor resume` in this process."""
    return lambda job, *arguments: proctor("resume", job, *arguments)


def test_a_finished_job_is_left_as_it_is(resume: Resume, job: Path) -> None:
    before = {path: path.read_bytes() for path in job.rglob("*.json")}
    ran = resume(job)
    assert ran.code == 0, ran.err
    assert "kept from before: 3 trials" in ran.out
    assert {path: path.read_bytes() for path in job.rglob("*.json")} == before


def test_what_has_no_result_is_run_and_nothing_is_lost(resume: Resume, job: Path) -> None:
    first, second, _ = trials_of(job)
    (first / "result.json").unlink()
    shutil.rmtree(second)
    dry = resume(job, "--dry-run")
    assert "3 trials: 1 to run, 1 to redo, 1 kept" in dry.out
    assert not (first / "result.json").exists()
    ran = resume(job)
    assert ran.code == 0, ran.err
    assert "nop__binary: 3 run, 3 scored" in ran.out
    assert (first / "result.json").exists()
    assert (first / "attempts" / "1" / "config.json").exists()


def test_errors_are_redone_only_when_named(run: Run, resume: Resume, tmp_path: Path) -> None:
    assert run("-p", TASKS, *NULL, "--ek", "reward=nothing").code == 3
    job = only_job(tmp_path)
    ran = resume(job, "--json")
    assert (ran.code, json.loads(ran.out)["kept"]) == (3, 3)
    ran = resume(job, "--also", "VerifierOutputParseError", "--dry-run", "--json")
    document = json.loads(ran.out)
    assert document["counts"] == {"keep": 0, "run": 0, "redo": 3}
    assert document["trials"][0]["why"] == "it ended in VerifierOutputParseError"


def test_a_job_is_gone_on_with_from_anywhere(
    resume: Resume, job: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (trials_of(job)[0] / "result.json").unlink()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert resume(Path("..") / "jobs" / job.name).code == 0


def test_a_redacted_secret_is_asked_for(run: Run, resume: Resume, tmp_path: Path) -> None:
    assert run("-p", TASKS, *NULL, "--ae", "MY_API_KEY=sk-0123456789").code == 0
    job = only_job(tmp_path)
    (trials_of(job)[0] / "result.json").unlink()
    ran = resume(job)
    assert (ran.code, ran.out) == (2, "")
    assert "MY_API_KEY" in ran.err
    dry = resume(job, "--dry-run")
    assert (dry.code, dry.err) == (0, "")
    assert "3 trials: 0 to run, 1 to redo, 2 kept" in dry.out
    assert resume(job, "--ae", "MY_API_KEY=sk-0123456789").code == 0


def test_a_variable_that_is_not_set_any_more_is_named_with_its_place_and_what_to_type(
    run: Run, resume: Resume, tmp_path: Path
) -> None:
    assert run("-p", TASKS, *NULL, "--ve", "GRADER=${GRADER_URL}", GRADER_URL="here").code == 0
    job = only_job(tmp_path)
    (trials_of(job)[0] / "result.json").unlink()
    ran = resume(job)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == (
        f"proctor: {job}/config.json: GRADER_URL is not set among the host's variables, from which "
        "the job takes it: verifier.env.GRADER is ${GRADER_URL}. "
        f"Type: GRADER_URL=… proctor resume {job}\n"
    )
    assert resume(job, "--dry-run").code == 0


def test_a_variable_that_tasks_want_is_not_promised_an_option_that_resume_has_not(
    run: Run, resume: Resume, tmp_path: Path
) -> None:
    task = make_task(tmp_path / "task", **{"verifier.env": 'URL = "${TASK_URL}"'})
    assert run("-p", task, *NULL, "--yes", TASK_URL="here").code == 0
    job = only_job(tmp_path)
    (trials_of(job)[0] / "result.json").unlink()
    ran = resume(job)
    assert (ran.code, "--env-file" in ran.err) == (2, False)
    assert "1 variable missing, TASK_URL first; export what is missing" in ran.err


def test_a_class_that_is_no_agent_any_more_is_said_and_no_trial_begun(
    run: Run, resume: Resume, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = ("--agent-import-path", "tests.cli.agents:Talker")
    assert run("-p", TASKS, "-e", "null", *named).code == 0
    job = only_job(tmp_path)
    (trials_of(job)[0] / "result.json").unlink()
    monkeypatch.setattr("tests.cli.agents.Talker", Unwritten)
    ran = resume(job)
    assert ran.code == 2
    assert "tests.cli.agents:Talker: has no run; expected an agent" in ran.err
    assert not (trials_of(job)[0] / "attempts").exists()


def test_the_result_line_is_last(resume: Resume, job: Path) -> None:
    ran = resume(job, "--result-line")
    assert ran.code == 0
    assert ran.out.splitlines()[-1].startswith("BASE_BENCHMARK_RESULT=")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere"], "no such directory"),
        ([str(TASKS)], "no config.json in it"),
        (["x", "-n", "0"], "expected a whole number from 1 on, or auto"),
        (["x", "--ae", "A"], "--ae: A has no value"),
        (["x", "--json", "--result-line"], "--json cannot be combined with --result-line"),
    ],
)
def test_bad_use_is_a_sentence(proctor: Proctor, arguments: list[str], said: str) -> None:
    ran = proctor("resume", *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert said in " ".join(ran.err.split())
