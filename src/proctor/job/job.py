"""A job from its first file to its result: run, and gone on with.

    run_job(options, watch)                 a new job, or the rest of one that is there
    resume_job(directory, options, watch)   the rest of a job, by its own files alone

Both plan first and write nothing until the plan stands. What a killed run leaves is what the next
one goes on from: every file is whole, a trial's name is on record before its directory is made.
"""

import asyncio
import contextlib
import signal
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from proctor import __version__
from proctor.agents.harbors import find_note
from proctor.errors import JobError
from proctor.harbor.configs import EnvironmentConfig, JobConfig
from proctor.harbor.declared import SCRIPT
from proctor.harbor.lock import render_lock
from proctor.harbor.stats import JobResult, render_result
from proctor.job.classes import check_classes
from proctor.job.durable import Durable
from proctor.job.flakes import Flakes, find_flakes, render_flakes
from proctor.job.images import describe_change
from proctor.job.local_executor import LocalExecutor
from proctor.job.lock import lock_slots
from proctor.job.metrics import make_metrics
from proctor.job.options import Counts, JobOptions, JobOutcome, ResumeOptions
from proctor.job.planning import JobPlan
from proctor.job.progress import Progress, local_now
from proctor.job.request import Request, opened_job, request_resume, request_run
from proctor.job.resume import find_idle
from proctor.job.running import SlotRunner
from proctor.job.sealing import Sealer, check_ledger, find_sealed_names, sealing
from proctor.job.store import JobFiles, JobState, held_job
from proctor.job.watch import Watch
from proctor.trial.executor import Executor

# result.json while a job runs: rewritten at most once a second, and whole


_SECONDS = 1.0
_SHARE = 20
"""Writing may take a twentieth of the time: a very large job writes less often."""


class ResultFile:
    """Writes when something changed, now or as soon as it may."""

    def __init__(self, write: Callable[[], None], on_failure: Callable[[JobError], None]) -> None:
        self._write = write
        self._on_failure = on_failure
        self._loop = asyncio.get_running_loop()
        self._next = self._loop.time()
        self._later: asyncio.TimerHandle | None = None

    def changed(self) -> None:
        """Something in it is not as it was."""
        if self._later is None:
            wait = self._next - self._loop.time()
            if wait <= 0:
                self._write_now()
            else:
                self._later = self._loop.call_later(wait, self._write_now)

    def close(self) -> None:
        """Write no more."""
        if self._later is not None:
            self._later.cancel()
        self._later = None

    def _write_now(self) -> None:
        self._later = None
        began = self._loop.time()
        try:
            self._write()
        except JobError as error:
            self._on_failure(error)
        ended = self._loop.time()
        self._next = ended + max(_SECONDS, _SHARE * (ended - began))


# Ctrl-C: once finishes the record-keeping, twice stops. SIGTERM counts as Ctrl-C
#
# So does the first SIGHUP, by which a terminal that is closed says so: often more than once, and
# not out of impatience. A program that was started with SIGHUP ignored (nohup) continues.


_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupt:
    """Whether the person wants the job to stop, and who is to be told."""

    def __init__(self, on_first: Callable[[], None], at_once: Callable[[], None]) -> None:
        self.is_wanted = False
        """A signal came."""
        self._on_first = on_first
        self._at_once = at_once

    def come(self, number: int) -> None:
        """A signal came."""
        if not self.is_wanted:
            self.is_wanted = True
            self._on_first()
        elif number != signal.SIGHUP:
            self._at_once()


