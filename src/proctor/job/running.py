"""Run one slot of a job with its retries: run the trial, count it, keep it, and retry it.

The job continues whatever a trial does. A trial that could not write its own files has no result on
disk: it is counted as errored and reported, and resume runs it again.
"""

import asyncio
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import msgspec

from proctor.errors import ClusterError, JobError
from proctor.files import read_inside, write_atomic
from proctor.harbor.configs import RetryConfig
from proctor.harbor.stats import CANCELLED
from proctor.harbor.trial_result import (
    ExceptionInfo,
    TrialResult,
    counted,
    render_trial_result,
)
from proctor.job.attempts import count_attempts, keep_attempt, take_over
from proctor.job.durable import Durable
from proctor.job.options import MOST_LOST
from proctor.job.progress import Progress, local_now
from proctor.job.resume import Decision, SlotAction
from proctor.job.retry import is_retried, retry_delay
from proctor.job.sealing import Sealer
from proctor.job.store import JobFiles
from proctor.job.watch import Watch
from proctor.ledger.submission import ATTEMPTS, list_attempts
from proctor.sentence import count_of
from proctor.trial.executor import Executor, TrialOutcome, is_cancelled
from proctor.trial.finding import ATTEMPT, Finding, Level, level_of, render_findings
from proctor.trial.opening import begin_result
from proctor.trial.paths import TrialPaths
from proctor.trial.spec import TrialSpec

# Findings of earlier attempts, carried over to the next one so that a retry does not erase them
#
# They are read from `<trial>/attempts/N/findings.json`, each from the attempt in which it was made.
# Does not write files.


MOST = 100
"""Most findings carried over, from all earlier attempts together."""
_LARGEST = 16 << 20
# Before a trial whose machine died is run again.
_LOST_SEC = 1.0
_ORDER = (Level.ALARM, Level.NOTICE, Level.INFO)
_decode = msgspec.json.Decoder(list[Finding]).decode


class Carried(msgspec.Struct, frozen=True):
    """Findings that earlier attempts pass on to the next one."""

    findings: tuple[Finding, ...]
    """By attempt; each names its attempt in its message and in `detail.attempt`."""
    problems: tuple[str, ...]
    """Findings that could not be carried over, as sentences."""


def carry_findings(trial_dir: str) -> Carried:
    """Load the findings of all kept attempts at a trial; if there are too many, the most severe."""
    found: list[Finding] = []
    problems: list[str] = []
    for attempt in list_attempts(Path(trial_dir)):
        path = f"{attempt}/findings.json"
        try:
            found += _load(trial_dir, path, int(attempt.name))
        except FileNotFoundError:
            # An attempt without findings has no such file.
            continue
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            name = attempt.name
            problems.append(f"{path}: the findings of attempt {name} cannot be read: {error}")
    if len(found) > MOST:
        problems.append(
            f"{trial_dir}: {len(found) - MOST} of {len(found)} findings of earlier attempts are "
            f"only in {ATTEMPTS}/; the trial lists {MOST}"
        )
    gravest = sorted(found, key=lambda each: _ORDER.index(level_of(each.code)))[:MOST]
    return Carried(tuple(sorted(gravest, key=_number_of)), tuple(problems))


def _load(trial_dir: str, path: str, number: int) -> Iterator[Finding]:
    for finding in _decode(read_inside(trial_dir, path, _LARGEST)):
        # Skip findings carried over from earlier attempts: they are read where they were made.
        if ATTEMPT not in finding.detail:
            yield msgspec.structs.replace(
                finding,
                message=f"attempt {number}: {finding.message}",
                detail={**finding.detail, ATTEMPT: number},
            )


def _number_of(finding: Finding) -> int:
    return int(str(finding.detail[ATTEMPT]))


