"""Jobs in containers: the shared tasks as harbor recorded them, and bad luck said in a sentence."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.cli.programs import Proctor, run_child, run_here
from tests.environments.docker.engine import Engine
from tests.environments.ghosts import leave_ghost
from tests.ordinary_user import environment, ordinary_home, run_as_ordinary_user
from tests.parity.beside import run_ours
from tests.parity.facts import JOBS, TASKS, load_facts, load_groups
from tests.parity.shared import made_once
from tests.task.trees import write

RECORDED = (
    *("01-binary-oracle-k1", "06-errors-oracle-k1", "10-multistep-oracle-mounted"),
    *("12-nan-oracle", "13-single-task-adhoc", "40-dataset-name-dunder"),
)
SETS = ("binary", "multistep", "errors", "my__set", "nan")
DOCKER = ("-e", "docker", "--ek", "network=host")
TASK = {
    "task.toml": '[environment]\nnetwork_mode = "no-network"\n',
    "instruction.md": "Do it.\n",
    "environment/Dockerfile": "FROM small:1\nWORKDIR /app\n",
    "tests/test.sh": "echo 1 > /logs/verifier/reward.txt\n",
    "solution/solve.sh": "true\n",
}

pytestmark = pytest.mark.usefixtures("cache", "engine")


@pytest.fixture
def proctor(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Proctor:
    return run_here(monkeypatch, capsys)


def run_sets(place: Path, *sets: str, agents: str = "{name: oracle}") -> None:
    """Run agents at every task of some sets, and at one task by itself."""
    lines = ["n_concurrent_trials: 2", "quiet: true", f"agents: [{agents}]"]
    lines += ["tasks:", f"  - path: {TASKS / 'binary' / 'pass-simple'}", "datasets:"]
    lines += [f"  - path: {TASKS / each}" for each in sets]
    (place / "job.yaml").write_text("\n".join(lines) + "\n")
    run_ours("-c", place / "job.yaml", *DOCKER, "--no-ledger", jobs=place)


def assert_as_recorded(name: str, job: Path) -> None:
    recorded, made = load_facts(JOBS / name), load_facts(job)
    assert recorded == {key: made[key] for key in recorded}
    groups, ours = load_groups(JOBS / name)["evals"], load_groups(job)["evals"]
    assert groups == {key: ours[key] for key in groups}


@pytest.fixture(scope="session")
def our_job(shared_engine: Engine, cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The oracle at the tasks that most of harbor's recorded jobs are of; run by one worker."""
    assert cache.exists()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOCKER_HOST", shared_engine.host)
        place = made_once(tmp_path_factory, "docker", lambda place: run_sets(place, *SETS))
    return place / "job"


@pytest.mark.parametrize("name", RECORDED)
def test_the_shared_tasks_come_out_as_harbor_recorded_them(name: str, our_job: Path) -> None:
    assert_as_recorded(name, our_job)


@pytest.mark.soak
def test_all_shared_tasks_come_out_as_harbor_recorded_them(tmp_path: Path) -> None:
    run_sets(tmp_path, *SETS, "rewards", "partial", agents="{name: oracle}, {name: nop}")
    for name in (*RECORDED, "02-binary-nop-k1", "05-rewards-oracle-k1"):
        assert_as_recorded(name, tmp_path / "job")


def test_its_files_are_harbors_own(our_job: Path) -> None:
    config = json.loads((our_job / "config.json").read_text())["environment"]
    assert (config["type"], config["import_path"]) == ("docker", None)
    record = json.loads(next(our_job.glob("pass-simple*/record.json")).read_text())
    assert record["environment"]["compute_backend"] == "docker"
    assert "@sha256:" in record["environment"]["runtime_image"]