@contextlib.contextmanager
def heeding(interrupt: Interrupt) -> Iterator[None]:
    """Signals go to the interrupt while this lasts; outside the main thread none can be had."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    earlier = {number: signal.getsignal(number) for number in _SIGNALS}
    if earlier[signal.SIGHUP] is signal.SIG_IGN:
        del earlier[signal.SIGHUP]
    for number in earlier:
        loop.add_signal_handler(number, interrupt.come, number)
    try:
        yield
    finally:
        for number, handler in earlier.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler or signal.SIG_DFL)


# So many trials at once: a few workers that take the next one when they are free
#
# There is no task for a trial that has not begun, so that ten thousand of them cost nothing.


class Queue[T]:
    """Items that are worked on in order, at most so many at once."""

    def __init__(self, items: Iterable[T]) -> None:
        self._items = iter(items)
        self._workers: list[asyncio.Task[None]] = []
        self._is_stopped = False
        self._failure: BaseException | None = None

    async def work(self, run: Callable[[T], Awaitable[None]], n_workers: int) -> None:
        """Work on every item, or until `stop` is called; what runs then is cancelled.

        Raises:
            BaseException: what an item raised; no further one was begun, the running ones were
                cancelled.
        """
        self._workers = [asyncio.create_task(self._work(run)) for _ in range(n_workers)]
        try:
            await asyncio.wait(self._workers)
        except asyncio.CancelledError:
            self.stop()
            await asyncio.wait(self._workers)
            raise
        if self._failure is not None:
            raise self._failure

    def stop(self, failure: BaseException | None = None) -> None:
        """Begin nothing more and cancel what runs; `failure` is then raised by `work`."""
        self._failure = self._failure or failure
        self._is_stopped = True
        for worker in self._workers:
            worker.cancel()

    async def _work(self, run: Callable[[T], Awaitable[None]]) -> None:
        for item in self._items:
            # A trial may end without ever having waited: signals must get their turn.
            await asyncio.sleep(0)
            if self._is_stopped:
                return
            try:
                await run(item)
            except asyncio.CancelledError:
                return
            except Exception as error:  # noqa: BLE001 - raised by `work`, once all have ended
                self.stop(error)
                return


async def run_job(
    options: JobOptions, watch: Watch, executor: Executor | None = None
) -> JobOutcome:
    """Run a job; one of the same name and config that is there already is gone on with.

    Its trials run in this process, unless an executor is given.

    Raises:
        InputError: something that was asked for cannot be had; no trial was begun.
        JobError: another process runs the job, or its own files cannot be written.
    """
    return await _carry_out(await request_run(options), watch, executor)


async def resume_job(
    directory: Path, options: ResumeOptions, watch: Watch, executor: Executor | None = None
) -> JobOutcome:
    """Run what a job has no result of; trials that are done are kept as they are.

    The working directory of the process is the job's own while this runs.

    Raises:
        InputError: something that the job needs cannot be had; no trial was begun.
        JobError: another process runs the job, or its own files cannot be written.
    """
    with opened_job(directory) as job:
        return await _carry_out(await request_resume(job, options), watch, executor)


async def _carry_out(request: Request, watch: Watch, given: Executor | None) -> JobOutcome:
    """A job's life, on one page."""
    executor = given or LocalExecutor(request.place.trials_dir, request.n_concurrent)
    environment = request.prepared.config.environment
    check_ledger(request)
    if not request.is_begun:
        # A job of which no trial could run here leaves no trace.
        check_classes(request.prepared.config)
        await executor.check(environment)
    with held_job(request.place.directory) as files:
        plan = request.plan()
        if request.is_begun and plan.todo:
            check_classes(_find_rest(plan))
            await executor.check(environment)
        _write_own_files(plan, request, files)
        reaping = asyncio.create_task(_reap(executor, environment, files))
        progress = _start_progress(plan)
        watch.job_planned(len(plan.decisions), progress.n_done)
        _say_what_is_odd(plan, request, files, watch)
        with sealing(request.ledger, request.prepared.config, request.host) as sealer:
            _seal_what_is_done(plan, sealer)
            interrupted = False
            if plan.todo:
                running = Running(executor, files, watch, reaping, sealer)
                interrupted = await _run_trials(plan, request, progress, running)
            result = await _write_result(plan, progress, files, interrupted=interrupted)
            if not interrupted:
                await reaping
            if sealer is not None:
                await asyncio.to_thread(sealer.close)
        flakes = await asyncio.to_thread(_write_flakes, plan, progress, files)
        return _make_outcome(plan, progress, result, sealer, flakes, interrupted=interrupted)


