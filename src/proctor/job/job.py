"""Run a job or resume it, from its first file to its result.

    run_job(options, watch)                 a new job, or the rest of an existing one
    resume_job(directory, options, watch)   the rest of a job, from its own files alone

Both plan first and write nothing until the plan is complete. The next run continues from what a
killed run left: every file is whole, and a trial's name is recorded before its directory is
created.
"""

import asyncio
import contextlib
import signal
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path

import msgspec

from proctor import __version__
from proctor.agents.foreign import find_note
from proctor.errors import JobError
from proctor.harbor.configs import EnvironmentConfig, JobConfig
from proctor.harbor.declared import SCRIPT
from proctor.harbor.lock import render_lock
from proctor.harbor.stats import JobResult, render_result
from proctor.job.attempts import count_attempts
from proctor.job.classes import check_classes
from proctor.job.durable import Durable
from proctor.job.flakes import Flakes, find_flakes, render_flakes
from proctor.job.gateway import find_gateway, find_unreached
from proctor.job.images import describe_change
from proctor.job.local_executor import open_local
from proctor.job.lock import lock_slots
from proctor.job.metrics import make_metrics
from proctor.job.options import (
    Counts,
    ExecutorOrder,
    JobOptions,
    JobOutcome,
    LedgerOptions,
    ResumeOptions,
)
from proctor.job.planning import JobPlan
from proctor.job.progress import Progress, local_now
from proctor.job.request import Request, opened_job, request_resume, request_run
from proctor.job.resume import find_unmatched
from proctor.job.running import SlotRunner
from proctor.job.sealing import Sealer, check_ledger, find_sealed_names, sealing
from proctor.job.store import JobFiles, JobState, held_job
from proctor.job.watch import Watch
from proctor.ledger.place import find_url
from proctor.trial.executor import Executor

# Writing result.json while a job runs: atomically, at most once a second


_SECONDS = 1.0
# Limit writing to a twentieth of the elapsed time, so that very large jobs write less often.
_SHARE = 20


class ResultFile:
    """Writes result.json after changes, immediately or as soon as the rate limit allows."""

    def __init__(self, write: Callable[[], None], on_failure: Callable[[JobError], None]) -> None:
        self._write = write
        self._on_failure = on_failure
        self._loop = asyncio.get_running_loop()
        self._next = self._loop.time()
        self._later: asyncio.TimerHandle | None = None

    def changed(self) -> None:
        """Schedule a write."""
        if self._later is None:
            wait = self._next - self._loop.time()
            if wait <= 0:
                self._write_now()
            else:
                self._later = self._loop.call_later(wait, self._write_now)

    def close(self) -> None:
        """Stop writing."""
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
        # Measured from the end of the write, so that a slow disk is not kept busy all the time.
        self._next = ended + max(_SECONDS, _SHARE * (ended - began))


# Ctrl-C: once finishes the record-keeping, twice exits at once. SIGTERM counts as Ctrl-C
#
# So does the first SIGHUP, but only the first: a closing terminal often sends several, which does
# not mean that the user is impatient. If SIGHUP was ignored at the start (nohup), it stays ignored.


_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupt:
    """Whether the user asked the job to stop, and the callback to run then."""

    def __init__(self, on_first: Callable[[], None], at_once: Callable[[], None]) -> None:
        self.is_wanted = False
        """Whether a signal arrived."""
        self._on_first = on_first
        self._at_once = at_once

    def come(self, number: int) -> None:
        """Handle a signal."""
        if not self.is_wanted:
            self.is_wanted = True
            self._on_first()
        elif number != signal.SIGHUP:
            self._at_once()


@contextlib.contextmanager
def handling_signals(interrupt: Interrupt) -> Iterator[None]:
    """Deliver signals to the interrupt inside the context; does nothing outside the main thread."""
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
            # getsignal returns None for a handler that was not installed from Python.
            signal.signal(number, handler or signal.SIG_DFL)


# Limiting concurrency: a few workers that each take the next trial
#
# A trial that has not begun has no asyncio task, so ten thousand waiting trials cost nothing.


