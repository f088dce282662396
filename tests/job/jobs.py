"""Small jobs for the suite: tasks on disk, and options for the environment that does nothing."""

import asyncio
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from proctor.harbor.configs import (
    NULL,
    AgentConfig,
    DatasetConfig,
    EnvironmentConfig,
    JobConfig,
    RetryConfig,
)
from proctor.harbor.stats import JobStats
from proctor.harbor.trial_result import TrialResult
from proctor.job.job import resume_job, run_job
from proctor.job.options import JobOptions, JobOutcome, ResumeOptions
from proctor.job.watch import Watch

NOBODY = Watch()
NOP = AgentConfig(name="nop")


def agent(kind: str, **kwargs: Any) -> AgentConfig:
    """One of the suite's own agents."""
    return AgentConfig(import_path=f"tests.job.agents:{kind}", kwargs=kwargs)


def make_task(directory: Path, text: str = "Do it.\n") -> Path:
    """A task that harbor takes."""
    for name in ("environment", "tests"):
        (directory / name).mkdir(parents=True, exist_ok=True)
    (directory / "task.toml").write_text('schema_version = "1.3"\n', encoding="utf-8")
    (directory / "instruction.md").write_text(text, encoding="utf-8")
    (directory / "environment" / "Dockerfile").write_text("FROM scratch\n", encoding="utf-8")
    (directory / "tests" / "test.sh").write_text("true\n", encoding="utf-8")
    return directory


def make_tasks(directory: Path, names: Iterable[str]) -> Path:
    """A dataset of such tasks, each with an instruction of its own."""
    for name in names:
        make_task(directory / name, f"Do {name}.\n")
    return directory


def make_config(
    dataset: Path,
    jobs: Path,
    *,
    agents: Sequence[AgentConfig] = (NOP,),
    retry: RetryConfig | None = None,
    n_attempts: int = 1,
    n_concurrent: int = 2,
    name: str = "job",
) -> JobConfig:
    """A job of a dataset in the environment that does nothing."""
    return JobConfig(
        job_name=name,
        jobs_dir=jobs,
        n_attempts=n_attempts,
        n_concurrent_trials=n_concurrent,
        retry=retry or RetryConfig(),
        environment=EnvironmentConfig(import_path=NULL),
        agents=list(agents),
        datasets=[DatasetConfig(path=dataset)],
    )


def run(config: JobConfig, watch: Watch = NOBODY, **options: Any) -> JobOutcome:
    """Run a job to its end."""
    return asyncio.run(run_job(JobOptions(config=config, **options), watch))


def resume(directory: Path, watch: Watch = NOBODY, **options: Any) -> JobOutcome:
    """Go on with a job to its end."""
    return asyncio.run(resume_job(directory, ResumeOptions(**options), watch))


def load_json(path: Path) -> Any:
    """What a JSON file holds."""
    return json.loads(path.read_text(encoding="utf-8"))


def trial_dirs(job: Path) -> list[Path]:
    """The directories of a job's trials, in the order of its plan."""
    return [job / slot["trial"] for slot in load_json(job / "proctor.json")["slots"]]


class Listener(Watch):
    """Remembers what was told."""

    def __init__(self) -> None:
        self.planned: tuple[int, int] | None = None
        self.started: list[tuple[str, int]] = []
        self.ended: list[str] = []
        self.retried: list[tuple[int, TrialResult, float]] = []
        self.sentences: list[str] = []
        self.phases: list[str] = []
        self.most_done = 0

    def job_planned(self, n_total: int, n_kept: int) -> None:
        self.planned = (n_total, n_kept)

    def trial_started(self, trial: str, task: str, attempt: int) -> None:
        self.started.append((task, attempt))

    def phase_began(self, trial: str, phase: str) -> None:
        self.phases.append(phase)

    def trial_ended(self, trial: str, result: TrialResult, stats: JobStats) -> None:
        self.ended.append(trial)
        self.most_done = max(self.most_done, stats.n_completed_trials)

    def trial_retried(
        self, trial: str, attempt: int, result: TrialResult, delay_sec: float
    ) -> None:
        self.retried.append((attempt, result, delay_sec))

    def said(self, sentence: str) -> None:
        self.sentences.append(sentence)