async def _reap(executor: Executor, environment: EnvironmentConfig, files: JobFiles) -> None:
    """Remove what killed runs left, beside the job; what had to stay is said in job.log."""
    for sentence in await executor.reap(environment):
        # Where not even job.log can be written, the job's own result says so next.
        with contextlib.suppress(JobError):
            files.append_log(sentence)


def _find_rest(plan: JobPlan) -> JobConfig:
    """The job's config with the agents alone that are still to run."""
    left = {id(decision.slot.agent) for decision in plan.todo}
    config = plan.prepared.config
    return config.model_copy(
        update={"agents": [agent for agent in config.agents if id(agent) in left]}
    )


@dataclass(frozen=True, slots=True)
class Running:
    """What a job's trials are run with."""

    executor: Executor
    files: JobFiles
    watch: Watch
    reaping: asyncio.Task[None]
    sealer: Sealer | None


def _seal_what_is_done(plan: JobPlan, sealer: Sealer | None) -> None:
    """Trials that a kill kept from being sealed, or that ran before there was a ledger."""
    done = [decision for decision in plan.decisions if decision.row is not None]
    if sealer is None or not done:
        return
    experiment = plan.prepared.settings.experiment or plan.prepared.config.job_name
    sealed = find_sealed_names(sealer.trials.directory, experiment)
    for decision in done:
        if decision.trial not in sealed:
            sealer.put(plan.directory / decision.trial)


def _write_own_files(plan: JobPlan, request: Request, files: JobFiles) -> None:
    """proctor.json first: whoever finds a config.json finds the settings with it."""
    earlier = plan.existing
    state = JobState(
        proctor=__version__,
        job_id=plan.job_id,
        started_at=plan.started_at,
        cwd=str(plan.cwd),
        settings=plan.prepared.settings.model_dump(mode="json"),
        environment=plan.prepared.environment,
        slots=plan.named_slots,
        refused=[str(refused.path) for refused in plan.prepared.resolved.refused],
        ledger=str(request.ledger.directory) if request.ledger is not None else None,
        unplanned=list(plan.unplanned),
    )
    written = earlier.state
    same_slots = written is not None and written.slots == state.slots
    is_same = written is not None and (written.unplanned, written.ledger) == (
        state.unplanned,
        state.ledger,
    )
    if not (same_slots and is_same):
        files.write_state(state)
    if earlier.config is None:
        files.write_config(plan.prepared.config.model_dump_json(indent=4).encode())
    if not (same_slots and files.has_lock()):
        lock = lock_slots(
            plan.prepared.config,
            plan.prepared.slots,
            plan.prepared.resolved,
            invocation=request.invocation,
            created_at=datetime.now(UTC),
            host=request.host,
        )
        files.write_lock(render_lock(lock))


def _start_progress(plan: JobPlan) -> Progress:
    """The figures, with the trials that are done already."""
    declared = plan.prepared.metrics
    # A script is run once, at the end: it may take as long as it likes.
    quick = {
        name: [metric for metric in metrics if metric.name != SCRIPT]
        for name, metrics in declared.items()
    }
    progress = Progress(
        len(plan.decisions), make_metrics(declared), live_metrics=make_metrics(quick)
    )
    progress.n_retries = plan.existing.n_retries
    for decision in plan.decisions:
        if decision.row is not None:
            progress.keep(decision.slot.index, decision.row)
    return progress


def _say_what_is_odd(plan: JobPlan, request: Request, files: JobFiles, watch: Watch) -> None:
    """What the person should know before the first trial begins."""
    chosen = plan.prepared.environment
    files.append_log(f"Environment: {chosen.kind} ({chosen.why})")
    resolved = plan.prepared.resolved
    odd = [f"Task {one.name} is left out: {one.path}: {one.reason}" for one in resolved.refused]
    odd += resolved.notes
    odd += dict.fromkeys(filter(None, map(find_note, plan.prepared.config.agents)))
    if then := plan.existing.state:
        change = describe_change(then.environment, plan.prepared.config.environment)
        odd += [change] if change and plan.todo else []
    odd += [
        f"Trial {named.trial} is no longer planned: its task, agent or environment has changed "
        "since. It stays as it is and is in no number"
        for named in plan.unplanned
    ]
    odd += [
        f"{plan.directory / name} is no trial of this job: it stays as it is and is in no number"
        for name in plan.strangers
    ]
    odd += find_idle(request.also, plan.decisions)
    for sentence in odd:
        files.append_log(sentence)
        watch.said(sentence)