class Queue[T]:
    """Items that are processed in order by a limited number of workers."""

    def __init__(self, items: Iterable[T]) -> None:
        self._items = iter(items)
        self._workers: list[asyncio.Task[None]] = []
        self._is_stopped = False
        self._failure: BaseException | None = None

    async def work(self, run: Callable[[T], Awaitable[None]], n_workers: int) -> None:
        """Process every item, or until `stop` is called, which cancels the running ones.

        Raises:
            BaseException: raised by an item; the running ones were cancelled and no others begun.
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
        """Begin no more items and cancel the running ones; `work` then raises `failure`."""
        self._failure = self._failure or failure
        self._is_stopped = True
        for worker in self._workers:
            worker.cancel()

    async def _work(self, run: Callable[[T], Awaitable[None]]) -> None:
        # All workers share one iterator, so each item is taken once.
        for item in self._items:
            # A trial may end without ever yielding to the event loop: let it handle signals.
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
    """Run a job; an existing job of the same name and config is resumed.

    Trials run in this process unless an executor is given.
    """
    return await _run_request(await request_run(options), watch, executor)


async def resume_job(
    directory: Path, options: ResumeOptions, watch: Watch, executor: Executor | None = None
) -> JobOutcome:
    """Run the trials of a job that have no result; existing results are kept.

    Changes the working directory of the process to the job's while it runs.
    """
    with opened_job(directory) as job:
        return await _run_request(await request_resume(job, options), watch, executor)


async def _run_request(request: Request, watch: Watch, given: Executor | None) -> JobOutcome:
    """Run a job with its executor and, if its trials reach models, its gateway."""
    if given is not None:
        return await _run_with(given, request, watch)
    prepared = request.prepared
    tasks = [planned.task for planned in prepared.resolved.tasks]
    recordings = prepared.recordings.values()
    options = find_gateway(
        prepared.config, prepared.settings.models, tasks, request.options.host, recordings
    )
    order = ExecutorOrder(
        trials_dir=request.place.trials_dir,
        config=prepared.config,
        tasks=tasks,
        n_concurrent=request.n_concurrent,
        host=request.options.host,
    )
    open_executor = request.options.open_executor or open_local
    if options is None:
        async with open_executor(order) as executor:
            return await _run_with(executor, request, watch)
    # On use: most jobs need no server, and loading one takes a while.
    async with import_module("proctor.gateway.gateway").open_gateway(options) as models:
        models.on_use = watch.models_used
        async with open_executor(msgspec.structs.replace(order, models=models)) as executor:
            return await _run_with(executor, request, watch)


async def _run_with(executor: Executor, request: Request, watch: Watch) -> JobOutcome:
    """Run a job from its checks to its outcome."""
    environment = request.prepared.config.environment
    check_ledger(request)
    if not request.is_begun:
        # Before any file is written: a job that cannot run here leaves no trace.
        check_classes(request.prepared.config)
        await executor.check(environment)
    with held_job(request.place.directory) as files:
        plan = request.plan()
        if request.is_begun and plan.todo:
            check_classes(_remaining_config(plan))
            await executor.check(environment)
        _write_own_files(plan, request, files)
        reaping = asyncio.create_task(_reap(executor, environment, files))
        progress = _start_progress(plan)
        watch.job_planned(len(plan.decisions), progress.n_done)
        _report_notes(plan, request, files, watch)
        with sealing(request.ledger, request.prepared.config, request.options.host) as sealer:
            _seal_finished(plan, sealer)
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
    """Remove what killed runs left, in the background; failures go to job.log."""
    for sentence in await executor.reap(environment):
        # If job.log cannot be written, writing the job's result fails next and reports it.
        with contextlib.suppress(JobError):
            files.append_log(sentence)


def _remaining_config(plan: JobPlan) -> JobConfig:
    """The job's config with only the agents that still have trials to run."""
    # By identity: two agents of a config may be equal.
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


def _seal_finished(plan: JobPlan, sealer: Sealer | None) -> None:
    """Seal trials that a killed run had not sealed, or that ran before there was a ledger.

    A trial that was run again has the name of a sealed one: whether it is sealed itself is found
    out when it is read.
    """
    done = [decision for decision in plan.decisions if decision.row is not None]
    if sealer is None or not done:
        return
    experiment = plan.prepared.settings.experiment or plan.prepared.config.job_name
    sealed = find_sealed_names(sealer.trials.directory, experiment)
    for decision in done:
        trial = plan.directory / decision.trial
        if decision.trial not in sealed or count_attempts(str(trial)):
            sealer.put(trial)


