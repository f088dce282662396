"""What every executor does alike: the contract between a job and whatever runs its trials."""

import asyncio
import json
import os
import tarfile
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from proctor.errors import InputError, TrialError
from proctor.harbor.configs import (
    NULL,
    SANDBOX,
    AgentConfig,
    EnvironmentConfig,
    TaskConfig,
    TrialConfig,
)
from proctor.harbor.trial_result import parse_trial_result
from proctor.job.local_executor import LocalExecutor
from proctor.task.digests import load_digests
from proctor.task.directory import load_task
from proctor.trial.executor import Executor, TrialOutcome
from proctor.trial.finding import Finding, FindingCode
from proctor.trial.spec import RecordFields, TrialSpec, parse_spec, render_spec
from tests.cluster.ray_cluster import RayCluster
from tests.executors.process_executor import ProcessExecutor, pack, unpack
from tests.job.jobs import agent, make_task

PHASES = ["setup", "agent-setup", "agent", "collect", "verify", "record"]


def make_spec(place: Path, who: AgentConfig, name: str = "it__abc1234", **fields: Any) -> TrialSpec:
    """A trial in the environment that does nothing."""
    directory = place / "task"
    task = load_task(directory if directory.exists() else make_task(directory))
    return TrialSpec(
        config=TrialConfig(
            task=TaskConfig(path=directory),
            trial_name=name,
            trials_dir=place / "jobs" / "job",
            agent=who,
            environment=EnvironmentConfig(import_path=NULL),
        ),
        uri=f"file:///jobs/{name}",
        task=task,
        digests=load_digests(directory),
        record=RecordFields(experiment="job"),
        **fields,
    )


@pytest.fixture(params=["local", "process", "ray"])
def executor(request: pytest.FixtureRequest, tmp_path: Path) -> Executor:
    """One of each kind."""
    if request.param == "local":
        return LocalExecutor(tmp_path / "jobs" / "job", 2)
    if request.param == "ray":
        request.getfixturevalue("connected")
        made: Executor = import_module("tests.cluster.executors").ConnectedExecutor(
            tmp_path / "jobs" / "job", 2
        )
        return made
    (tmp_path / "scratch").mkdir()
    return ProcessExecutor(tmp_path / "scratch", 2)


@pytest.fixture
def meeting(request: pytest.FixtureRequest, executor: Executor, tmp_path: Path) -> Path:
    """A directory that the test shares with its trials."""
    if isinstance(executor, LocalExecutor | ProcessExecutor):
        return tmp_path
    cluster: RayCluster = request.getfixturevalue("ray_cluster")
    return Path(tempfile.mkdtemp(dir=cluster.meeting))


def run(executor: Executor, spec: TrialSpec, phases: list[str] | None = None) -> TrialOutcome:
    """Run one trial to its end."""
    watch: Callable[[str], None] = (lambda _: None) if phases is None else phases.append
    return asyncio.run(executor.run(spec, watch))


async def wait_until(is_so: Callable[[], bool]) -> None:
    """Wait at most a minute."""
    async with asyncio.timeout(60):
        while not is_so():
            await asyncio.sleep(0.01)


def error_of(outcome: TrialOutcome) -> tuple[str, str] | None:
    error = outcome.result.exception_info
    return (error.exception_type, error.exception_message) if error else None


