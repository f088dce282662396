"""Recorded trials, run again one after the other: each as a job of its own, in a new directory.

    <out>/<what>.<time>/
      traces/<trial>/…   the trace that is run again, as it was on record
      jobs/<trial>/      a job of one trial, as `proctor run` leaves it
      reruns.json        what came of them so far; whoever asks for the reruns writes it

What is audited is read and never written to. What the trials ran is run inside environments alone.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol

from proctor.audit.shown import REWARD_ERRORS
from proctor.contained import create_below
from proctor.errors import InputError, NotReplayableError, ProctorError, TraceError
from proctor.files import read_small
from proctor.harbor.configs import JobConfig
from proctor.harbor.trial import FoundTrial, load_trial
from proctor.job.settings import Settings
from proctor.job.wish import JobOutcome
from proctor.record.ids import make_id
from proctor.rerun.observed import compare_all
from proctor.rerun.plan import RerunPlan, make_job, plan_rerun
from proctor.rerun.recorded import RecordedTrial, find_image
from proctor.rerun.tasks import find_task
from proctor.rerun.verdict import Rerun, Verdict, are_same, judge
from proctor.reward.profile import DEFAULT_PROFILE
from proctor.traces.commands import ShellCommand, find_calls
from proctor.traces.trajectory import load_trajectory

_MARKED = REWARD_ERRORS | {"VerifierTimeoutError", "AgentTimeoutError", "NonZeroAgentExitCodeError"}
"""Exceptions that a trial may end in and still say something of the reward."""


class Trials(Protocol):
    """Trials on record, whoever keeps them."""

    @property
    def title(self) -> str:
        """What is audited."""
        ...

    @property
    def n_withheld(self) -> int:
        """How many more there were, of which nothing is known."""
        ...

    @property
    def names(self) -> list[str]:
        """The names of the trials."""
        ...

    def load(self, name: str) -> RecordedTrial:
        """One of them.

        Raises:
            NotReplayableError: its files cannot be used.
        """
        ...


type RunJob = Callable[[JobConfig, Settings], Awaitable[JobOutcome]]
"""Runs a job to its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RerunWish:
    """How trials are to be run again."""

    directory: Path
    """Where all of it lies: absolute, and made by now."""
    tasks: Sequence[Path]
    """Where tasks lie now; empty: where they lay."""
    environment: str | None
    """The kind of environment; None: the recorded one."""
    run_job: RunJob
    began: Callable[[str], None]
    """Told the name of each trial."""
    ended: Callable[[Sequence[Rerun]], None]
    """Told what came of all trials until then, after each of them."""


@dataclass(frozen=True, slots=True)
class Reruns:
    """What came of all of them."""

    reruns: list[Rerun]
    interrupted: bool
    """Stopped by a signal; some may be missing."""


def make_directory(out: Path, title: str, now: datetime) -> Path:
    """A new directory for reruns; its name says of what and when.

    Raises:
        InputError: it cannot be made.
    """
    name = f"{make_id(title)[:100]}.{now:%Y-%m-%d__%H-%M-%S}"
    for suffix in ("", *(f".{n}" for n in range(2, 100))):
        directory = out.absolute() / f"{name}{suffix}"
        try:
            directory.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError as error:
            raise InputError(f"{directory}: cannot be made: {error.strerror}") from error
        return directory
    raise InputError(f"{out}: a hundred reruns of this second are there already")


async def run_again(trials: Trials, names: Sequence[str], wish: RerunWish) -> Reruns:
    """Run trials again, one after the other, and say of each what came of it."""
    reruns: list[Rerun] = []
    for name in names:
        wish.began(name)
        try:
            rerun = await _run_one(trials, name, wish)
        except asyncio.CancelledError:
            # Ctrl-C where no job ran to be stopped by it: what came of the others is told.
            rerun = None
        if rerun is None:
            return Reruns(reruns, interrupted=True)
        reruns.append(rerun)
        wish.ended(reruns)
    return Reruns(reruns, interrupted=False)


async def _run_one(trials: Trials, name: str, wish: RerunWish) -> Rerun | None:
    """One trial; None when it was interrupted."""
    try:
        trial = trials.load(name)
    except NotReplayableError as error:
        return _refuse(name, "", str(error))
    try:
        plan = plan_rerun(trial, wish.environment)
        task = find_task(trial, wish.tasks)
        trace = _put_trace(trial, plan, wish.directory)
        config = make_job(trial, plan, task, wish.directory / "jobs", trace)
        outcome = await wish.run_job(config, Settings(verifier_compat=trial.verifier_compat))
        if outcome.interrupted:
            return None
        return _conclude(trial, plan, outcome)
    except ProctorError as error:
        # Also a sandbox that cannot be had here: the next trial may want another one.
        return _refuse(trial.name, trial.result.task_name, str(error))


def _put_trace(trial: RecordedTrial, plan: RerunPlan, directory: Path) -> Path | None:
    if trial.trace is None or not plan.commands:
        return None
    path = f"traces/{make_id(trial.name)}/{trial.trace.name}"
    try:
        with create_below(directory, path) as file:
            file.write(trial.trace.data)
    except OSError as error:
        raise InputError(f"{directory / path}: cannot be written: {error.strerror}") from error
    return directory / path


def _conclude(trial: RecordedTrial, plan: RerunPlan, outcome: JobOutcome) -> Rerun:
    """What the trial of the new job says of the recorded one."""
    written = list(outcome.directory.glob("*/result.json"))
    if len(written) != 1:
        raise NotReplayableError(f"the new trial left no result: {outcome.directory}")
    found = load_trial(str(written[0].parent), DEFAULT_PROFILE)
    now = found.claimed.rewards if found.claimed else None
    error = found.document.exception_info
    if error is not None and error.exception_type not in _MARKED:
        said = error.exception_message.strip().partition("\n")[0]
        reason = f"the new trial ended in {error.exception_type}: {said}"
        return _refuse(trial.name, trial.result.task_name, reason, str(outcome.directory))
    compared = compare_all(plan.commands, _find_commands(found))
    verdict, reason = judge(trial.rewards, now, compared)
    return Rerun(
        trial=trial.name,
        task=trial.result.task_name,
        verdict=verdict,
        reason=reason,
        same_rewards=are_same(trial.rewards, now),
        rewards_then=trial.rewards,
        rewards_now=now,
        exception_now=error.exception_type if error else None,
        compared=compared,
        directory=str(outcome.directory),
        notes=(*plan.notes, *_compare_images(trial.image, found)),
    )


def _compare_images(then: str | None, found: FoundTrial) -> list[str]:
    """A note where the environment was made from something else than it is here."""
    try:
        now = find_image(read_small(f"{found.directory}/record.json"))
    except OSError:
        now = None
    if then is None or now is None or then == now:
        return []
    return [f"it ran on {then}; this is {now}"]


def _find_commands(found: FoundTrial) -> list[ShellCommand]:
    try:
        entries = load_trajectory(f"{found.directory}/agent/trajectory.jsonl", salvage=True).entries
    except TraceError:
        return []
    return [call for call in find_calls(entries) if isinstance(call, ShellCommand)]


def _refuse(name: str, task: str, reason: str, directory: str | None = None) -> Rerun:
    return Rerun(
        trial=name,
        task=task,
        verdict=Verdict.NOT_REPLAYABLE,
        reason=reason,
        directory=directory,
    )
