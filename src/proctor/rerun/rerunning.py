"""Run recorded trials again, one by one: each as a job of its own, in a new directory.

    <out>/<what>.<time>/
      traces/<trial>/…   the recorded trace that is run again
      answers/<trial>/…  the recorded answers of its model
      jobs/<trial>/      a job of one trial, as `proctor run` writes it
      jobs-with-answers/<trial>/   such a job, in which the agent got the recorded answers
      reruns.json        the results so far; written by the caller

The audited job or ledger is only read. Recorded commands run only inside environments.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol

import msgspec

from proctor.audit.shown import REWARD_ERRORS
from proctor.contained import create_below
from proctor.errors import InputError, NotReplayableError, ProctorError, TaskError, TraceError
from proctor.files import read_small
from proctor.harbor.configs import JobConfig
from proctor.harbor.render import render_json
from proctor.harbor.trial import FoundTrial, load_trial
from proctor.job.options import JobOutcome
from proctor.job.settings import ModelSettings, Settings
from proctor.record.ids import make_id
from proctor.rerun.observed import compare_all
from proctor.rerun.plan import RerunPlan, make_job, plan_rerun, plan_with_answers
from proctor.rerun.recorded import RecordedTrial, find_image
from proctor.rerun.verdict import Rerun, Verdict, Way, are_same, judge, judge_answered
from proctor.task.checksum import task_checksum
from proctor.task.directory import load_task
from proctor.traces.commands import ShellCommand, read_calls
from proctor.traces.failures import find_message
from proctor.traces.trajectory import load_trajectory
from proctor.trial.models import find_first_difference, load_replay_uses

# Finding the task of a recorded trial, and checking that it is unchanged
#
# It is searched in the recorded directory, or below directories that the user passes. Nothing is
# downloaded: for a task from a git repository or package the user must pass a directory. A task is
# unchanged if its checksum is.


# Characters of a checksum that are shown.
_SHOWN = 12


def find_task(trial: RecordedTrial, places: Sequence[Path]) -> Path:
    """Find the directory of a trial's task; of several with its name, the unchanged one.

    Raises:
        NotReplayableError: it is missing, changed, or not the claimed one.
        TaskError: it is not a task.
    """
    wanted = trial.result.task_checksum
    if wanted is None:
        raise NotReplayableError("the checksum of its task is not recorded")
    seen: list[str] = []
    for directory in _candidates(trial, places):
        try:
            found = task_checksum(directory)
        except (OSError, TaskError):
            continue
        if found == wanted:
            _check_name(trial, directory)
            return directory.absolute()
        seen.append(f"{directory} ({found[:_SHOWN]})")
    if seen:
        raise NotReplayableError(
            f"its task has changed: the trial ran checksum {wanted[:_SHOWN]}, but found "
            f"{', '.join(seen)}"
        )
    looked = f", and not below {', '.join(map(str, places))}" if places else ""
    raise NotReplayableError(
        f"its task is missing: {_describe(trial)}{looked}; pass its directory with --tasks DIR"
    )


def _check_name(trial: RecordedTrial, directory: Path) -> None:
    """Check that the task is the claimed one; a task without a name may have been moved."""
    task, path = load_task(directory, verifying=False), trial.config.task.path
    name = path.name if path is not None and task.config.task is None else task.name
    if name != trial.result.task_name:
        raise NotReplayableError(f"it claims the task {trial.result.task_name!r}, but ran {name!r}")


def _candidates(trial: RecordedTrial, places: Sequence[Path]) -> Iterator[Path]:
    task = trial.config.task
    name = (task.path or Path(task.name or "")).name
    for place in places:
        yield from (path for path in (place / name, place) if (path / "task.toml").is_file())
    if not places and task.path is not None and task.git_url is None:
        path = task.path.expanduser()
        origins = [Path(trial.cwd)] if trial.cwd else []
        yield from dict.fromkeys(
            at / path for at in (*origins, Path.cwd()) if (at / path / "task.toml").is_file()
        )


def _describe(trial: RecordedTrial) -> str:
    task = trial.config.task
    if task.name is not None:
        return f"it is in the package {task.name}"
    if task.git_url is not None:
        return f"it is {task.path} in the repository {task.git_url}"
    return f"it was {task.path}"


# Exceptions after which a trial's reward is still meaningful.
_MARKED = REWARD_ERRORS | {
    *("VerifierTimeoutError", "AgentTimeoutError", "NonZeroAgentExitCodeError"),
    *("ModelLimitError", "ModelReplayError"),
}


class Trials(Protocol):
    """Recorded trials, from any source."""

    @property
    def title(self) -> str:
        """Name of the audited job or experiment."""
        ...

    @property
    def n_withheld(self) -> int:
        """Number of withheld trials, about which nothing is known."""
        ...

    @property
    def names(self) -> list[str]:
        """The names of the trials."""
        ...

    def load(self, name: str) -> RecordedTrial:
        """Load one trial.

        Raises:
            NotReplayableError: its files cannot be used.
        """
        ...


type RunJob = Callable[[JobConfig, Settings, str | None], Awaitable[JobOutcome]]
"""Runs a job to its end, on an image with its digest; None: on the image that its task names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RerunOptions:
    """Options for running trials again."""

    directory: Path
    """Directory for all output: absolute, and already created."""
    tasks: Sequence[Path]
    """Directories with tasks; empty: the recorded directories."""
    agent_tree: Path | None = None
    """Directory with the agent's files; None: the recorded one, if it is here."""
    environment: str | None
    """The kind of environment; None: the recorded one."""
    base: str | None = None
    """Root file system of the sandbox; None: the recorded one."""
    run_job: RunJob
    began: Callable[[str], None]
    """Called with the name of each trial before it starts."""
    ended: Callable[[Sequence[Rerun]], None]
    """Called after each trial with the results so far."""


