"""One slot of a job, with its retries: the trial is run, counted, kept and run again.

Whatever a trial does, the job goes on. A trial that could not write its own files has no result on
disk; it is counted as errored, the sentence is said, and resume runs it again.
"""

import asyncio
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial

import msgspec
from pydantic import ValidationError

from proctor.errors import JobError
from proctor.files import read_inside, read_small, write_atomic
from proctor.harbor.configs import RetryConfig
from proctor.harbor.stats import CANCELLED
from proctor.harbor.trial_result import (
    AgentInfo,
    ExceptionInfo,
    TrialResult,
    counted,
    parse_trial_result,
    render_trial_result,
    task_id_of,
)
from proctor.job.durable import Durable
from proctor.job.kept import ATTEMPTS, count_attempts, keep_attempt, list_attempts
from proctor.job.progress import Progress, local_now
from proctor.job.reaping import Reaping
from proctor.job.resume import Decision, SlotAction
from proctor.job.retry import is_retried, retry_delay
from proctor.job.sealing import Sealer
from proctor.job.store import JobFiles
from proctor.job.watch import Watch
from proctor.trial.finding import ATTEMPT, Finding, Level, level_of, render_findings
from proctor.trial.order import Kinds
from proctor.trial.plan import Plan
from proctor.trial.trial import run_trial

# Findings of earlier attempts at a trial, for the attempt that follows: no retry wipes them off
#
# They are read from `<trial>/attempts/N/findings.json`, each from the attempt that it was made in.
# Nothing here writes a file.


MOST = 100
"""Findings that are carried on, of all earlier attempts together."""
_LARGEST = 16 << 20
_ORDER = (Level.ALARM, Level.NOTICE, Level.INFO)
_decode = msgspec.json.Decoder(list[Finding]).decode


class Carried(msgspec.Struct, frozen=True):
    """What earlier attempts leave to the next one."""

    findings: tuple[Finding, ...]
    """By attempt; each names its attempt in its message and in `detail.attempt`."""
    problems: tuple[str, ...]
    """What could not be carried on, as sentences."""


def carry_findings(trial_dir: str) -> Carried:
    """The findings of all attempts at a trial that were kept; of too many, the gravest."""
    found: list[Finding] = []
    problems: list[str] = []
    for number in list_attempts(trial_dir):
        try:
            found += _load(trial_dir, number)
        except FileNotFoundError:
            # An attempt without findings has no such file.
            continue
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            path = f"{trial_dir}/{ATTEMPTS}/{number}/findings.json"
            problems.append(f"{path}: the findings of attempt {number} cannot be read: {error}")
    if len(found) > MOST:
        problems.append(
            f"{trial_dir}: {len(found) - MOST} of {len(found)} findings of earlier attempts are "
            f"only in {ATTEMPTS}/; the trial lists {MOST}"
        )
    gravest = sorted(found, key=lambda each: _ORDER.index(level_of(each.code)))[:MOST]
    return Carried(tuple(sorted(gravest, key=_number_of)), tuple(problems))


def _load(trial_dir: str, number: int) -> Iterator[Finding]:
    data = read_inside(trial_dir, f"{trial_dir}/{ATTEMPTS}/{number}/findings.json", _LARGEST)
    for finding in _decode(data):
        # Those that this attempt was left by others are read where they were made.
        if ATTEMPT not in finding.detail:
            yield msgspec.structs.replace(
                finding,
                message=f"attempt {number}: {finding.message}",
                detail={**finding.detail, ATTEMPT: number},
            )


def _number_of(finding: Finding) -> int:
    return int(str(finding.detail[ATTEMPT]))


type MakePlan = Callable[[Decision, int], Plan]
"""The plan of a slot's trial, given the number of the attempt."""