def test_cheaters_do_not_score_as_under_harbor(tmp_path: Path) -> None:
    run_ours("-p", TASKS / "tamper", "-a", "oracle", *DOCKER, "--no-ledger", jobs=tmp_path)
    rewards = {
        each["task_name"]: (each["verifier_result"] or {}).get("rewards")
        for each in map(load_result, sorted((tmp_path / "job").glob("*/result.json")))
    }
    assert all(reward in (None, {"reward": 0.0}) for reward in rewards.values()), rewards
    codes = [
        finding["code"]
        for path in (tmp_path / "job").glob("*/findings.json")
        for finding in json.loads(path.read_text())
    ]
    assert {"reward-planted", "tests-planted", "agent-still-busy"} <= set(codes)


ON_X86 = pytest.mark.skipif(os.uname().machine != "x86_64", reason="the ghost is for x86-64")


@ON_X86
def test_a_process_whose_first_thread_ended_is_found(tmp_path: Path) -> None:
    run_one(tmp_path, {"solution/solve.sh": leave_ghost("/app/ghost")}, code=0)
    (path,) = (tmp_path / "job").glob("*/findings.json")
    finding, made = json.loads(path.read_text())
    assert finding["code"] == "agent-still-busy"
    # The change record of the container says whose program it is.
    assert made["code"] == "agent-program-running"
    (left,) = finding["detail"]["processes"]
    assert left.pop("pid") > 1
    assert left == {
        "command": "/app/ghost",
        "executable": "/app/ghost",
        "script": None,
        "listens": False,
    }


def load_result(path: Path) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(path.read_text())
    return result


def run_one(
    tmp_path: Path, files: dict[str, str], *options: object, code: int = 3
) -> dict[str, Any]:
    """Run one trial of a small task with some files changed; its result."""
    write(tmp_path / "task", {**TASK, **files})
    agent = () if "--command" in options else ("-a", "oracle")
    where = ("-p", tmp_path / "task", "-e", "docker", "--no-ledger")
    run_ours(*where, *agent, *options, jobs=tmp_path, code=code)
    (path,) = (tmp_path / "job").glob("*/result.json")
    return load_result(path)


def test_a_build_that_fails_half_way_leaves_nothing_and_says_its_last_lines(
    tmp_path: Path, engine: Engine
) -> None:
    failing = r"RUN printf '\033[31mabout to fail\033[0m\n' && exit 7"
    dockerfile = f"FROM small:1\nRUN echo first > /first\n{failing}\n"
    before = set(engine.lines_of("images", "--quiet"))
    result = run_one(tmp_path, {"environment/Dockerfile": dockerfile})
    error = result["exception_info"]
    assert error["exception_type"] == "RuntimeError"
    first, _, rest = error["exception_message"].partition("\n")
    assert "docker build failed: " in first
    assert "about to fail" in rest
    assert "\x1b" not in error["exception_message"]
    assert set(engine.lines_of("images", "--quiet")) <= before
    log = next((tmp_path / "job").glob("*/trial.log")).read_text()
    assert failing in log


def test_an_image_that_does_not_exist_errs_the_trial(tmp_path: Path) -> None:
    toml = '[environment]\ndocker_image = "proctor.invalid/none:1"\nnetwork_mode = "no-network"\n'
    result = run_one(tmp_path, {"task.toml": toml})
    assert result["exception_info"]["exception_type"] == "ImageError"
    assert "proctor.invalid/none:1" in result["exception_info"]["exception_message"]


def test_an_agent_that_never_returns_is_ended_and_verified(tmp_path: Path) -> None:
    toml = '[environment]\nnetwork_mode = "no-network"\n[agent]\ntimeout_sec = 2.0\n'
    result = run_one(tmp_path, {"task.toml": toml}, "--command", "sleep 600 & sleep 601", code=0)
    assert result["exception_info"]["exception_type"] == "AgentTimeoutError"
    assert result["verifier_result"]["rewards"] == {"reward": 1.0}


@pytest.mark.parametrize(
    "agent", ["kill -9 -1; sleep 1", "setsid bash -c 'kill -9 -1' >/dev/null 2>&1 &"]
)
def test_an_agent_that_ends_its_container_gets_no_retry_by_it(tmp_path: Path, agent: str) -> None:
    result = run_one(tmp_path, {}, "--command", agent, "-r", 1)
    assert result["exception_info"]["exception_type"] == "ContainerDiedError"
    assert not list((tmp_path / "job").glob("*/attempts"))