def _write_own_files(plan: JobPlan, request: Request, files: JobFiles) -> None:
    """Write proctor.json first, so that every config.json has its settings next to it."""
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
        ledger=_name_ledger(request.ledger),
        unplanned=list(plan.unplanned),
        datasets=list(plan.prepared.resolved.pinned_datasets),
        images=dict(plan.prepared.pulled),
    )
    written = earlier.state
    same_slots = written is not None and written.slots == state.slots
    is_same = written is not None and (written.unplanned, written.ledger, written.images) == (
        *(state.unplanned, state.ledger),
        state.images,
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
            invocation=request.options.invocation,
            created_at=datetime.now(UTC),
            host=request.options.host,
        )
        files.write_lock(render_lock(lock))


def _name_ledger(options: LedgerOptions | None) -> str | None:
    """The name by which resume finds a ledger: of a served one the address, also elsewhere."""
    if options is None:
        return None
    return find_url(options.directory) or str(options.directory)


def _start_progress(plan: JobPlan) -> Progress:
    """Statistics that include the trials that are already done."""
    declared = plan.prepared.metrics
    # Metric scripts run only once, at the end: they may take long.
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


def _report_notes(plan: JobPlan, request: Request, files: JobFiles, watch: Watch) -> None:
    """Report what the user should know before the first trial begins."""
    chosen = plan.prepared.environment
    files.append_log(f"Environment: {chosen.kind} ({chosen.why})")
    resolved = plan.prepared.resolved
    odd = [f"Task {one.name} is left out: {one.path}: {one.reason}" for one in resolved.refused]
    odd += resolved.notes
    odd += dict.fromkeys(filter(None, map(find_note, plan.prepared.config.agents)))
    prepared = plan.prepared
    odd += find_unreached(prepared.config, prepared.settings.models, request.options.host)
    if then := plan.existing.state:
        change = describe_change(then.environment, plan.prepared.config.environment)
        odd += [change] if change and plan.todo else []
    odd += [
        f"Trial {named.trial} is no longer planned: its task, agent or environment has changed "
        "since. It is kept but not counted"
        for named in plan.unplanned
    ]
    odd += [
        f"{plan.directory / name} is not a trial of this job: it is left alone and not counted"
        for name in plan.strangers
    ]
    unplanned = [named.trial for named in plan.unplanned]
    odd += find_unmatched(request.options.also, plan.decisions, plan.directory, unplanned)
    for sentence in odd:
        files.append_log(sentence)
        if sentence not in request.known:
            watch.said(sentence)


async def _run_trials(
    plan: JobPlan,
    request: Request,
    progress: Progress,
    running: Running,
) -> bool:
    """Run the pending trials; return whether a signal ended the run."""
    files, watch = running.files, running.watch
    _write(files, _result(plan, progress, updated_at=local_now()))
    queue = Queue(plan.todo)

    def stop() -> None:
        watch.said("stopping: what runs is ended and recorded; another Ctrl-C stops at once")
        queue.stop()

    interrupt = Interrupt(stop, request.options.stop_at_once)
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
        max_lost=request.options.max_lost,
    )
    # Signals are handled only while trials run: before and after, Ctrl-C may end the process at
    # once.
    with handling_signals(interrupt):
        try:
            await queue.work(runner.run, min(running.executor.capacity, len(plan.todo)))
        finally:
            result_file.close()
            await durable.finish()
    return interrupt.is_wanted


async def _write_result(
    plan: JobPlan, progress: Progress, files: JobFiles, *, interrupted: bool
) -> JobResult:
    """Write result.json at the end of this run, unless it has the same contents already."""
    if interrupted:
        progress.refresh_metrics()
        result = _result(plan, progress, updated_at=datetime.now(UTC))
        _write(files, result)
        return result
    # In a thread, so that Ctrl-C can stop a metric's script.
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
    """The result of the job so far."""
    return JobResult(
        str(plan.job_id), plan.started_at, updated_at, None, progress.n_planned, progress.stats
    )


def _write(files: JobFiles, result: JobResult) -> None:
    files.write_result(render_result(result))


def _write_flakes(plan: JobPlan, progress: Progress, files: JobFiles) -> Flakes | None:
    """Write flakes.json if trials were verified again."""
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
    counts = Counts.of_job(
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
        replay=plan.prepared.settings.models.replay,
        table=table,
    )
