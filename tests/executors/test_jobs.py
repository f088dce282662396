"""Jobs with either executor: what they leave is the same, but for times, names and ids."""

import asyncio
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from proctor.errors import TrialError
from proctor.harbor.configs import (
    SANDBOX,
    AgentConfig,
    DatasetConfig,
    EnvironmentConfig,
    JobConfig,
    RetryConfig,
)
from proctor.job.attempts import take_over
from proctor.job.job import resume_job, run_job
from proctor.job.local_executor import LocalExecutor
from proctor.job.options import JobOptions, JobOutcome, LedgerOptions, ResumeOptions
from proctor.job.watch import Watch
from proctor.trial.executor import TrialOutcome
from proctor.trial.spec import TrialSpec
from tests.cli.programs import run_here
from tests.executors.process_executor import ProcessExecutor
from tests.job.jobs import NOBODY, Listener, agent, load_json, make_config, make_tasks, trial_dirs

ROOT = Path(__file__).resolve().parent.parent.parent
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)?")
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")

pytestmark = pytest.mark.process


def scripted(name: str) -> AgentConfig:
    """An agent of examples/agents."""
    script = ROOT / "examples" / "agents" / f"{name}.sh"
    return AgentConfig(name="scripted", kwargs={"script": str(script)})


def find_executor(kind: str, place: Path) -> ProcessExecutor | None:
    """None: the job's own."""
    if kind == "local":
        return None
    scratch = place / "scratch"
    scratch.mkdir(parents=True, exist_ok=True)
    return ProcessExecutor(scratch, 2)


def run(kind: str, config: JobConfig, watch: Watch = NOBODY, **options: Any) -> JobOutcome:
    """Run a job to its end."""
    executor = find_executor(kind, config.jobs_dir.parent)
    ran = asyncio.run(run_job(JobOptions(config=config, **options), watch, executor))
    if executor is not None:
        assert len(executor.processes) >= ran.counts.run
        assert list(executor.scratch.iterdir()) == [], "everything was handed over"
    return ran


def plain(value: Any, job: Path, names: dict[str, str], key: str = "") -> Any:
    """What a file holds, without times, names of trials, ids and places."""
    if isinstance(value, dict):
        return {name: plain(each, job, names, name) for name, each in value.items()}
    if isinstance(value, list):
        return [plain(each, job, names, key) for each in value]
    if isinstance(value, float | int) and ("seconds" in key or key.endswith("_sec")):
        return type(value).__name__
    if not isinstance(value, str):
        return value
    if key == "exception_traceback":
        # How deep it is depends on the process.
        value = value.strip().splitlines()[-1]
    for name, number in names.items():
        value = value.replace(name, number)
    return UUID.sub("ID", TIME.sub("TIME", value.replace(str(job.parent.parent), "PLACE")))


def left_by(job: Path) -> dict[str, Any]:
    """What a job left: its result, and of each trial the results, the records and the files."""
    trials = trial_dirs(job)
    names = {trial.name: f"trial {number}" for number, trial in enumerate(trials)}
    files = [trial / name for trial in trials for name in ("result.json", "record.json")]
    files += [path for trial in trials for path in sorted(trial.glob("attempts/*/re*.json"))]
    left = {
        plain(str(path), job, names): plain(load_json(path), job, names)
        for path in [job / "result.json", *files]
    }
    below = [plain(str(path), job, names) for trial in trials for path in trial.rglob("*")]
    return {**left, "files": sorted(below)}


def errors_of(job: Path) -> list[str | None]:
    """The exceptions with which the trials of a job ended."""
    infos = [load_json(trial / "result.json")["exception_info"] for trial in trial_dirs(job)]
    return [info["exception_type"] if info else None for info in infos]


def test_a_job_of_which_trials_fail_and_are_cancelled_leaves_the_same(tmp_path: Path) -> None:
    left = []
    for kind in ("local", "process"):
        listener = Listener()
        config = make_config(
            make_tasks(tmp_path / "set", ["a", "b"]),
            tmp_path / kind / "jobs",
            agents=[agent("Echoing"), agent("Failing"), agent("Cancelling")],
            retry=RetryConfig(max_retries=1, min_wait_sec=0.001),
        )
        outcome = run(kind, config, listener)
        assert errors_of(outcome.directory) == [None, "ConnectionError", "CancelledError"] * 2
        assert outcome.counts.retried == 2
        log = (outcome.directory / "job.log").read_text()
        assert log.count("failed with exception ConnectionError. Retrying") == 2
        assert log.count(" cancelled\n") == 2
        found = left_by(outcome.directory)
        left.append((found, sorted(listener.phases), sorted(listener.started)))
    assert left[0] == left[1]
    assert sum(name.endswith("attempts/1/result.json") for name in left[0][0]) == 2


def test_of_a_job_in_processes_nothing_runs_in_its_directory(tmp_path: Path) -> None:
    config = make_config(make_tasks(tmp_path / "set", ["a"]), tmp_path / "process" / "jobs")

    class Looking(Listener):
        """Looks at the job's directory whenever something happens in a trial."""

        def phase_began(self, trial: str, phase: str) -> None:
            super().phase_began(trial, phase)
            assert not (config.jobs_dir / "job" / trial).exists()

    looking = Looking()
    outcome = run("process", config, looking)
    assert looking.phases[-1] == "record"
    assert (trial_dirs(outcome.directory)[0] / "result.json").exists()