async def _run_trials(
    plan: JobPlan,
    request: Request,
    progress: Progress,
    running: Running,
) -> bool:
    """Run what is to be run; whether a signal ended it."""
    files, watch = running.files, running.watch
    _write(files, _result(plan, progress, updated_at=local_now()))
    queue = Queue(plan.todo)

    def stop() -> None:
        watch.said("stopping: what runs is ended and recorded; another Ctrl-C stops at once")
        queue.stop()

    interrupt = Interrupt(stop, request.stop_at_once)
    durable = Durable(str(files.directory), files.append_log)

    def write() -> None:
        durable.begin()
        progress.refresh_metrics()
        files.write_live_result(
            render_result(_result(plan, progress, updated_at=datetime.now(UTC)))
        )

    result_file = ResultFile(write, queue.stop)
    runner = SlotRunner(
        files=files,
        durable=durable,
        retry=plan.prepared.config.retry,
        executor=running.executor,
        make_spec=plan.make_spec,
        progress=progress,
        watch=watch,
        changed=result_file.changed,
        reaping=running.reaping,
        sealer=running.sealer,
    )
    with heeding(interrupt):
        try:
            await queue.work(runner.run, min(running.executor.capacity, len(plan.todo)))
        finally:
            result_file.close()
            await durable.finish()
    return interrupt.is_wanted


async def _write_result(
    plan: JobPlan, progress: Progress, files: JobFiles, *, interrupted: bool
) -> JobResult:
    """result.json at the end of this run; one that says the same already is left alone."""
    if interrupted:
        progress.refresh_metrics()
        result = _result(plan, progress, updated_at=datetime.now(UTC))
        _write(files, result)
        return result
    # In a thread, so that a metric's script can be stopped with Ctrl-C.
    stats = await asyncio.to_thread(progress.final_stats)
    earlier = plan.existing.published
    if not plan.todo and earlier is not None and earlier.finished_at is not None:
        result = JobResult(
            str(plan.job_id),
            plan.started_at,
            earlier.updated_at,
            earlier.finished_at,
            progress.n_planned,
            stats,
        )
        if files.is_result(render_result(result)):
            return result
    now = local_now()
    result = JobResult(str(plan.job_id), plan.started_at, now, now, progress.n_planned, stats)
    _write(files, result)
    return result


def _result(plan: JobPlan, progress: Progress, *, updated_at: datetime) -> JobResult:
    """The job so far."""
    return JobResult(
        str(plan.job_id), plan.started_at, updated_at, None, progress.n_planned, progress.stats
    )


def _write(files: JobFiles, result: JobResult) -> None:
    files.write_result(render_result(result))


def _write_flakes(plan: JobPlan, progress: Progress, files: JobFiles) -> Flakes | None:
    """flakes.json, where trials are verified again."""
    n = plan.prepared.settings.verify_again
    if not n:
        return None
    flakes = find_flakes(plan.directory, progress.names(), n)
    files.write_flakes(render_flakes(flakes))
    return flakes


def _make_outcome(
    plan: JobPlan,
    progress: Progress,
    result: JobResult,
    sealer: Sealer | None,
    flakes: Flakes | None,
    *,
    interrupted: bool,
) -> JobOutcome:
    table = progress.table()
    counts = Counts.of(
        table,
        planned=len(plan.decisions),
        kept=sum(decision.row is not None for decision in plan.decisions),
        retried=progress.n_retries,
    )
    return JobOutcome(
        directory=plan.directory,
        result=result,
        counts=counts,
        refused=plan.prepared.resolved.refused,
        unplanned=[named.trial for named in plan.unplanned],
        notes=[*plan.prepared.resolved.notes, *progress.notes],
        interrupted=interrupted,
        is_marked=not plan.prepared.config.verifier.disable,
        sealed=sealer.trials if sealer is not None else None,
        flakes=flakes,
        table=table,
    )
