"""Running trials, beside the real harbor running the same ones on the same machine.

A whole command is measured, from the start of its process to its end. What one trial costs is the
difference between a long job and a job of one trial, spread over the trials between.

Jobs lie in memory where there is a place for it: what a file costs to make on a disk depends on
what else was made and deleted there in the last minutes, and can be more than all the rest.
"""

import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from benchmarks.bench import (
    HARBOR,
    ROOT,
    Bench,
    BenchmarkError,
    check_same,
    command_seconds,
    entry_point,
    figure,
    run_module,
)
from benchmarks.row import Row, share_of, times_faster
from benchmarks.sizes import LINEAR, name_of_size

_IN_MEMORY = Path("/dev/shm")  # noqa: S108 - a place, not a name
_JOBS_BYTES = 2 << 30
GREET = ROOT / "examples" / "tasks" / "greet"
# Harbor seals nothing, and verifies once.
_OUR_NULL = ("-a", "nop", "-e", "null", "--no-ledger")
WITH_CLEAN_ROOM = ("-a", "oracle", "--no-ledger")
OUR_SANDBOX = (*WITH_CLEAN_ROOM, "--no-clean-room")
_THEIR_NULL = ("-a", "nop", "benchmarks.theirs_environments:NullEnvironment")
_THEIR_OVERLAY = ("-a", "oracle", "benchmarks.theirs_environments:OverlayEnvironment")


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is run."""

    tasks: int = 50
    """Tasks of a null job."""
    many: int = 1000
    """Null trials, a multiple of the tasks."""
    long: int = 10_000
    """Null trials of a long job, which is also resumed."""


_WHOLE = Sizes()


def runner_rows(bench: Bench, *, sizes: Sizes = _WHOLE) -> Iterator[Row]:
    """Null trials, and a resume with nothing to do."""
    tasks = bench.kept(f"null-tasks-{sizes.tasks}", lambda place: _make_tasks(place, sizes.tasks))
    with tempfile.TemporaryDirectory(dir=place_for_jobs(bench)) as scratch:
        yield from _null_rows(bench, tasks / "tasks", Path(scratch), sizes)


def place_for_jobs(bench: Bench) -> Path:
    """Where jobs lie: in memory if there is a place for it; containers have one of 64 MB."""
    has_room = _IN_MEMORY.is_dir() and shutil.disk_usage(_IN_MEMORY).free > _JOBS_BYTES
    return _IN_MEMORY if has_room else bench.data


def _null_rows(bench: Bench, tasks: Path, jobs: Path, sizes: Sizes) -> Iterator[Row]:
    one, attempts = tasks / "task-00", sizes.many // sizes.tasks
    ours, theirs = _Least(), _Least()
    # In turns, so that a busy spell of the machine hits all four.
    for _ in range(min(3, bench.rounds)):
        ours.one.append(our_seconds(jobs, one, 1, _OUR_NULL))
        theirs.one.append(_their_seconds(jobs, one, 1, _THEIR_NULL))
        ours.many.append(our_seconds(jobs, tasks, attempts, _OUR_NULL))
        theirs.many.append(_their_seconds(jobs, tasks, attempts, _THEIR_NULL))
    fixed = min(ours.one), min(theirs.one)
    yield share_of("run-fixed", fixed, f"{HARBOR}, one null trial", at_most=0.2)
    each = ours.each(sizes.many), theirs.each(sizes.many)
    yield share_of(f"run-null-{sizes.many}", each, f"{HARBOR}, each null trial", at_most=0.5)
    yield from _long_rows(bench, tasks, jobs, sizes)


def _long_rows(bench: Bench, tasks: Path, jobs: Path, sizes: Sizes) -> Iterator[Row]:
    """Whether a long job costs more a trial than a short one, in time or memory; its resume."""
    one = _run_alone(jobs, tasks / "task-00", 1)
    short = _run_alone(jobs, tasks, sizes.many // sizes.tasks)
    long = _run_alone(jobs, tasks, sizes.long // sizes.tasks)
    name = f"run-null-{sizes.long}"
    first = each_further(one.cpu_seconds, short.cpu_seconds, sizes.many - 1)
    further = each_further(short.cpu_seconds, long.cpu_seconds, sizes.long - sizes.many)
    said = f"each of {sizes.many} of ours"
    yield share_of(name, (further, first), f"{said}, processor time", at_most=LINEAR)
    peaks = (long.megabytes, short.megabytes)
    yield share_of(f"{name}-memory", peaks, f"{sizes.many} of ours", at_most=2, unit="MB")
    resumed = _resume_seconds(bench, long.job)
    for ran in (one, short, long):
        shutil.rmtree(ran.job)
    name = f"resume-{name_of_size(sizes.long)}"
    yield times_faster(name, resumed, f"{HARBOR}, job resume", at_least=20)


def _resume_seconds(bench: Bench, job: Path) -> tuple[float, float]:
    """Both commands on the same directory, which has a result for every trial.

    Harbor matches the planned trials with those that are there pair by pair.
    """
    ours = entry_point("proctor.cli.main", "main", "resume", str(job), "-q")
    theirs = entry_point("harbor.cli.main", "app", "job", "resume", "-p", str(job))
    before = len(list(job.iterdir()))
    figures = bench.least(lambda: command_seconds(ours), lambda: command_seconds(theirs), rounds=2)
    check_same(f"{job}: files and trials", len(list(job.iterdir())), before)
    return figures


def sandbox_rows(bench: Bench, *, trials: int = 300) -> Iterator[Row]:
    """Trials in a sandbox: many, because the start of harbor varies by more than some take."""
    with tempfile.TemporaryDirectory(dir=place_for_jobs(bench)) as scratch:
        jobs = Path(scratch)
        # The job of one trial pays for imports and, on our side, for building the task's root.
        fixed, many = (
            bench.least(
                partial(our_seconds, jobs, GREET, count, OUR_SANDBOX),
                partial(_their_seconds, jobs, GREET, count, _THEIR_OVERLAY),
                rounds=3,
            )
            for count in (1, trials)
        )
    each = tuple(each_further(*pair, trials - 1) for pair in zip(fixed, many, strict=True))
    # The two shells of such a trial, started by bubblewrap and with no runner at all, take more
    # than a fifth of what harbor takes: five times its pace is below the floor.
    figures = each[0], each[1]
    yield times_faster("run-sandbox", figures, f"{HARBOR}, namespaces and overlay", at_least=1)


def each_further(fewer: float, more: float, count: int) -> float:
    """Seconds of each further trial; a tiny job may seem to take no longer than a tinier one."""
    return max((more - fewer) / count, 1e-6)


@dataclass(slots=True)
class _Least:
    """Seconds of a job of one trial and of one of many, several times."""

    one: list[float] = field(default_factory=list)
    many: list[float] = field(default_factory=list)

    def each(self, count: int) -> float:
        """What each of many trials takes."""
        return each_further(min(self.one), min(self.many), count - 1)


@dataclass(frozen=True, slots=True)
class _Ran:
    """A job of ours that was run in a process that tells what it took."""

    job: Path
    cpu_seconds: float
    megabytes: float


def _run_alone(jobs: Path, path: Path, n_attempts: int) -> _Ran:
    job = jobs / f"kept-{path.name}-{n_attempts}"
    told = run_module("ours_run", *_our_words(job, path, n_attempts, _OUR_NULL))
    _check_finished(job, n_attempts)
    return _Ran(job, figure(told, "cpu_seconds"), figure(told, "megabytes"))


def our_seconds(jobs: Path, path: Path, n_attempts: int, options: tuple[str, ...]) -> float:
    """Seconds of a whole job of ours, each of whose trials has to get a reward of 1."""
    job = jobs / "ours"
    words = _our_words(job, path, n_attempts, options)
    seconds = command_seconds(entry_point("proctor.cli.main", "main", *words))
    _check_finished(job, n_attempts)
    shutil.rmtree(job)
    return seconds


def _our_words(job: Path, path: Path, n_attempts: int, options: tuple[str, ...]) -> list[str]:
    where = ("-p", str(path), "-o", str(job.parent), "--job-name", job.name, "-q", "-y")
    return ["run", *where, "-k", str(n_attempts), *options]


def _their_seconds(jobs: Path, path: Path, n_attempts: int, options: tuple[str, ...]) -> float:
    job = jobs / "theirs"
    where = ("-p", str(path), "-o", str(jobs), "--job-name", job.name, "-q", "-y")
    *agent, environment = options
    what = ("-k", str(n_attempts), *agent, "--environment-import-path", environment)
    seconds = command_seconds(entry_point("harbor.cli.main", "app", "run", *where, *what))
    _check_finished(job, n_attempts)
    shutil.rmtree(job)
    return seconds


def _check_finished(job: Path, n_attempts: int) -> None:
    """A job that broke off would be fast."""
    results = list(job.glob("*/result.json"))
    rewards = sum('"reward": 1.0' in result.read_text(encoding="utf-8") for result in results)
    if not results or len(results) % n_attempts or rewards != len(results):
        raise BenchmarkError(f"{job}: {rewards} of {len(results)} trials have a reward of 1")


def _make_tasks(directory: Path, count: int) -> None:
    """Tasks that differ in their names and instructions."""
    for number in range(count):
        task = directory / "tasks" / f"task-{number:02}"
        for name in ("environment", "tests", "solution"):
            (task / name).mkdir(parents=True)
        (task / "task.toml").write_text('schema_version = "1.3"\n', encoding="utf-8")
        (task / "instruction.md").write_text(f"Do number {number}.\n", encoding="utf-8")
        (task / "environment" / "Dockerfile").write_text("FROM debian:12\n", encoding="utf-8")
        (task / "tests" / "test.sh").write_text(
            "#!/bin/bash\necho 1 > /logs/verifier/reward.txt\n", encoding="utf-8"
        )
        (task / "solution" / "solve.sh").write_text("#!/bin/bash\ntrue\n", encoding="utf-8")