class Losing(LocalExecutor):
    """Loses the first trial that it is given."""

    def __init__(self, trials_dir: Path, error: BaseException) -> None:
        super().__init__(trials_dir, 1)
        self.errors = [error]

    async def run(self, spec: TrialSpec, watch: Callable[[str], None]) -> TrialOutcome:
        if self.errors:
            raise self.errors.pop()
        return await super().run(spec, watch)


@pytest.mark.parametrize("error", [TrialError("the node is gone"), asyncio.CancelledError()])
def test_a_trial_that_an_executor_loses_is_errored_and_no_other(
    tmp_path: Path, error: BaseException
) -> None:
    who = AgentConfig(name="nop", model_name="some/model")
    tasks = make_tasks(tmp_path / "set", ["a", "b", "c"])
    config = make_config(tasks, tmp_path / "jobs", agents=[who])
    losing = Losing(tmp_path / "jobs" / "job", error)
    outcome = asyncio.run(run_job(JobOptions(config=config), NOBODY, losing))
    assert errors_of(outcome.directory) == [type(error).__name__, None, None]
    assert list(outcome.result.stats.evals) == ["nop__model__set"], "all are of one group"
    assert (outcome.interrupted, outcome.counts.not_run) == (False, 0)


class Interrupting(Listener):
    """Presses Ctrl-C when so many agents are at work."""

    def __init__(self, n: int) -> None:
        super().__init__()
        self.n = n

    def phase_began(self, trial: str, phase: str) -> None:
        super().phase_began(trial, phase)
        if phase == "agent" and self.phases.count("agent") == self.n:
            signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("kinds", [("process", "local"), ("local", "process")])
def test_a_job_is_stopped_with_one_executor_and_resumed_with_another(
    tmp_path: Path, kinds: tuple[str, str]
) -> None:
    who = agent("Waiting", place=str(tmp_path))
    tasks = make_tasks(tmp_path / "set", ["a", "b", "c"])
    config = make_config(tasks, tmp_path / "jobs", agents=[who])
    outcome = run(kinds[0], config, Interrupting(2))
    assert (outcome.interrupted, outcome.counts.run) == (True, 2)
    job = outcome.directory
    stopped = [trial for trial in trial_dirs(job) if trial.exists()]
    kept = [load_json(trial / "result.json")["exception_info"] for trial in stopped]
    assert [error["exception_type"] for error in kept] == ["CancelledError"] * 2
    (tmp_path / "go").touch()
    executor = find_executor(kinds[1], tmp_path)
    outcome = asyncio.run(resume_job(job, ResumeOptions(), NOBODY, executor))
    assert (outcome.interrupted, outcome.counts.scored) == (False, 3)
    assert errors_of(job) == [None] * 3
    assert [(trial / "attempts" / "1" / "result.json").exists() for trial in stopped] == [True] * 2


def test_what_is_handed_over_never_replaces_anything(tmp_path: Path) -> None:
    for name in ("left/agent", "job/trial/attempts/1", "job/trial/agent"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "left" / "result.json").write_text("{}")
    with pytest.raises(FileExistsError):
        asyncio.run(take_over(tmp_path / "left", tmp_path / "job" / "trial"))
    assert not (tmp_path / "job" / "trial" / "result.json").exists()
    (tmp_path / "job" / "trial" / "agent").rmdir()
    asyncio.run(take_over(tmp_path / "left", tmp_path / "job" / "trial"))
    trial = tmp_path / "job" / "trial"
    assert sorted(path.name for path in trial.iterdir()) == ["agent", "attempts", "result.json"]
    assert not (tmp_path / "left").exists()
    asyncio.run(take_over(trial, trial))
    asyncio.run(take_over(tmp_path / "left", trial))
    assert (trial / "result.json").read_text() == "{}"


DEMO = {
    "oracle": (AgentConfig(name="oracle"), 1),
    "nop": (AgentConfig(name="nop"), 1),
    "careful": (scripted("careful"), 2),
    "cheat": (scripted("cheat"), 1),
    "clumsy": (scripted("clumsy"), 1),
}
"""The runs of scripts/tour: who, and how many attempts."""


@pytest.mark.sandbox
def test_the_demo_in_processes_gives_what_it_gives_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    proctor = run_here(monkeypatch, capsys)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    left: list[dict[str, Any]] = []
    for kind in ("local", "process"):
        place, found = tmp_path / kind, {}
        ledger = place / "ledger"
        for name, (who, n_attempts) in DEMO.items():
            config = JobConfig(
                job_name=name,
                jobs_dir=place / "jobs",
                n_attempts=n_attempts,
                n_concurrent_trials=2,
                environment=EnvironmentConfig(import_path=SANDBOX),
                agents=[who],
                datasets=[DatasetConfig(path=ROOT / "examples" / "tasks")],
            )
            outcome = run(kind, config, ledger=LedgerOptions(ledger))
            assert outcome.sealed is not None
            sealed = (outcome.sealed.sealed, outcome.sealed.diagnostic, outcome.sealed.refused)
            audited = proctor("audit", outcome.directory).code
            found[name] = (left_by(outcome.directory), outcome.counts, sealed, audited)
        assert proctor("ledger", "verify", "--ledger", ledger).code == 0
        left.append(found)
    assert left[0] == left[1]
    counts = {name: (each[1].scored, each[3]) for name, each in left[0].items()}
    assert counts == {name: (2 * n_attempts, 0) for name, (_, n_attempts) in DEMO.items()}