class SlotRunner(msgspec.Struct, frozen=True, kw_only=True):
    """Runs the slots of one job."""

    retry: RetryConfig
    executor: Executor
    make_spec: Callable[[Decision, int], TrialSpec]
    """Makes a slot's trial, given the number of the attempt."""
    progress: Progress
    watch: Watch
    changed: Callable[[], None]
    """Called when the job's statistics have changed."""
    files: JobFiles
    """The job's own files."""
    durable: Durable
    """Flushes results to the disk."""
    sealer: Sealer | None
    """Seals trials as they end; None: they are not sealed."""
    reaping: asyncio.Task[None]
    """Recovers files from killed environments; a trial that is redone waits for it."""
    max_lost: int = MOST_LOST
    """How often a trial is run again because the machine that ran it died."""

    async def run(self, decision: Decision) -> None:
        """Run a slot until it has a result that counts.

        Raises:
            JobError: the job's own files are gone or cannot be written.
        """
        self.files.check_held()
        if not await self._keep_redone(decision):
            return
        n_retried = n_lost = 0
        attempt = count_attempts(f"{self.files.directory}/{decision.trial}") + 1
        while True:
            outcome = await self._run_attempt(decision, attempt)
            result = outcome.result
            is_stopped = is_cancelled()
            if is_stopped or _find_error(result) == CANCELLED:
                self.files.append_log(f"Trial {decision.trial} cancelled")
            elif outcome.is_lost:
                # Neither a failure nor a score of the trial: it is run again, or has no result.
                if not await self._keep_lost(decision, result, attempt, n_lost):
                    return
                n_lost += 1
                attempt += 1
                continue
            elif await self._set_aside(decision, result, n_retried):
                await self._wait(decision, result, attempt, retry_delay(self.retry, n_retried))
                n_retried += 1
                attempt += 1
                continue
            self._end(decision, result)
            # Re-raise only after the trial was counted: its files are complete.
            if is_stopped:
                raise asyncio.CancelledError
            return

    async def _keep_redone(self, decision: Decision) -> bool:
        """Move what an earlier run left aside; return whether the slot can be run."""
        if decision.deed is not SlotAction.REDO:
            return True
        # Recovered files belong to the earlier attempt, so they must arrive before it is moved
        # aside.
        await asyncio.wait([self.reaping])
        return await self._keep(decision)

    async def _keep_lost(
        self, decision: Decision, result: TrialResult, attempt: int, n_lost: int
    ) -> bool:
        """Keep a lost attempt; return whether the trial is run again."""
        is_kept = await self._set_lost_aside(decision)
        if is_kept and n_lost < self.max_lost:
            await self._wait(decision, result, attempt, _LOST_SEC)
            return True
        self._log_failure(decision, result)
        self.changed()
        # Its attempts are evidence, whether or not a resume follows. What could not be kept still
        # stands as the trial itself, which has no score: the resume keeps it and seals it.
        if is_kept and self.sealer is not None:
            self.sealer.put(self.files.directory / decision.trial)
        self._say(
            f"Trial {decision.trial} has no result: {count_of(n_lost + 1, 'worker')} that ran it "
            f"died. `proctor resume {self.files.directory}` runs it again"
        )
        return False

    async def _set_lost_aside(self, decision: Decision) -> bool:
        try:
            return await self._keep(decision)
        finally:
            self.progress.leave()

    async def _set_aside(self, decision: Decision, result: TrialResult, n_retried: int) -> bool:
        """Move an attempt's files aside if another attempt follows; return whether one does."""
        error = _find_error(result)
        if error is None or not is_retried(error, self.retry, n_retried):
            return False
        try:
            is_kept = await self._keep(decision)
        except asyncio.CancelledError:
            self.progress.leave()
            raise
        if is_kept:
            self.progress.leave()
        return is_kept

    async def _keep(self, decision: Decision) -> bool:
        try:
            # In a thread: it waits for the disk.
            await asyncio.to_thread(keep_attempt, self.files.directory / decision.trial)
        except OSError as error:
            self._say(
                f"Trial {decision.trial} is not run again: what it left cannot be kept: "
                f"{error.filename}: {error.strerror}"
            )
            return False
        return True

    async def _wait(
        self, decision: Decision, result: TrialResult, attempt: int, delay: float
    ) -> None:
        self._log_failure(decision, result)
        if result.exception_info is not None:
            self.files.append_log(
                f"Trial {decision.trial} failed with exception "
                f"{result.exception_info.exception_type}. Retrying in {delay:.2f} seconds..."
            )
        self.changed()
        self.watch.trial_retried(decision.trial, attempt, result, delay)
        await asyncio.sleep(delay)
        self.progress.n_retries += 1

    async def _run_attempt(self, decision: Decision, attempt: int) -> TrialOutcome:
        """Run one attempt; its files are in the job's directory when this returns."""
        self.progress.begin()
        self.changed()
        self.watch.trial_started(decision.trial, decision.slot.planned.task.name, attempt)
        spec = await self._specify(decision, attempt)
        watch = partial(self.watch.phase_began, decision.trial)
        try:
            outcome = await self.executor.run(spec, watch)
            await take_over(outcome.directory, self.files.directory / decision.trial)
        except (Exception, asyncio.CancelledError) as error:
            # The trial boundary: no failure of one trial ends the others.
            if isinstance(error, asyncio.CancelledError) and is_cancelled():
                self.files.append_log(f"Trial {decision.trial} cancelled")
                self.progress.leave()
                raise
            errored = self._make_errored(spec, error)
            return TrialOutcome(errored, self.files.directory / decision.trial)
        return outcome

    async def _specify(self, decision: Decision, attempt: int) -> TrialSpec:
        spec = self.make_spec(decision, attempt)
        if attempt == 1:
            return spec
        # In a thread: it waits for the disk.
        trial_dir = f"{self.files.directory}/{decision.trial}"
        carried = await asyncio.to_thread(carry_findings, trial_dir)
        for problem in carried.problems:
            self._say(problem)
        return replace(spec, carried=carried.findings)

    def _say(self, sentence: str) -> None:
        self.files.append_log(sentence)
        self.watch.said(sentence)

    def _log_failure(self, decision: Decision, result: TrialResult) -> None:
        if result.exception_info is not None and result.exception_info.exception_message:
            self.files.append_log(
                f"Trial {decision.trial} failed: {result.exception_info.exception_message}"
            )

    def _end(self, decision: Decision, result: TrialResult) -> None:
        self._log_failure(decision, result)
        self.durable.note(decision.trial)
        self.progress.end(decision.slot.index, counted(result))
        self.changed()
        self.watch.trial_ended(decision.trial, result, self.progress.stats)
        # A cancelled trial is not sealed: resume runs it again.
        if self.sealer is not None and _find_error(result) != CANCELLED:
            self.sealer.put(self.files.directory / decision.trial)

    def _make_errored(self, spec: TrialSpec, error: BaseException) -> TrialResult:
        """Make a result for a trial that could not make its own."""
        # The job's own files or its cluster failed, not the trial: that ends the job.
        if isinstance(error, JobError | ClusterError):
            raise error
        paths = TrialPaths(self.files.directory / spec.name)
        result = begin_result(spec)
        result.exception_info = ExceptionInfo(
            exception_type=type(error).__name__,
            exception_message=str(error),
            exception_traceback="".join(traceback.format_exception(error)),
            occurred_at=local_now(),
        )
        with suppress(OSError):
            # If the directory is gone or the disk is full, resume runs the trial again.
            paths.trial_dir.mkdir(parents=True, exist_ok=True)
            write_atomic(paths.result_path, render_trial_result(result))
            # The trial never wrote its findings, and those of earlier attempts must not get lost.
            if spec.carried and not paths.findings_path.exists():
                write_atomic(paths.findings_path, render_findings(spec.carried))
        return result


def _find_error(result: TrialResult) -> str | None:
    return result.exception_info.exception_type if result.exception_info else None