class SlotRunner(msgspec.Struct, frozen=True, kw_only=True):
    """Runs the slots of one job."""

    retry: RetryConfig
    kinds: Kinds
    make_plan: MakePlan
    progress: Progress
    watch: Watch
    changed: Callable[[], None]
    """Called when the job's figures have changed."""
    files: JobFiles
    """The job's own."""
    durable: Durable
    """Brings results to the disk."""
    sealer: Sealer | None = None
    """Seals trials as they end; None: they are not sealed."""
    reaping: Reaping | None = None
    """What brings in what killed sandboxes hold; a trial that is run again waits for it."""

    async def run(self, decision: Decision) -> None:
        """Run a slot until it has a result that counts.

        Raises:
            JobError: the job's own files are gone, or cannot be written.
        """
        self.files.check_held()
        if decision.deed is SlotAction.REDO:
            if self.reaping is not None:
                await self.reaping.wait()
            if not await self._keep(decision):
                return
        n_retried = 0
        attempt = count_attempts(f"{self.files.directory}/{decision.trial}") + 1
        while True:
            result = await self._run_attempt(decision, attempt)
            if result is None:
                return
            if not await self._is_put_aside(decision, result, n_retried):
                self._end(decision, result)
                return
            await self._wait(decision, result, attempt, retry_delay(self.retry, n_retried))
            n_retried += 1
            attempt += 1

    async def _is_put_aside(self, decision: Decision, result: TrialResult, n_retried: int) -> bool:
        """Whether what an attempt left is kept and in no number, because another follows."""
        error = result.exception_info
        if error is None or not is_retried(error.exception_type, self.retry, n_retried):
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
            # Beside the event loop: it waits for the disk.
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

    async def _run_attempt(self, decision: Decision, attempt: int) -> TrialResult | None:
        """Run one attempt; None when it was cancelled, and is counted already."""
        self.progress.begin()
        self.changed()
        self.watch.trial_started(decision.trial, decision.slot.planned.task.name, attempt)
        plan = await self._plan_attempt(decision, attempt)
        try:
            result = await run_trial(
                plan, self.kinds, partial(self.watch.phase_began, decision.trial)
            )
        except asyncio.CancelledError:
            self.files.append_log(f"Trial {decision.trial} cancelled")
            self._end_cancelled(decision, plan)
            if _is_cancelled():
                raise
            return None
        except Exception as error:  # noqa: BLE001 - the trial boundary: one trial ends no other
            result = self._make_errored(plan, error)
        return result

    async def _plan_attempt(self, decision: Decision, attempt: int) -> Plan:
        plan = self.make_plan(decision, attempt)
        if attempt == 1:
            return plan
        # Beside the event loop: it waits for the disk.
        carried = await asyncio.to_thread(carry_findings, plan.place)
        for problem in carried.problems:
            self._say(problem)
        return replace(plan, carried=carried.findings)

    def _say(self, sentence: str) -> None:
        self.files.append_log(sentence)
        self.watch.said(sentence)

    def _end_cancelled(self, decision: Decision, plan: Plan) -> None:
        try:
            result = parse_trial_result(read_small(str(plan.paths.result_path)))
        except (OSError, ValidationError):
            self.progress.leave()
            return
        self._end(decision, result)

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
        error = result.exception_info
        # One that was stopped is run again by resume: its end is still to come.
        if self.sealer is not None and (error is None or error.exception_type != CANCELLED):
            self.sealer.put(self.files.directory / decision.trial)

    def _make_errored(self, plan: Plan, error: Exception) -> TrialResult:
        """The result of a trial that could not make its own."""
        if isinstance(error, JobError):
            raise error
        agent = plan.config.agent
        result = TrialResult(
            task_name=plan.task.name,
            trial_name=plan.config.trial_name,
            trial_uri=plan.paths.trial_dir.absolute().as_uri(),
            task_id=task_id_of(plan.config),
            source=plan.config.task.source,
            task_checksum=plan.digests.task_checksum,
            config=plan.config,
            agent_info=AgentInfo(name=agent.name or agent.import_path or "?", version="unknown"),
            exception_info=ExceptionInfo(
                exception_type=type(error).__name__,
                exception_message=str(error),
                exception_traceback="".join(traceback.format_exception(error)),
                occurred_at=local_now(),
            ),
        )
        with suppress(OSError):
            # The directory may be gone, the disk full: then resume runs it again.
            plan.paths.trial_dir.mkdir(parents=True, exist_ok=True)
            write_atomic(plan.paths.result_path, render_trial_result(result))
            if plan.carried and not plan.paths.findings_path.exists():
                write_atomic(plan.paths.findings_path, render_findings(plan.carried))
        return result


def _is_cancelled() -> bool:
    """Whether the job itself wants to stop, or only something in the trial was cancelled."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
