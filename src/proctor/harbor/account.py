"""A trial's account of itself: all that a record of it is made from.

Scoring reads the same files for less (documents.py) and much faster. Where a trial was killed
before it wrote a result, its config.json is all there is.
"""

import os
from datetime import datetime
from typing import Any

import msgspec

from proctor.errors import JobError
from proctor.files import find_way_out
from proctor.harbor.documents import Decoder, ExceptionDocument

type Object = dict[str, Any]


class TimedPhase(msgspec.Struct, frozen=True):
    """When a part of a trial began and ended."""

    started_at: datetime | None = None
    finished_at: datetime | None = None

    @property
    def seconds(self) -> float | None:
        """How long it took; None where one end is missing or the clock was turned back."""
        if self.started_at is None or self.finished_at is None:
            return None
        if (self.started_at.tzinfo is None) != (self.finished_at.tzinfo is None):
            return None
        seconds = (self.finished_at - self.started_at).total_seconds()
        return seconds if seconds >= 0 else None


class ModelAccount(msgspec.Struct, frozen=True):
    """The model that an agent was given."""

    name: str
    provider: str | None = None


class AgentAccount(msgspec.Struct, frozen=True):
    """The agent, as it named itself."""

    name: str
    version: str | None = None
    model_info: ModelAccount | None = None


class AgentResultAccount(msgspec.Struct, frozen=True):
    """What an agent reported: tokens with the cache among the input, money, anything else."""

    n_input_tokens: int | None = None
    n_cache_tokens: int | None = None
    n_output_tokens: int | None = None
    cost_usd: float | None = None
    metadata: Object | None = None


class StepAccount(msgspec.Struct, frozen=True):
    """One of `step_results`."""

    step_name: str
    agent_result: AgentResultAccount | None = None
    exception_info: ExceptionDocument | None = None
    agent_execution: TimedPhase | None = None
    verifier: TimedPhase | None = None


class TrialAccount(msgspec.Struct, frozen=True):
    """A trial's result.json."""

    task_name: str
    trial_name: str
    agent_info: AgentAccount
    config: Object
    """All that the trial was told, as written."""
    task_checksum: str | None = None
    source: str | None = None
    """The dataset its task was taken from."""
    agent_result: AgentResultAccount | None = None
    exception_info: ExceptionDocument | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    environment_setup: TimedPhase | None = None
    agent_setup: TimedPhase | None = None
    agent_execution: TimedPhase | None = None
    verifier: TimedPhase | None = None
    step_results: list[StepAccount] | None = None

    @property
    def seconds(self) -> float | None:
        """How long the whole trial took."""
        return TimedPhase(self.started_at, self.finished_at).seconds


class LockedTask(msgspec.Struct, frozen=True):
    """A task as the job pinned it."""

    name: str | None = None
    digest: str | None = None
    path: str | None = None
    git_url: str | None = None
    git_commit_id: str | None = None


class LockedTrial(msgspec.Struct, frozen=True):
    """One planned trial."""

    task: LockedTask = LockedTask()


class LockedHarbor(msgspec.Struct, frozen=True):
    """The harbor that ran the job."""

    version: str | None = None
    git_commit_hash: str | None = None


class LockAccount(msgspec.Struct, frozen=True):
    """A job's lock.json, as far as it pins things."""

    created_at: datetime | None = None
    harbor: LockedHarbor = LockedHarbor()
    trials: list[LockedTrial] = []

    def find_task(self, config: Object) -> LockedTask | None:
        """The task of a trial with this config, if the lock has exactly one that fits."""
        told = config.get("task")
        wanted = told if isinstance(told, dict) else {}
        path, name = wanted.get("path"), wanted.get("name")
        found = {
            trial.task
            for trial in self.trials
            if (path is not None and trial.task.path == path)
            or (path is None and name is not None and trial.task.name == name)
        }
        return found.pop() if len(found) == 1 else None


_TRIAL = Decoder(TrialAccount)
_CONFIG: Decoder[Object] = Decoder(dict[str, Any])
_LOCK = Decoder(LockAccount)


def load_account(directory: str) -> TrialAccount | None:
    """What a trial's result.json says; None when it never wrote one.

    Raises:
        JobError: it is unreadable, torn or not a trial result.
    """
    path = os.path.join(directory, "result.json")
    return _TRIAL.load(path) if os.path.lexists(path) else None


def load_config(directory: str) -> Object:
    """What a trial was told to do.

    Raises:
        JobError: its config.json is missing, unreadable or torn.
    """
    return _CONFIG.load(os.path.join(directory, "config.json"))


def load_lock(job: str) -> LockAccount | None:
    """What the job around a trial pinned; None where there is no lock.json.

    Raises:
        JobError: it is unreadable, torn or not as harbor writes it.
    """
    path = os.path.join(job, "lock.json")
    return _LOCK.load(path) if os.path.lexists(path) else None


def check_is_trial(directory: str) -> None:
    """See that a directory is a trial's.

    Raises:
        JobError: it is not.
    """
    if not os.path.isdir(directory):
        what = "not a directory" if os.path.lexists(directory) else "no such directory"
        raise JobError(f"{directory}: {what}; expected the directory of a harbor trial")
    names = ("result.json", "config.json")
    if not any(os.path.lexists(os.path.join(directory, name)) for name in names):
        raise JobError(
            f"{directory}: neither result.json nor config.json; "
            "expected the directory of a harbor trial"
        )
    if os.path.lexists(os.path.join(directory, "lock.json")):
        raise JobError(f"{directory}: a job; expected one of the trial directories in it")
    for name in names:
        path = os.path.join(directory, name)
        if find_way_out(directory, path) is not None:
            raise JobError(
                f"{path}: a link that leads out of the trial, not followed; expected harbor's own "
                "file"
            )
