"""Writes the demo data: tasks, jobs, a key, and a ledger that everything is sealed into.

    DIR/tasks/NAME          the tasks
    DIR/jobs/EXPERIMENT     a job directory for each experiment
    DIR/ledger              the ledger
    DIR/demo-key            the key that signs it; anybody can make it, so that it proves nothing

Times, names and numbers are fixed: the same bytes result on every machine.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Final
from uuid import NAMESPACE_URL, UUID, uuid5

from proctor.demo.catalogue import DATASET, EXPERIMENTS, TASKS, VERSION, DemoExperiment, DemoTask
from proctor.demo.trial import make_trial, write_trial
from proctor.errors import InputError
from proctor.exchange.harbor_job import JobOptions, find_trials
from proctor.exchange.harbor_trial import RecordRequest, make_record
from proctor.exchange.intake import seal_offers
from proctor.exchange.trial_sources import ReadBefore
from proctor.harbor.configs import (
    AgentConfig,
    DatasetConfig,
    EnvironmentConfig,
    JobConfig,
    RetryConfig,
    VerifierConfig,
)
from proctor.harbor.documents import load_lock
from proctor.harbor.lock import TaskLock, TrialLock, make_lock, render_lock
from proctor.harbor.stats import (
    JobResult,
    TrialTable,
    assemble_final,
    builtin_metrics,
    render_result,
)
from proctor.harbor.trial_result import TrialResult, counted
from proctor.ledger.keys import SigningKey, make_key
from proctor.ledger.ledger import OpenLedger
from proctor.ledger.query import list_trials
from proctor.ledger.review import append_review
from proctor.ledger.trial_index import TrialFilter
from proctor.record.read import render_record
from proctor.task.digests import TaskDigests, load_digests
from proctor.task.directory import Task, load_task
from proctor.times import render_utc
from proctor.trial.finding import FindingCode

ATTEMPTS: Final = 5
KEY_NAME: Final = "demo-key.invalid/proves-nothing"
_ORIGIN: Final = "demo.invalid/made-up-runs"
_SEED: Final = b"demo-data: a key that is public!"
_FIRST: Final = datetime(2026, 11, 2, 8, 0, tzinfo=UTC)
# Trials that a job runs at the same time.
_AT_ONCE: Final = 8


@dataclass(frozen=True, slots=True)
class DemoSize:
    """How much is made."""

    experiments: Sequence[DemoExperiment] = EXPERIMENTS
    tasks: Sequence[DemoTask] = TASKS
    attempts: int = ATTEMPTS

    @property
    def trials(self) -> int:
        """The number of trials."""
        return len(self.experiments) * len(self.tasks) * self.attempts


type Watch = Callable[[str], None]
"""Called with the name of each experiment when it is sealed."""


def make_demo(directory: Path, size: DemoSize | None = None, watch: Watch | None = None) -> None:
    """Write the demo data into a directory that is empty or missing.

    Raises:
        InputError: the directory is not empty, or cannot be written.
        LedgerError: no ledger can be made there.
    """
    size = size or DemoSize()
    _check_empty(directory)
    try:
        digests = [_write_task(directory, task) for task in size.tasks]
        key = make_key(directory / "demo-key", KEY_NAME, _SEED)
        OpenLedger.create(directory / "ledger", key, _ORIGIN, lambda: render_utc(_FIRST)).close()
        for number, experiment in enumerate(size.experiments):
            started = _FIRST + timedelta(days=number)
            finished = _write_job(directory, experiment, digests, size, started)
            _seal_job(directory, experiment, key, finished)
            if watch is not None:
                watch(experiment.name)
        _review_cheats(directory, key, _FIRST + timedelta(days=len(size.experiments)))
    except OSError as error:
        raise InputError(f"{directory}: the demo data cannot be written: {error}") from error


def _check_empty(directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        first = next(directory.iterdir(), None)
    except OSError as error:
        raise InputError(
            f"{directory}: the demo data cannot be written there: {error.strerror}; "
            "name a new or empty directory"
        ) from error
    if first is not None:
        raise InputError(
            f"{directory}: contains {first.name!r}; expected an empty directory: "
            "name a new one, or remove what is there"
        )


# Tasks


def _write_task(directory: Path, task: DemoTask) -> TaskDigests:
    place = directory / "tasks" / task.name
    for name, text in {
        "task.toml": f'schema_version = "1.3"\n\n[task]\nname = "{DATASET}/{task.name}"\n'
        'description = "Made-up task of proctor demo-data."\n\n[agent]\ntimeout_sec = 900.0\n\n'
        "[verifier]\ntimeout_sec = 300.0\n",
        "instruction.md": f"{task.instruction}\n",
        "environment/Dockerfile": "FROM python:3.12-slim\nWORKDIR /app\n",
        "tests/test.sh": "#!/bin/bash\npytest -rA /tests/test_outputs.py\n"
        "[ $? = 0 ] && echo 1.0 > /logs/verifier/reward.txt\n",
        "tests/test_outputs.py": f"def {task.test}():\n    check({task.product!r})\n",
        "solution/solve.sh": "#!/bin/bash\necho 'made-up task: there is no solution' >&2\n",
    }.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(text, encoding="utf-8")
    return load_digests(place)


# Jobs


def _write_job(
    directory: Path,
    experiment: DemoExperiment,
    digests: Sequence[TaskDigests],
    size: DemoSize,
    started: datetime,
) -> datetime:
    """Write a job with all of its trials; returns when it ended."""
    job, job_id = directory / "jobs" / experiment.name, uuid5(NAMESPACE_URL, experiment.name)
    job.mkdir(parents=True)
    _write_plan(job, experiment, digests, size, started)
    free = [started] * _AT_ONCE
    results: list[TrialResult] = []
    lock = load_lock(str(job))
    whole_tasks = [load_task(directory / "tasks" / task.name) for task in size.tasks]
    for attempt in range(size.attempts):
        for task, whole, digest in zip(size.tasks, whole_tasks, digests, strict=True):
            # The next trial starts where a place is free first, as in a real job.
            place = free.index(min(free))
            trial = make_trial(experiment, task, attempt, free[place], job_id)
            result = write_trial(trial, job, digest)
            free[place] = result.finished_at or started
            results.append(result)
            _write_record(job / trial.name, whole, ReadBefore(lock, task=(whole, digest)))
    finished = max(free)
    _write_result(job, job_id, results, started, finished)
    return finished


def _write_plan(
    job: Path,
    experiment: DemoExperiment,
    digests: Sequence[TaskDigests],
    size: DemoSize,
    started: datetime,
) -> None:
    agent = AgentConfig(name=experiment.agent.name, model_name=experiment.model.name)
    config = JobConfig(
        job_name=experiment.name,
        n_attempts=size.attempts,
        n_concurrent_trials=_AT_ONCE,
        agents=[agent],
        datasets=[DatasetConfig(path=Path("tasks"))],
    )
    planned = [
        TrialLock(
            task=TaskLock(
                name=task.name,
                type="local",
                digest=f"sha256:{digest.lock_digest}",
                source=DATASET,
                path=Path("tasks") / task.name,
            ),
            agent=agent,
            environment=EnvironmentConfig(),
            verifier=VerifierConfig(),
        )
        for task, digest in zip(size.tasks, digests, strict=True)
    ]
    lock = make_lock(
        created_at=started,
        invocation=["proctor", "demo-data"],
        n_concurrent_trials=_AT_ONCE,
        retry=RetryConfig(),
        trials=planned * size.attempts,
        host={},
    )
    (job / "config.json").write_text(config.model_dump_json(indent=4), encoding="utf-8")
    (job / "lock.json").write_bytes(render_lock(lock))


def _write_record(trial: Path, task: Task, before: ReadBefore) -> None:
    request = RecordRequest(
        trial=str(trial),
        experiment=trial.parent.name,
        task=str(task.directory),
        dataset_id=f"{DATASET}@{VERSION}",
    )
    record, _ = make_record(request, before)
    (trial / "record.json").write_bytes(render_record(record))


def _write_result(
    job: Path,
    job_id: UUID,
    results: Sequence[TrialResult],
    started: datetime,
    finished: datetime,
) -> None:
    ended = sorted(results, key=lambda result: result.finished_at or started)
    table = TrialTable(counted(result) for result in ended)
    result = JobResult(
        id=str(job_id),
        started_at=started.replace(tzinfo=None),
        updated_at=finished.replace(tzinfo=None),
        finished_at=finished.replace(tzinfo=None),
        n_total_trials=len(results),
        stats=assemble_final(table, {DATASET: builtin_metrics(["mean"])}),
    )
    (job / "result.json").write_text(render_result(result), encoding="utf-8")


# The ledger


def _seal_job(
    directory: Path, experiment: DemoExperiment, key: SigningKey, finished: datetime
) -> None:
    found = find_trials(directory / "jobs" / experiment.name, JobOptions(is_over=True))
    seal_offers(found.offers, partial(_open, directory, key, finished))


def _open(directory: Path, key: SigningKey, now: datetime) -> OpenLedger:
    ledger = OpenLedger.open(directory / "ledger", key=key)
    ledger.clock = lambda: render_utc(now)
    return ledger


def _review_cheats(directory: Path, key: SigningKey, now: datetime) -> None:
    """Append a review to the first cheat of each task; the others are left to review."""
    with _open(directory, key, now) as ledger:
        seen: set[str | None] = set()
        for row in list_trials(ledger, TrialFilter()):
            if FindingCode.REWARD_PLANTED in row.findings and row.task_id not in seen:
                seen.add(row.task_id)
                append_review(
                    ledger,
                    row,
                    "fail",
                    reviewer="Demo Reviewer",
                    note="The agent wrote the reward itself; without that file the tests fail.",
                )