def test_a_verifier_of_its_own_gets_the_artifacts_alone(tmp_path: Path) -> None:
    toml = (
        'artifacts = ["/app/answer"]\n[environment]\nnetwork_mode = "no-network"\n'
        '[environment.healthcheck]\ncommand = "test -d /app"\n'
        '[verifier]\nenvironment_mode = "separate"\n'
        '[verifier.environment]\nnetwork_mode = "no-network"\n'
    )
    result = run_one(
        tmp_path,
        {
            "task.toml": toml,
            "solution/solve.sh": "echo 42 > /app/answer; echo 1 > /app/other\n",
            "tests/Dockerfile": "FROM small:1\nWORKDIR /app\nCOPY test.sh /tests/test.sh\n",
            "tests/test.sh": (
                "#!/bin/bash\ntest -e /app/other && exit\n"
                'test "$(cat /app/answer)" = 42 && echo 1 > /logs/verifier/reward.txt\n'
            ),
        },
        code=0,
    )
    assert result["verifier_result"]["rewards"] == {"reward": 1.0}


def test_an_image_is_built_once_for_all_trials(tmp_path: Path, engine: Engine) -> None:
    dockerfile = "FROM small:1\nRUN head -c 16 /dev/urandom > /made\n"
    write(tmp_path / "task", {**TASK, "environment/Dockerfile": dockerfile})
    command = "cat /made > /logs/artifacts/made"
    options = ("--command", command, "-k", 2, "-n", 2, "-e", "docker", "--no-ledger")
    run_ours("-p", tmp_path / "task", *options, jobs=tmp_path, code=0)
    made = {path.read_bytes() for path in (tmp_path / "job").glob("*/artifacts/made")}
    assert len(made) == 1
    images = {
        json.loads(path.read_text())["environment"]["runtime_image"]
        for path in (tmp_path / "job").glob("*/record.json")
    }
    assert len(images) == 1
    forced = tmp_path / "forced"
    # By another process: one builds an image once.
    ran = run_child("run", "-p", tmp_path / "task", *options, "--force-build", "-o", forced)
    assert ran.code == 0, ran.err
    again = {path.read_bytes() for path in forced.glob("*/*/artifacts/made")}
    assert len(again) == 1
    assert again != made


def test_a_tag_that_moves_does_not_change_a_job(tmp_path: Path, engine: Engine) -> None:
    toml = '[environment]\ndocker_image = "moving:1"\nnetwork_mode = "no-network"\n'
    write(tmp_path / "task", {**TASK, "task.toml": toml})
    (tmp_path / "task" / "environment" / "Dockerfile").unlink()
    engine.docker("tag", "small:1", "moving:1")
    try:
        run_ours(
            *("-p", tmp_path / "task", "-e", "docker", "-k", 2, "-n", 1, "--no-ledger"),
            *("--agent-import-path", "tests.environments.docker.movers:Mover"),
            jobs=tmp_path,
            code=0,
        )
    finally:
        engine.docker("rmi", "--force", "moving:1")
    images = {
        json.loads(path.read_text())["environment"]["runtime_image"]
        for path in (tmp_path / "job").glob("*/record.json")
    }
    (identity,) = engine.lines_of("image", "inspect", "--format", "{{.Id}}", "small:1")
    assert images == {f"moving@{identity}"}


@pytest.mark.parametrize(
    ("host", "path", "said"),
    [
        ("", "/nowhere", "there is no docker program on PATH; install Docker"),
        ("unix:///nowhere/docker.sock", None, "the Docker engine does not answer"),
    ],
    ids=["no program", "no engine"],
)
def test_without_docker_nothing_is_created(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    host: str,
    path: str | None,
    said: str,
) -> None:
    write(tmp_path / "task", TASK)
    monkeypatch.setenv("DOCKER_HOST", host)
    if path is not None:
        monkeypatch.setenv("PATH", path)
    jobs = tmp_path / "jobs"
    ran = run_ours("-p", tmp_path / "task", "-a", "nop", "-e", "docker", jobs=jobs, code=2)
    assert said in ran.err
    assert not jobs.exists()