@dataclass(frozen=True, slots=True)
class Reruns:
    """The results of all reruns."""

    reruns: list[Rerun]
    interrupted: bool
    """Stopped by a signal; some may be missing."""


def make_directory(out: Path, title: str, now: datetime) -> Path:
    """Create a new directory for reruns, named after the title and time.

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
    raise InputError(f"{out}: a hundred reruns of this second exist already")


async def run_again(trials: Trials, names: Sequence[str], options: RerunOptions) -> Reruns:
    """Run trials again, one by one, and return the result of each."""
    reruns: list[Rerun] = []
    for name in names:
        options.began(name)
        try:
            rerun = await _run_one(trials, name, options)
        except asyncio.CancelledError:
            # Ctrl-C while no job was running: the results so far are still returned.
            rerun = None
        if rerun is None:
            return Reruns(reruns, interrupted=True)
        reruns.append(rerun)
        options.ended(reruns)
    return Reruns(reruns, interrupted=False)


async def _run_one(trials: Trials, name: str, options: RerunOptions) -> Rerun | None:
    """Run one trial again; None if it was interrupted."""
    try:
        trial = trials.load(name)
    except NotReplayableError as error:
        return _refuse(name, "", str(error))
    notes: list[str] = []
    try:
        if trial.calls:
            try:
                return await _run_with_answers(trial, options)
            except (NotReplayableError, TraceError) as error:
                notes = [f"its agent is not run again with the recorded answers: {error}"]
        plan = plan_rerun(trial, options.environment, options.base)
        task = find_task(trial, options.tasks)
        trace = _put_trace(trial, plan, options.directory)
        config = make_job(trial, plan, task, options.directory / "jobs", trace)
        settings = Settings(verifier_compat=trial.verifier_compat)
        outcome = await options.run_job(config, settings, plan.image)
        if outcome.interrupted:
            return None
        found = _load_new(outcome)
        return _add_notes(_conclude(trial, plan, outcome, found), notes)
    except ProctorError as error:
        # Includes an unavailable sandbox: the next trial may use another environment.
        return _add_notes(_refuse(trial.name, trial.result.task_name, str(error)), notes)


async def _run_with_answers(trial: RecordedTrial, options: RerunOptions) -> Rerun | None:
    """Run the agent again with the recorded answers of its model; None if it was interrupted."""
    plan = plan_with_answers(trial, options.environment, options.agent_tree, options.base)
    task = find_task(trial, options.tasks)
    answers = _put_answers(trial, task, options.directory)
    config = make_job(trial, plan, task, options.directory / "jobs-with-answers", None)
    settings = Settings(verifier_compat=trial.verifier_compat, models=ModelSettings(replay=answers))
    outcome = await options.run_job(config, settings, plan.image)
    if outcome.interrupted:
        return None
    found = _load_new(outcome)
    uses = load_replay_uses(f"{found.directory}/result.json")
    if not sum(use.n_asked for use in uses):
        raise NotReplayableError("it asked its model nothing")
    difference = find_first_difference(uses)
    if difference is None:
        return _conclude(trial, plan, outcome, found, sum(use.n_replayed for use in uses))
    now = found.claimed.rewards if found.claimed else None
    error = found.document.exception_info
    return Rerun(
        trial=trial.name,
        task=trial.result.task_name,
        verdict=Verdict.DIFFERS,
        reason=f"the agent's conversation with its model differs: {difference}",
        way=plan.way,
        rewards_then=trial.rewards,
        rewards_now=now,
        exception_now=error.exception_type if error else None,
        directory=str(outcome.directory),
        notes=(*plan.notes, *_compare_images(trial.image, found)),
    )


def _put_answers(trial: RecordedTrial, task: Path, directory: Path) -> Path:
    """Write recorded exchanges to a directory like that of their trial."""
    place = f"answers/{make_id(trial.name)}"
    result = render_json({"task_name": load_task(task, verifying=False).name}).encode()
    for name, data in {**trial.calls, "result.json": result}.items():
        _write_below(directory, f"{place}/{name}", data)
    return directory / place


def _add_notes(rerun: Rerun, notes: Sequence[str]) -> Rerun:
    return msgspec.structs.replace(rerun, notes=(*notes, *rerun.notes)) if notes else rerun


def _put_trace(trial: RecordedTrial, plan: RerunPlan, directory: Path) -> Path | None:
    if trial.trace is None or not plan.commands:
        return None
    path = f"traces/{make_id(trial.name)}/{trial.trace.name}"
    _write_below(directory, path, trial.trace.data)
    return directory / path


def _write_below(directory: Path, path: str, data: bytes) -> None:
    try:
        with create_below(directory, path) as file:
            file.write(data)
    except OSError as error:
        raise InputError(f"{directory / path}: cannot be written: {error.strerror}") from error


def _load_new(outcome: JobOutcome) -> FoundTrial:
    written = list(outcome.directory.glob("*/result.json"))
    if len(written) != 1:
        raise NotReplayableError(f"the new trial left no result: {outcome.directory}")
    return load_trial(str(written[0].parent))


def _conclude(
    trial: RecordedTrial,
    plan: RerunPlan,
    outcome: JobOutcome,
    found: FoundTrial,
    n_answers: int = 0,
) -> Rerun:
    """Compare the new trial with the recorded one."""
    now = found.claimed.rewards if found.claimed else None
    error = found.document.exception_info
    if error is not None and error.exception_type not in _MARKED:
        said = find_message(error.exception_message)
        reason = f"the new trial ended in {error.exception_type}: {said}"
        return _refuse(trial.name, trial.result.task_name, reason, str(outcome.directory))
    compared = None
    if plan.way is Way.ANSWERS:
        verdict, reason = judge_answered(trial.rewards, now, n_answers)
    else:
        compared = compare_all(plan.commands, _find_commands(found))
        verdict, reason = judge(trial.rewards, now, compared)
    return Rerun(
        trial=trial.name,
        task=trial.result.task_name,
        verdict=verdict,
        reason=reason,
        way=plan.way,
        same_rewards=are_same(trial.rewards, now),
        rewards_then=trial.rewards,
        rewards_now=now,
        exception_now=error.exception_type if error else None,
        compared=compared,
        directory=str(outcome.directory),
        notes=(*plan.notes, *_compare_images(trial.image, found)),
    )


def _compare_images(then: str | None, found: FoundTrial) -> list[str]:
    """A note if the environment was built from another image."""
    try:
        now = find_image(read_small(f"{found.directory}/record.json"))
    except OSError:
        now = None
    if then is None or now is None or then == now:
        return []
    return [f"it ran on {then}; now {now}"]


def _find_commands(found: FoundTrial) -> list[ShellCommand]:
    try:
        entries = load_trajectory(f"{found.directory}/agent/trajectory.jsonl", salvage=True).entries
    except TraceError:
        return []
    return [call for call in read_calls(entries) if isinstance(call, ShellCommand)]


def _refuse(name: str, task: str, reason: str, directory: str | None = None) -> Rerun:
    return Rerun(
        trial=name,
        task=task,
        verdict=Verdict.NOT_REPLAYABLE,
        reason=reason,
        directory=directory,
    )
