"""`proctor run` as a program: job directories, exit codes, and what is printed."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from proctor.cli.run import command as run_command
from proctor.cli.running.flags import RunFlags
from proctor.digest import sha256_hex
from proctor.record.outcome import PREFIX
from tests.cli.programs import Proctor, Ran, run_child

TASKS = Path(__file__).parent.parent / "data" / "harbor" / "tasks" / "binary"
NULL = ("-e", "null", "-a", "nop")


type Run = Callable[..., Ran]


@pytest.fixture
def run(tmp_path: Path, proctor: Proctor, monkeypatch: pytest.MonkeyPatch) -> Run:
    """`proctor run` in this process, its jobs below tmp_path, with these variables."""

    def run_here(*arguments: object, **env: str) -> Ran:
        with monkeypatch.context() as patch:
            for name, value in env.items():
                patch.setenv(name, value)
            return proctor("run", "-o", tmp_path / "jobs", *arguments)

    return run_here


def only_job(where: Path) -> Path:
    """The one job that is there."""
    (job,) = (where / "jobs").iterdir()
    return job


def load(path: Path) -> Any:
    return json.loads(path.read_text())


def make_task(directory: Path, **tables: str) -> Path:
    """A small task; tables are lines of task.toml."""
    for name, text in {
        "instruction.md": "Do it.\n",
        "environment/Dockerfile": "FROM scratch\n",
        "tests/test.sh": "echo 1 > /logs/verifier/reward.txt\n",
        "task.toml": "".join(f"[{table}]\n{text}\n" for table, text in tables.items()),
    }.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return directory


def test_every_option_of_run_is_a_flag_with_the_value_that_click_gives_it() -> None:
    given = run_command.make_context("run", ["-p", "tasks", "--no-gateway"]).params
    assert set(given) == set(RunFlags.__struct_fields__)
    flags = RunFlags(**given)
    assert (flags.path, flags.gateway, flags.clean_room) == (Path("tasks"), False, True)


def test_a_run_leaves_a_job_that_adds_up(run: Run, tmp_path: Path) -> None:
    ran = run("-p", TASKS, *NULL, "-k", "2", "--job-name", "nightly")
    assert ran.code == 0, ran.err
    job = only_job(tmp_path)
    assert job.name == "nightly"
    result = load(job / "result.json")
    assert (result["n_total_trials"], result["stats"]["n_completed_trials"]) == (6, 6)
    assert load(job / "config.json")["n_attempts"] == 2
    assert load(job / "lock.json")["invocation"][1] == "run"
    lines = ran.out.splitlines()
    assert lines[0].startswith("nightly: done after ")
    assert "nop__binary: 6 run, 6 scored, 0 errored, 0 missing (counted as 0)" in lines
    assert "  mean    1" in lines
    assert "  pass@2  1" in lines
    # The one group accounts for all that was planned.
    assert not any(line.startswith("trials: ") for line in lines)
    assert f"  proctor view {job}" in lines
    assert f"  proctor audit {job}" in lines


def test_without_a_terminal_each_trial_is_a_plain_line_on_stderr(run: Run, tmp_path: Path) -> None:
    ran = run("-p", TASKS, *NULL)
    assert "3 trials" in ran.err.splitlines()
    ended = [line for line in ran.err.splitlines() if line.startswith("[")]
    assert [line.partition("]")[0] for line in ended] == ["[1/3", "[2/3", "[3/3"]
    assert all(": reward 1" in line for line in ended)
    assert "\x1b" not in ran.err + ran.out


def test_an_attempt_that_is_retried_is_said_and_not_counted(run: Run, tmp_path: Path) -> None:
    flaky = ("--agent-import-path", "tests.job.agents:Flaky", "--ak", "fails=1", "-r", "1")
    ran = run("-p", make_task(tmp_path / "one"), "-e", "null", *flaky)
    assert ran.code == 0, ran.err
    planned, failed, ended = ran.err.splitlines()
    trial = failed.partition(":")[0]
    assert planned == "1 trial"
    assert failed == (
        f"{trial}: attempt 1 failed: ConnectionError (flaky failure 1); retrying in 1.0s"
    )
    assert ended.startswith(f"[1/1] {trial}: reward 1, ")
    assert (only_job(tmp_path) / trial / "attempts" / "1" / "result.json").exists()


def test_quiet_shows_no_trial(run: Run, tmp_path: Path) -> None:
    ran = run("-p", TASKS, *NULL, "-q")
    assert (ran.code, "[1/3]" in ran.err) == (0, False)
    assert "nop__binary: 3 run" in ran.out
    assert load(only_job(tmp_path) / "config.json")["quiet"] is True


def test_debug_says_every_phase(run: Run) -> None:
    err = run("-p", TASKS, *NULL, "--debug", "-l", "1").err
    phases = [line.partition(": ")[2] for line in err.splitlines() if "oracle-wrong__" in line]
    assert phases[0] == "setup"
    assert "verify" in phases


def test_json_is_one_document_that_adds_up(run: Run, tmp_path: Path) -> None:
    ran = run("-p", TASKS, *NULL, "--json")
    document = json.loads(ran.out)
    assert ran.code == 0
    assert document["directory"] == str(only_job(tmp_path))
    parts = document["denominators"]
    assert parts["planned"] == parts["run"] + parts["not_run"] == 3
    assert parts["run"] == parts["scored"] + parts["zero_by_missing"]
    assert document["groups"]["nop__binary"]["metrics"] == [{"mean": 1.0}]
    assert document["stats"] == load(only_job(tmp_path) / "result.json")["stats"]
    assert (document["refused"], document["interrupted"]) == ([], False)


def test_the_result_line_is_last_and_the_code_is_harbors(run: Run, tmp_path: Path) -> None:
    ran = run("-p", TASKS, *NULL, "--ek", "reward=nothing", "--result-line")
    assert ran.code == 0
    line = ran.out.splitlines()[-1]
    assert line.startswith(PREFIX)
    assert json.loads(line.removeprefix(PREFIX)) == {
        "reason_code": None,
        "resolved": 0,
        "score": 0.0,
        "status": "failed",
        "total": 3,
    }


def test_unscored_trials_are_exit_code_3_and_counted(run: Run, tmp_path: Path) -> None:
    ran = run("-p", TASKS, *NULL, "--ek", "reward=nothing")
    assert ran.code == 3
    assert (
        "nop__binary: 3 run, 0 scored, 3 errored (scored or not), 3 missing (counted as 0)"
        in ran.out
    )
    assert "VerifierOutputParseError  3 trials" in ran.out
    assert "--also VerifierOutputParseError" in ran.out
    assert "errored: 3 trials with VerifierOutputParseError" in ran.out
    # The messages differ only in the names of the trials, so one example stands for all.
    (example,) = re.findall(r"^  (\S+): Failed to parse", ran.out, re.MULTILINE)
    whole = (
        rf"    verifier says:\n    \S.*\n    whole text: .*{example}/verifier/test-stdout\.txt\n"
    )
    assert re.search(whole, ran.out)


@pytest.mark.process
def test_a_partial_record_names_the_missing_pin_and_its_flag(
    run: Run, proctor: Proctor, tmp_path: Path
) -> None:
    """run, show and check say the same; the flag makes the record complete."""
    agent = ("--agent-import-path", "tests.cli.agents:Unversioned", "-e", "null")
    ledger = ("--ledger", tmp_path / "ledger")
    ran = run("-p", make_task(tmp_path / "one"), *agent, *ledger)
    why = (
        "agent.adapter_revision is missing; "
        "pass --agent-version-command CMD to `proctor run`, such as 'git rev-parse HEAD'"
    )
    assert "0 sealed, 1 diagnostic\npartial records (diagnostic): 1 trial, one__" in ran.out
    assert f"\n  {why}\n" in ran.out
    (record,) = tmp_path.glob("jobs/*/one__*/record.json")
    for shown in (
        proctor("show", record),
        proctor("show", record.parent),
        proctor("check", record),
        proctor("show", record.parent.name, "--ledger", tmp_path / "ledger"),
    ):
        assert why in shown.out
    mended = run("-p", tmp_path / "one", *agent, *ledger, "--agent-version-command", "echo v1")
    assert "1 sealed\n\n" in mended.out


def test_a_plain_command_pins_itself(run: Run, tmp_path: Path) -> None:
    """The simplest way to run an agent gives a complete record."""
    command = "echo 42 > /app/answer.txt"
    ran = run("-p", make_task(tmp_path / "one"), "-e", "null", "--command", command)
    (path,) = tmp_path.glob("jobs/*/one__*/record.json")
    record = json.loads(path.read_text())
    assert record["completeness"] == "complete", ran.out
    assert record["agent"]["adapter_revision"] == f"command:sha256:{sha256_hex(command.encode())}"


def test_without_verification_nothing_is_too_few(run: Run, tmp_path: Path) -> None:
    ran = run("-p", TASKS, *NULL, "--disable-verification")
    assert ran.code == 0, ran.out
    assert "0 scored" in ran.out


def test_a_bad_task_is_named_and_the_rest_runs(run: Run, tmp_path: Path) -> None:
    tasks = tmp_path / "tasks"
    make_task(tasks / "good")
    make_task(tasks / "bad", agent="timeout_sec = 'soon'")
    ran = run("-p", tasks, *NULL)
    assert ran.code == 3
    assert "refused (not counted): 1 task" in ran.out
    assert "  bad: " in ran.out
    assert "nop__tasks: 1 run, 1 scored" in ran.out
    document = json.loads(run("-p", tasks, *NULL, "--json").out)
    assert [task["name"] for task in document["refused"]] == ["bad"]


def test_strict_tasks_refuses_the_job(run: Run, tmp_path: Path) -> None:
    tasks = tmp_path / "tasks"
    make_task(tasks / "good")
    make_task(tasks / "bad", agent="timeout_sec = 'soon'")
    (tmp_path / "job.yaml").write_text("proctor: {strict_tasks: true}\n")
    ran = run("-p", tasks, *NULL, "-c", tmp_path / "job.yaml")
    assert (ran.code, ran.out) == (2, "")
    assert "bad" in ran.err
    assert not (tmp_path / "jobs").exists()


def test_an_empty_directory_is_a_sentence(run: Run, tmp_path: Path) -> None:
    (tmp_path / "tasks").mkdir()
    ran = run("-p", tmp_path / "tasks", *NULL)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("proctor: ")
    assert not (tmp_path / "jobs").exists()


def test_one_faulty_task_is_refused_by_its_reason(run: Run, tmp_path: Path) -> None:
    make_task(tmp_path / "task")
    (tmp_path / "task" / "instruction.md").unlink()
    ran = run("-p", tmp_path / "task", *NULL)
    assert (ran.code, ran.out) == (2, "")
    assert "no instruction.md" in ran.err


def test_a_config_file_with_overrides_runs(run: Run, tmp_path: Path) -> None:
    config = tmp_path / "job.yaml"
    config.write_text(
        f"job_name: from-file\nn_attempts: 5\nagents: [{{name: oracle}}]\n"
        f"environment: {{type: 'null', kwargs: {{reward: 0}}}}\ndatasets: [{{path: {TASKS}}}]\n"
    )
    ran = run("-c", config, "-a", "nop", "-k", "1", "--ek", "reward=1", "-l", "2")
    assert ran.code == 2, "-l chooses from a dataset on the command line"
    ran = run("-c", config, "-a", "nop", "-k", "1", "--ek", "reward=1")
    assert ran.code == 0, ran.err
    assert "nop__binary: 3 run, 3 scored" in ran.out
    assert "  mean  1\n" in ran.out
    assert only_job(tmp_path).name == "from-file"


def test_a_dry_run_says_what_would_run_and_writes_nothing(run: Run, tmp_path: Path) -> None:
    ran = run("-p", TASKS, *NULL, "-k", "2", "--dry-run", "-n", "auto", COLUMNS="200")
    assert ran.code == 0, ran.err
    assert "6 trials: 6 to run, 0 to redo, 0 kept" in ran.out
    assert "environment: null, --env null" in ran.out
    heading = "task image download network memory storage time GPUs runs here"
    assert " ".join(ran.out.split("\n\n")[1].splitlines()[0].split()) == heading
    assert list(tmp_path.iterdir()) == []
    document = json.loads(run("-p", TASKS, *NULL, "--dry-run", "--json").out)
    assert document["counts"] == {"keep": 0, "run": 3, "redo": 0}
    assert [trial["task"] for trial in document["trials"]] == sorted(
        task.name for task in TASKS.iterdir()
    )
    assert list(tmp_path.iterdir()) == []


def test_two_jobs_of_one_second_are_two_jobs(run: Run, tmp_path: Path) -> None:
    tasks = make_task(tmp_path / "tasks" / "one").parent
    for _ in range(3):
        assert run("-p", tasks, *NULL, "-q").code == 0
    assert len(list((tmp_path / "jobs").iterdir())) == 3


WANTING = {"environment.env": 'A = "${PROCTOR_TEST_A}"', "verifier.env": 'B = "${B_VAR:-x}"'}


def test_a_variable_that_is_missing_is_said_before_anything_is_created(
    run: Run, tmp_path: Path
) -> None:
    tasks = make_task(tmp_path / "tasks" / "one", **WANTING).parent
    ran = run("-p", tasks, *NULL, "-y")
    assert (ran.code, ran.out) == (2, "")
    assert "  PROCTOR_TEST_A  [environment.env]" in ran.err.splitlines()
    assert not (tmp_path / "jobs").exists()


def test_without_a_terminal_tasks_get_variables_only_with_yes(run: Run, tmp_path: Path) -> None:
    tasks = make_task(tmp_path / "tasks" / "one", **WANTING).parent
    ran = run("-p", tasks, *NULL, PROCTOR_TEST_A="1")
    assert (ran.code, ran.out) == (2, "")
    assert "pass --yes to allow them" in ran.err
    assert not (tmp_path / "jobs").exists()
    assert run("-p", tasks, *NULL, "-y", PROCTOR_TEST_A="1").code == 0


def test_variables_of_an_env_file_are_not_asked_about(tmp_path: Path) -> None:
    tasks = make_task(tmp_path / "tasks" / "one", **WANTING).parent
    (tmp_path / "env").write_text("PROCTOR_TEST_A=1\nexport B_VAR='2'\n")
    flags = ["-o", tmp_path / "jobs", "-p", tasks, *NULL, "--env-file", tmp_path / "env"]
    assert run_child("run", *flags).code == 0


def test_secrets_are_in_no_file_of_the_job(run: Run, tmp_path: Path) -> None:
    secret = "-".join(["sk", "0123456789abcdef"])
    flags = ["--ae", f"MY_API_KEY={secret}", "--ve", f"OTHER_TOKEN={secret}"]
    assert run("-p", TASKS, *NULL, *flags).code == 0
    holding = [
        path
        for path in only_job(tmp_path).rglob("*")
        if path.is_file() and secret.encode() in path.read_bytes()
    ]
    assert holding == []


@pytest.mark.parametrize(
    ("settings", "named"), [("{}", "small@1.2"), ("{dataset_id: mine@3}", "mine@3")]
)
def test_a_dataset_of_a_registry_is_in_the_record_by_name_and_version(
    run: Run, tmp_path: Path, settings: str, named: str
) -> None:
    task = {"name": "one", "path": str(make_task(tmp_path / "one"))}
    registry = [{"name": "small", "version": "1.2", "description": "", "tasks": [task]}]
    (tmp_path / "registry.json").write_text(json.dumps(registry))
    where = ("-d", "small@1.2", "--registry-path", tmp_path / "registry.json")
    (tmp_path / "job.yaml").write_text(f"proctor: {settings}\n")
    ran = run(*where, *NULL, "-c", tmp_path / "job.yaml")
    assert ran.code == 0, ran.err
    (record,) = only_job(tmp_path).glob("*/record.json")
    assert load(record)["dataset_id"] == named


def test_each_model_is_one_more_agent(run: Run, tmp_path: Path) -> None:
    ran = run("-p", TASKS, *NULL, "-m", "p/one", "-m", "p/two")
    assert ran.code == 0
    assert "nop__one__binary: 3 run" in ran.out
    assert "nop__two__binary: 3 run" in ran.out


def test_hostile_names_never_reach_the_terminal(run: Run, tmp_path: Path) -> None:
    name = "a\x1b[31mb"
    make_task(tmp_path / "tasks" / "good")
    make_task(tmp_path / "tasks" / name, agent="timeout_sec = 'x'")
    ran = run("-p", tmp_path / "tasks", *NULL)
    assert "\x1b" not in ran.out + ran.err
    assert r"a\x1b[31mb" in ran.out