def test_a_user_of_the_group_docker_runs_trials_and_leaves_nothing(engine: Engine) -> None:
    engine.top.chmod(0o755)
    socket = Path(engine.host.removeprefix("unix://"))
    socket.chmod(0o666)
    solve = "echo 42 > /answer; setsid sleep 600 >/dev/null 2>&1 &\n"
    check = 'test "$(cat /answer)" = 42 && echo 1 > /logs/verifier/reward.txt\n'
    try:
        with ordinary_home() as home:
            write(home / "task", {**TASK, "solution/solve.sh": solve, "tests/test.sh": check})
            ran = run_as_ordinary_user(
                *(
                    "proctor",
                    "run",
                    "-p",
                    home / "task",
                    "-a",
                    "oracle",
                    "-e",
                    "docker",
                    "-o",
                    home / "jobs",
                ),
                *("--job-name", "job", "--no-ledger", "-y"),
                home=home,
                env=environment(home, DOCKER_HOST=engine.host),
            )
            assert ran.code == 0, ran.err
            (result,) = map(load_result, (home / "jobs" / "job").glob("*/result.json"))
            (found,) = (home / "jobs" / "job").glob("*/findings.json")
            codes = [finding["code"] for finding in json.loads(found.read_text())]
    finally:
        socket.chmod(0o660)
    assert result["verifier_result"]["rewards"] == {"reward": 1.0}
    # /answer is a file in the root; only root can open a clean room.
    assert set(codes) == {
        *("system-changed", "changes-cut", "agent-still-busy", "clean-room-skipped"),
        "room-in-parts",
    }


def test_an_image_out_of_docker_runs_in_the_sandbox_with_its_id(
    tmp_path: Path, engine: Engine, proctor: Proctor
) -> None:
    built = b"FROM small:1\nENV WORD=kept\nWORKDIR /here\nRUN echo made > made\n"
    engine.docker("build", "--quiet", "--tag", "out:1", "-", data=built)
    engine.docker("save", "--output", tmp_path / "out.tar", "out:1")
    (identity,) = engine.lines_of("image", "inspect", "--format", "{{.Id}}", "out:1")
    assert proctor("image", "import", "out:1", tmp_path / "out.tar").code == 0
    check = (
        'test "$(cat made) $WORD $PWD" = "made kept /here" && echo 1 > /logs/verifier/reward.txt\n'
    )
    toml = '[environment]\ndocker_image = "out:1"\nnetwork_mode = "no-network"\n'
    files = {**TASK, "task.toml": toml, "tests/test.sh": check}
    del files["environment/Dockerfile"]
    write(tmp_path / "task", files)
    (tmp_path / "task" / "environment").mkdir()
    run_ours("-p", tmp_path / "task", "-a", "oracle", "--no-ledger", jobs=tmp_path, code=0)
    (record,) = map(load_result, (tmp_path / "job").glob("*/record.json"))
    assert record["evaluation"]["reward"] == 1.0
    assert identity.startswith("sha256:")
    images = json.loads(proctor("image", "list", "--json").out)
    assert identity in json.dumps(images)


def test_a_user_who_may_not_use_the_socket_is_told_how(engine: Engine) -> None:
    engine.top.chmod(0o755)
    with ordinary_home() as home:
        write(home / "task", TASK)
        ran = run_as_ordinary_user(
            *(
                "proctor",
                "run",
                "-p",
                home / "task",
                "-a",
                "oracle",
                "-e",
                "docker",
                "-o",
                home / "jobs",
            ),
            home=home,
            env=environment(home, DOCKER_HOST=engine.host),
        )
        assert ran.code == 2
        assert "no permission to talk to the Docker engine" in ran.err
        assert "add this user to the group docker" in ran.err
        assert not (home / "jobs").exists()