@pytest.mark.process
class TestExecutor:
    """The contract."""

    def test_an_outcome_is_the_result_and_everything_that_the_trial_left(
        self, executor: Executor, tmp_path: Path
    ) -> None:
        phases: list[str] = []
        spec = make_spec(tmp_path, agent("Echoing"))
        outcome = run(executor, spec, phases)
        assert phases == PHASES
        assert error_of(outcome) is None
        assert {"config.json", "record.json", "result.json", "trial.log"} <= {
            path.name for path in outcome.directory.iterdir()
        }
        assert (outcome.directory / "agent" / "words.txt").read_text() == "Do it.\n"
        written = parse_trial_result((outcome.directory / "result.json").read_bytes())
        assert (written.trial_name, written.trial_uri) == (spec.name, spec.uri)
        assert written.verifier_result == outcome.result.verifier_result
        config = (outcome.directory / "config.json").read_text()
        assert config == spec.config.model_dump_json(indent=4)

    def test_a_trial_that_fails_is_an_outcome(self, executor: Executor, tmp_path: Path) -> None:
        spec = make_spec(tmp_path, agent("Flaky", fails=1))
        outcome = run(executor, spec)
        assert error_of(outcome) == ("ConnectionError", "flaky failure 1")
        assert (outcome.directory / "exception.txt").exists()

    def test_a_cancelled_trial_is_stopped_and_handed_over(
        self, executor: Executor, tmp_path: Path, meeting: Path
    ) -> None:
        began = meeting / "it__abc1234.began"

        async def cancel() -> TrialOutcome:
            spec = make_spec(tmp_path, agent("Waiting", place=str(meeting)))
            running = asyncio.create_task(executor.run(spec, lambda _: None))
            await wait_until(began.exists)
            running.cancel()
            outcome = await running
            assert running.cancelling() == 1
            return outcome

        outcome = asyncio.run(cancel())
        assert error_of(outcome) == ("CancelledError", "")
        record = json.loads((outcome.directory / "record.json").read_text())
        assert record["outputs"]["agent_output"]["status"] == "partial"
        assert outcome.result.finished_at is not None

    def test_as_many_trials_run_at_once_as_it_says(
        self, executor: Executor, tmp_path: Path, meeting: Path
    ) -> None:
        who = agent("Waiting", place=str(meeting))
        specs = [make_spec(tmp_path, who, f"it__{n}") for n in range(executor.capacity)]

        async def run_all() -> Sequence[TrialOutcome]:
            running = [asyncio.create_task(executor.run(spec, lambda _: None)) for spec in specs]
            await wait_until(lambda: len(list(meeting.glob("*.began"))) == executor.capacity)
            (meeting / "go").touch()
            return await asyncio.gather(*running)

        outcomes = asyncio.run(run_all())
        assert [error_of(each) for each in outcomes] == [None] * executor.capacity
        assert [each.result.trial_name for each in outcomes] == [spec.name for spec in specs]
        assert len({each.directory for each in outcomes}) == executor.capacity

    def test_findings_of_earlier_attempts_are_kept(
        self, executor: Executor, tmp_path: Path
    ) -> None:
        carried = Finding(code=FindingCode.REWARD_PLANTED, phase="verify", message="seen")
        spec = make_spec(tmp_path, agent("Echoing"), attempt=2, carried=(carried,))
        outcome = run(executor, spec)
        found = json.loads((outcome.directory / "findings.json").read_text())
        assert (found[0]["code"], found[0]["message"]) == ("reward-planted", "seen")

    def test_secrets_reach_the_trial_and_no_file(self, executor: Executor, tmp_path: Path) -> None:
        spec = make_spec(tmp_path, AgentConfig(name="nop", env={"MY_KEY": "hush-hush-secret"}))
        assert "hush-hush-secret" in render_spec(spec)
        outcome = run(executor, spec)
        assert error_of(outcome) is None
        files = [path for path in outcome.directory.rglob("*") if path.is_file()]
        assert [path for path in files if b"hush-hush" in path.read_bytes()] == []

    def test_environments_that_cannot_be_had_are_refused(self, executor: Executor) -> None:
        environment = EnvironmentConfig(import_path=SANDBOX, kwargs={"base": "no-such-image"})
        with pytest.raises(InputError, match="no-such-image"):
            asyncio.run(executor.check(environment))
        asyncio.run(executor.check(EnvironmentConfig(import_path=NULL)))

    def test_there_is_nothing_to_reap_of_what_leaves_nothing(self, executor: Executor) -> None:
        assert list(asyncio.run(executor.reap(EnvironmentConfig(import_path=NULL)))) == []


def test_a_spec_is_the_same_after_a_journey(tmp_path: Path) -> None:
    task = make_task(tmp_path / os.fsdecode(b"t\xff"))
    (task / "steps" / "one").mkdir(parents=True)
    (task / "steps" / "one" / "instruction.md").write_text("Step by step: ü\n")
    (task / "task.toml").write_text(
        'schema_version = "1.3"\n[metadata]\nnote = "x"\n[environment]\nallow_internet = true\n'
        '[verifier.env]\nA_TOKEN = "t0p-s3cret-t0ken"\n[[steps]]\nname = "one"\n'
    )
    (task / "README.md").symlink_to("instruction.md")
    spec = make_spec(tmp_path, agent("Echoing", deep={"a": [1, 2.5, None]}))
    finding = Finding(code=FindingCode.CLOCK_JUMPED, phase="agent", message="m", detail={"s": 2})
    spec = replace(
        spec,
        task=load_task(task),
        digests=load_digests(tmp_path / "task"),
        record=RecordFields(experiment="e", dataset_id="d@1", system_prompt="Be brief."),
        attempt=3,
        carried=(finding,),
    )
    text = render_spec(spec)
    assert "\n" not in text
    assert parse_spec(text) == spec
    assert parse_spec(text).task.config.verifier.env == {"A_TOKEN": "t0p-s3cret-t0ken"}


@pytest.mark.process
def test_a_process_that_is_killed_is_an_error_of_its_trial(tmp_path: Path) -> None:
    executor = ProcessExecutor(tmp_path, 1)

    async def kill() -> None:
        spec = make_spec(tmp_path, agent("Waiting", place=str(tmp_path)))
        running = asyncio.create_task(executor.run(spec, lambda _: None))
        await wait_until((tmp_path / "it__abc1234.began").exists)
        executor.processes[0].kill()
        with pytest.raises(TrialError, match="ended with -9, without a result"):
            await running

    asyncio.run(kill())
    assert not (tmp_path / "jobs").exists()


@pytest.mark.parametrize("name", ["../out", "/out", "a/../../out", "link/out"])
def test_nothing_is_unpacked_elsewhere(tmp_path: Path, name: str) -> None:
    (tmp_path / "place").mkdir()
    (tmp_path / "place" / "link").symlink_to(tmp_path)
    packed = BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        tar.addfile(tarfile.TarInfo(name))
    with pytest.raises(OSError, match=r"relative path|link|directory"):
        unpack(packed.getvalue(), tmp_path / "place")
    assert [path.name for path in tmp_path.iterdir()] == ["place"]


def test_a_directory_is_the_same_after_a_journey(tmp_path: Path) -> None:
    (tmp_path / "a" / "deep" / "empty").mkdir(parents=True)
    (tmp_path / "a" / "deep" / "f").write_bytes(b"\0bytes")
    os.link(tmp_path / "a" / "deep" / "f", tmp_path / "a" / "second")
    (tmp_path / "a" / "link").symlink_to("deep/f")
    (tmp_path / "b").mkdir()
    unpack(pack(tmp_path / "a"), tmp_path / "b")
    assert pack(tmp_path / "a") == pack(tmp_path / "b")
