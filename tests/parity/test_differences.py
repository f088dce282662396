"""Where proctor is not harbor, on purpose: both sides shown, as docs/assurance/parity.md says."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

from tests.lazy_imports import LazyModule
from tests.parity.beside import proctor, run_ours, run_theirs
from tests.parity.facts import JOBS, TASKS
from tests.parity.small_tasks import score, write_task
from tests.parity.theirs import NULL, Harbor
from tests.parity.watching import watch_result

JOB = LazyModule("harbor.models.job.config")
TRIAL = LazyModule("harbor.models.trial.config")

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "assurance" / "parity.md"


def load(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def rewards(job: Path) -> dict[str, object]:
    """The reward of every trial, by its task."""
    results = [load(path) for path in job.glob("*/result.json")]
    return {
        result["task_name"]: (result["verifier_result"] or {"rewards": {}})["rewards"].get("reward")
        for result in results
    }


def planned_tasks(job: Path) -> list[str]:
    return [trial["task"]["name"] for trial in load(job / "lock.json")["trials"]]


def test_forged_rewards_count_in_harbor_and_not_here(tmp_path: Path) -> None:
    """With --verifier-compat they count again: test_recorded_jobs.py, job 51."""
    run_ours("-p", TASKS / "tamper", "-a", "oracle", jobs=tmp_path)
    ours = rewards(tmp_path / "job")
    assert set(rewards(JOBS / "51-tamper-mounted-true").values()) == {1.0}
    assert set(ours.values()) <= {0.0, None}
    found = {
        re.sub("__.*", "", path.parent.name): {finding["code"] for finding in load(path)}
        for path in (tmp_path / "job").glob("*/findings.json")
    }
    assert {"reward-planted"} <= found["preseed-reward"]
    assert {"reward-planted"} <= found["preseed-json-beats-txt"]
    assert {"tests-planted"} <= found["plant-in-tests"]
    assert {"agent-still-busy"} <= found["background-writer"]


def test_invalid_tasks_are_named_here_and_dropped_without_a_word_there(
    harbor: Harbor, tmp_path: Path
) -> None:
    where = ("-p", TASKS / "partial", "-a", "nop")
    theirs = run_theirs(harbor, *where, jobs=tmp_path / "theirs")
    ours = run_ours(*where, jobs=tmp_path / "ours", code=3)
    left_out = ["bad-toml", "bad-type", "no-tests"]
    assert [name for name in left_out if name in theirs.said] == []
    assert [name for name in left_out if f"{name}: " in ours.out] == left_out
    assert set(rewards(tmp_path / "ours" / "job")) == set(rewards(tmp_path / "theirs" / "job"))
    # Keys that nobody reads are said here as well.
    assert "frobnicate" not in theirs.said
    assert "frobnicate" in ours.err


def test_tasks_are_sorted_by_name_here_and_as_the_directory_has_them_there(
    harbor: Harbor, tmp_path: Path
) -> None:
    tasks = tmp_path / "tasks"
    for name in ("c", "a", "d", "b"):
        write_task(tasks / name, solve="true", test=score("true"))
    where = ("-p", tasks, "-a", "nop")
    run_theirs(harbor, *where, jobs=tmp_path / "theirs", environment=NULL)
    run_ours(*where, "-e", "null", jobs=tmp_path / "ours")
    (tmp_path / "job.yaml").write_text("proctor: {task_order: directory}\n", encoding="utf-8")
    config = ("-c", tmp_path / "job.yaml")
    run_ours(*where, "-e", "null", *config, jobs=tmp_path / "again")
    as_listed = [path.name for path in tasks.iterdir()]
    assert planned_tasks(tmp_path / "theirs" / "job") == as_listed
    assert planned_tasks(tmp_path / "again" / "job") == as_listed
    assert planned_tasks(tmp_path / "ours" / "job") == ["a", "b", "c", "d"]


def test_an_agent_that_cannot_be_made_ends_its_trials_here_and_the_job_there(
    harbor: Harbor, tmp_path: Path
) -> None:
    config = tmp_path / "job.yaml"
    config.write_text(
        "n_concurrent_trials: 1\n"
        "agents:\n"
        '  - {import_path: "tests.parity.their_agents:Unmakeable"}\n'
        '  - {import_path: "tests.parity.their_agents:Scripted"}\n'
        f"datasets: [{{path: {TASKS / 'binary'}}}]\n"
    )
    theirs = run_theirs(harbor, "-c", config, jobs=tmp_path / "theirs", environment=NULL, code=1)
    assert "a setting of it is wrong" in theirs.said
    assert load(tmp_path / "theirs" / "job" / "result.json")["finished_at"] is None
    run_ours("-c", config, "-e", "null", jobs=tmp_path / "ours", code=3)
    result = load(tmp_path / "ours" / "job" / "result.json")
    assert result["finished_at"] is not None
    assert result["stats"]["n_completed_trials"] == 6
    assert result["stats"]["n_errored_trials"] == 3


def test_a_task_that_cannot_be_had_ends_its_trials_here_and_the_job_there(
    harbor: Harbor, tmp_path: Path
) -> None:
    tasks = tmp_path / "tasks"
    write_task(tasks / "plain", solve="true", test=score("true"))
    write_task(tasks / "wants-gpu", solve="true", test=score("true"), environment="gpus = 1")
    where = ("-p", tasks, "-a", "oracle", "-n", 1)
    theirs = run_theirs(harbor, *where, jobs=tmp_path / "theirs", code=1)
    assert "GPU" in theirs.said
    assert load(tmp_path / "theirs" / "job" / "result.json")["finished_at"] is None
    ours = run_ours(*where, jobs=tmp_path / "ours", code=3)
    assert "errored: 1 trial with UnsupportedError" in ours.out
    assert "gpus = 1: the sandbox has no graphics processors" in ours.out
    assert rewards(tmp_path / "ours" / "job")["plain"] == 1.0


def test_a_trial_without_a_score_is_exit_code_3_here_and_0_there(
    harbor: Harbor, tmp_path: Path
) -> None:
    where = ("-p", TASKS / "errors" / "no-solution", "-a", "oracle")
    run_theirs(harbor, *where, jobs=tmp_path / "theirs", environment=NULL, code=0)
    run_ours(*where, "-e", "null", jobs=tmp_path / "ours", code=3)
    run_ours(*where, "-e", "null", "--result-line", jobs=tmp_path / "again", code=0)


def test_on_a_timeout_the_command_and_its_group_are_dead_and_services_live_on(
    tmp_path: Path,
) -> None:
    tick = "while :; do date +%N > {}; sleep 0.05; done"
    write_task(
        tmp_path / "task",
        solve=f"setsid bash -c '{tick.format('/app/service')}' &\n"
        f"({tick.format('/app/child')}) &\n"
        # It has its whole second only once both are at work.
        "until [ -s /app/service ] && [ -s /app/child ]; do sleep 0.05; done; sleep 60",
        test="changes() { a=$(cat $1); for i in $(seq 40); do sleep 0.05; "
        '[ "$(cat $1)" != "$a" ] && return; done; return 1; }\n'
        + score("changes /app/service && ! changes /app/child"),
        agent=3,
    )
    run_ours("-p", tmp_path / "task", "-a", "oracle", jobs=tmp_path / "jobs", code=0)
    (result,) = (load(path) for path in (tmp_path / "jobs" / "job").glob("*/result.json"))
    assert result["exception_info"]["exception_type"] == "AgentTimeoutError"
    assert result["verifier_result"] == {"rewards": {"reward": 1.0}}


def test_a_trial_without_a_result_is_kept_here_and_deleted_there(
    harbor: Harbor, tmp_path: Path
) -> None:
    run_theirs(harbor, "-p", TASKS / "binary" / "pass-simple", "-a", "nop", jobs=tmp_path / "jobs")
    job = tmp_path / "jobs" / "job"
    (trial,) = (path.parent for path in job.glob("*/result.json"))
    (trial / "result.json").unlink()
    (trial / "agent" / "evidence.txt").write_text("what it did")
    spare = tmp_path / "spare"
    shutil.copytree(job, spare)
    assert harbor("job", "resume", "-p", job).code == 0
    assert list(job.rglob("evidence.txt")) == []
    shutil.rmtree(job)
    shutil.copytree(spare, job)
    assert proctor("resume", job).code == 0
    (kept,) = job.rglob("evidence.txt")
    assert kept.relative_to(job) == Path(trial.name, "attempts", "1", "agent", "evidence.txt")


def test_the_jobs_result_is_replaced_once_a_second_here_and_rewritten_in_place_there(
    harbor: Harbor, tmp_path: Path
) -> None:
    where = ("-p", TASKS / "binary", "-a", "nop", "-k", 20, "-n", 2)
    with watch_result(tmp_path / "theirs" / "job") as theirs:
        run_theirs(harbor, *where, jobs=tmp_path / "theirs", environment=NULL)
    with watch_result(tmp_path / "ours" / "job") as ours:
        run_ours(*where, "-e", "null", jobs=tmp_path / "ours")
    # 60 trials, and harbor writes at the start and at the end of each; not every write is seen.
    assert theirs.changes > 10
    assert len(theirs.files) == 1
    assert ours.changes <= ours.seconds + 3
    assert len(ours.files) > 1


def test_sets_have_one_order_here_and_any_order_there(our_job: Path) -> None:
    retry = load(our_job / "config.json")["retry"]
    assert retry["exclude_exceptions"] == sorted(JOB.RetryConfig().exclude_exceptions)
    assert isinstance(JOB.RetryConfig().exclude_exceptions, set)
    result = load(oracle_at("ms-mean", our_job) / "result.json")
    # The mean over steps has its keys in the order in which the steps brought them.
    steps = [list(step["verifier_result"]["rewards"]) for step in result["step_results"]]
    first_seen = list(dict.fromkeys(key for keys in steps for key in keys))
    assert list(result["verifier_result"]["rewards"]) == first_seen
    assert len(first_seen) > 1


def test_artifacts_of_a_step_are_seen_again_in_later_steps(our_job: Path) -> None:
    """In the recorded job the logs were mounted; without mounts harbor does as we do."""
    theirs, ours = (step_artifacts(job) for job in (JOBS / "10-multistep-oracle-mounted", our_job))
    assert theirs == {"one": {"s1.txt"}, "two": set(), "three": {"s3.txt"}}
    assert ours == {"one": {"s1.txt"}, "two": {"s1.txt"}, "three": {"s1.txt", "s3.txt"}}


def step_artifacts(job: Path) -> dict[str, set[str]]:
    """What was collected in the steps of the oracle's trial at ms-mean."""
    return {
        step.name: {path.name for path in (step / "artifacts").iterdir()} - {"manifest.json"}
        for step in (oracle_at("ms-mean", job) / "steps").iterdir()
    }


def oracle_at(task: str, job: Path) -> Path:
    """The oracle's one trial at a task."""
    agents = {
        load(trial / "result.json")["agent_info"]["name"]: trial for trial in job.glob(f"{task}__*")
    }
    return agents["oracle"]


def test_the_default_environment_is_the_sandbox_here_and_docker_there(our_job: Path) -> None:
    chosen = load(our_job / "config.json")["environment"]
    assert chosen["import_path"] == "proctor.environments.sandbox.environment:SandboxEnvironment"
    assert TRIAL.EnvironmentConfig().type.value == "docker"


def test_every_difference_of_the_page_names_tests_that_exist() -> None:
    lines = PAGE.read_text().splitlines()
    rows = [row for row in lines if row.startswith("| ") and not row.startswith("| what | ")]
    assert len(rows) > 15
    for row in rows:
        names = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", row.split(" | ")[-1])
        assert names, row
        for file, test in names:
            assert f"def {test}(" in (PAGE.parents[2] / file).read_text(), row
