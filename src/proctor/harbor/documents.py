"""The JSON files that harbor 0.13 to 0.25 leaves in a job directory, each with one reader.

    <job>/result.json           JobDocument
    <job>/config.json           JobConfigDocument
    <job>/lock.json             LockDocument
    <job>/proctor.json          StateDocument, where proctor ran the job
    <job>/<trial>/result.json   TrialDocument, and TrialDetails for a record

Keys that are not named here are skipped, so files of later releases read as well. Numbers keep the
type they are written with: 1 stays an int. Where harbor writes null for nan, null is what is read.
"""

import json
import os
import sys
from collections.abc import Callable
from datetime import datetime
from typing import Any

import msgspec

from proctor.errors import JobError
from proctor.files import find_way_out, read_inside
from proctor.json_values import MOST_VALUES, check_values
from proctor.reward.number import Number

type WrittenRewards = dict[str, Number | None]
"""Rewards as a file has them: None means nan or an infinity."""


class ModelInfo(msgspec.Struct, frozen=True, gc=False):
    """A model as the agent reported it."""

    name: str
    """Without its provider."""
    provider: Any = None


class AgentInfo(msgspec.Struct, frozen=True, gc=False):
    """The agent that made a trial."""

    name: str
    model_info: ModelInfo | None = None


class UsageDocument(msgspec.Struct, frozen=True, gc=False):
    """`agent_result`: tokens and money."""

    n_input_tokens: int | None = None
    n_cache_tokens: int | None = None
    n_output_tokens: int | None = None
    cost_usd: float | None = None


class VerifierDocument(msgspec.Struct, frozen=True, gc=False):
    """`verifier_result`."""

    rewards: WrittenRewards | None = None


class ExceptionDocument(msgspec.Struct, frozen=True, gc=False):
    """`exception_info`."""

    exception_type: str
    exception_message: str = ""


class Phase(msgspec.Struct, frozen=True, gc=False):
    """When a part of a trial began and ended."""

    started_at: str | None = None
    finished_at: str | None = None


class StepDocument(msgspec.Struct, frozen=True, gc=False):
    """One of `step_results`."""

    step_name: str
    agent_result: UsageDocument | None = None
    verifier_result: VerifierDocument | None = None
    exception_info: ExceptionDocument | None = None
    verifier: Phase | None = None
    """None when verification was never begun."""


class TaskConfig(msgspec.Struct, frozen=True, gc=False):
    """Where a trial's task came from."""

    path: str | None = None
    git_url: str | None = None
    name: str | None = None
    source: str | None = None
    """The dataset it was taken from."""
    digest: str | None = None
    """In a lock: `sha256:…` over the files that harbor would publish."""

    @property
    def identity(self) -> tuple[str | None, str | None]:
        """What tells the tasks of a job apart; their names need not.

        Without the commit: a lock has the one that was found, a trial the one that was asked for.
        """
        return (self.git_url, self.path or self.name)


class AgentConfig(msgspec.Struct, frozen=True, gc=False):
    """The agent of a trial, with its limits."""

    name: str | None = None
    import_path: str | None = None
    model_name: str | None = None
    kwargs: dict[str, Any] = {}
    override_timeout_sec: float | None = None
    override_setup_timeout_sec: float | None = None
    max_timeout_sec: float | None = None


class VerifierConfig(msgspec.Struct, frozen=True, gc=False):
    """The verifier of a trial, with its limits."""

    disable: bool = False
    import_path: str | None = None
    override_timeout_sec: float | None = None
    max_timeout_sec: float | None = None


class EnvironmentConfig(msgspec.Struct, frozen=True, gc=False):
    """The resources a trial was given beyond what its task says."""

    override_cpus: float | None = None
    override_memory_mb: float | None = None
    override_storage_mb: float | None = None
    override_gpus: float | None = None


class TrialConfigDocument(msgspec.Struct, frozen=True, gc=False):
    """The configuration of a trial: `config` of its result, or its slot in lock.json."""

    task: TaskConfig = TaskConfig()
    agent: AgentConfig = AgentConfig()
    verifier: VerifierConfig = VerifierConfig()
    environment: EnvironmentConfig = EnvironmentConfig()
    timeout_multiplier: float | None = None
    agent_timeout_multiplier: float | None = None
    verifier_timeout_multiplier: float | None = None
    agent_setup_timeout_multiplier: float | None = None
    environment_build_timeout_multiplier: float | None = None
    job_id: str | None = None


class TrialDocument(msgspec.Struct, frozen=True, gc=False):
    """A trial's result.json."""

    task_name: str
    trial_name: str
    agent_info: AgentInfo
    id: str | None = None
    source: str | None = None
    task_checksum: str | None = None
    config: TrialConfigDocument = TrialConfigDocument()
    agent_result: UsageDocument | None = None
    verifier_result: VerifierDocument | None = None
    exception_info: ExceptionDocument | None = None
    started_at: str | None = None
    finished_at: str | None = None
    verifier: Phase | None = None
    """None when verification was never begun."""
    step_results: list[StepDocument] | None = None


class MetricConfig(msgspec.Struct, frozen=True, gc=False):
    """A metric that a job's config.json asks for."""

    type: str = "mean"
    kwargs: dict[str, Any] = {}


class DatasetConfig(msgspec.Struct, frozen=True, gc=False):
    """A dataset that a job's config.json names: a directory, or a registry or package name."""

    path: str | None = None
    name: str | None = None


class JobConfigDocument(msgspec.Struct, frozen=True, gc=False):
    """A job's config.json."""

    n_attempts: int | None = None
    metrics: list[MetricConfig] = []
    datasets: list[DatasetConfig] = []


class TimedPhase(msgspec.Struct, frozen=True):
    """When a part of a trial began and ended."""

    started_at: datetime | None = None
    finished_at: datetime | None = None


class AgentDetails(msgspec.Struct, frozen=True):
    """The version that an agent gave of itself."""

    version: str | None = None


class ReportDetails(msgspec.Struct, frozen=True):
    """What an agent reported beside tokens and money."""

    metadata: dict[str, Any] | None = None


class StepDetails(msgspec.Struct, frozen=True):
    """The same for one of `step_results`."""

    agent_result: ReportDetails | None = None
    agent_execution: TimedPhase | None = None
    verifier: TimedPhase | None = None


class TrialDetails(TimedPhase, frozen=True, kw_only=True):
    """What a record needs of a trial's result.json and scoring does not: settings and times.

    A separate value, so that reading many trials to score them stays cheap, and so that an odd time
    or an odd setting does not keep a reward out.
    """

    config: dict[str, Any]
    """The trial's whole config, as written."""
    agent_info: AgentDetails = AgentDetails()
    agent_result: ReportDetails | None = None
    environment_setup: TimedPhase | None = None
    agent_setup: TimedPhase | None = None
    agent_execution: TimedPhase | None = None
    verifier: TimedPhase | None = None
    step_results: list[StepDetails] | None = None


class HarborVersion(msgspec.Struct, frozen=True, gc=False):
    """The harbor that made the lock."""

    version: str | None = None
    git_commit_hash: str | None = None


class LockDocument(msgspec.Struct, frozen=True, gc=False):
    """A job's lock.json: what was planned, in order. Trials of equal text are one object."""

    trials: list[TrialConfigDocument] = []
    harbor: HarborVersion = HarborVersion()
    schema_version: int | None = None
    n_concurrent_trials: int | None = None
    created_at: str | None = None

    def find_digest(self, path: object, name: object) -> str | None:
        """The digest of a task, by its path, else by its name; None unless there is exactly one."""
        found = {
            trial.task.digest
            for trial in self.trials
            if (path is not None and trial.task.path == path)
            or (path is None and name is not None and trial.task.name == name)
        }
        return found.pop() if len(found) == 1 else None


class _WrittenLock(msgspec.Struct, frozen=True, gc=False):
    trials: list[msgspec.Raw] = []
    harbor: HarborVersion = HarborVersion()
    schema_version: int | None = None
    n_concurrent_trials: int | None = None
    created_at: str | None = None


class JobDocument(msgspec.Struct, frozen=True, gc=False):
    """A job's result.json. `stats` is kept as it was written, for comparison."""

    n_total_trials: int
    stats: msgspec.Raw
    id: str | None = None
    started_at: str | None = None
    finished_at: str | None = None


class NamedTrial(msgspec.Struct, frozen=True, gc=False):
    """A trial that proctor.json names."""

    trial: str


class StateDocument(msgspec.Struct, frozen=True, gc=False):
    """A job's proctor.json, as far as it says what the job's numbers leave out."""

    refused: list[str] = []
    """Paths of tasks that could not be run."""
    unplanned: list[NamedTrial] = []
    """Trials of earlier plans, whose task, agent or image has changed since."""
    cwd: str | None = None
    """Where the relative paths of the job start from."""


class Decoder[T]:
    """Reads one kind of document, and says in a sentence why a file is not one."""

    def __init__(
        self, kind: type[T], decode: Callable[[bytes], T] | None = None, *, writer: str = "harbor"
    ) -> None:
        self._decode = decode or msgspec.json.Decoder(kind).decode
        self._writer = writer

    def parse(self, data: bytes) -> T:
        """The document in a file's bytes.

        Raises:
            MsgspecError, UnicodeDecodeError, RecursionError: torn, or not of this kind.
        """
        return self._decode(data)

    def load(self, path: str, root: str | None = None) -> T:
        """The document at path; a link that leads out of its directory, or of `root`, is refused.

        Raises:
            JobError: unreadable, torn, or not of this kind.
        """
        try:
            return self._decode(read_inside(root or os.path.dirname(path), path))
        except msgspec.ValidationError as error:
            raise JobError(f"{path}: not as {self._writer} writes it: {error}") from error
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise JobError(f"{path}: torn or not JSON: {error}") from error
        except OSError as error:
            raise JobError(f"{path}: cannot be read: {error.strerror}") from error


class _AgentPart(msgspec.Struct, frozen=True):
    kwargs: msgspec.Raw = msgspec.Raw(b"{}")


class _ConfigPart(msgspec.Struct, frozen=True):
    agent: _AgentPart = _AgentPart()


class _TrialPart(msgspec.Struct, frozen=True):
    """The part of a trial result that is decoded to plain objects."""

    config: _ConfigPart = _ConfigPart()


_decode_part = msgspec.json.Decoder(_TrialPart).decode


def _decode_trial(data: bytes) -> TrialDocument:
    # A large result holds token ids, which are skipped and cost nothing; arguments are kept.
    if len(data) > MOST_VALUES:
        _check_arguments(bytes(_decode_part(data).config.agent.kwargs))
    return _decode_whole_trial(data)


def _check_arguments(data: bytes) -> None:
    try:
        check_values(data)
    except ValueError as error:
        raise msgspec.ValidationError(f"{error} among the arguments of its agents") from error


def _decode_job_config(data: bytes) -> JobConfigDocument:
    _check_arguments(data)
    return _decode_whole_config(data)


_decode_whole_config = msgspec.json.Decoder(JobConfigDocument).decode
_decode_written_lock = msgspec.json.Decoder(_WrittenLock).decode
_decode_planned = msgspec.json.Decoder(TrialConfigDocument).decode


def _decode_lock(data: bytes) -> LockDocument:
    # A plan names each task once an attempt, so that most of a large one is repetition.
    known: dict[bytes, TrialConfigDocument] = {}
    trials = []
    written = _decode_written_lock(data)
    for raw in written.trials:
        text = bytes(raw)
        trial = known.get(text)
        if trial is None:
            _check_arguments(text)
            trial = known[text] = _decode_planned(text)
        trials.append(trial)
    return LockDocument(
        trials,
        written.harbor,
        written.schema_version,
        written.n_concurrent_trials,
        written.created_at,
    )


_BELIEVABLE = 1e15
_USAGE = UsageDocument.__struct_fields__


def decode_forgiving[T](kind: type[T]) -> Callable[[bytes], T]:
    """Decodes trial results; tokens and money that are not numbers do not keep a reward out."""
    decode = msgspec.json.Decoder(kind).decode

    def decode_trial(data: bytes) -> T:
        try:
            return decode(data)
        except msgspec.DecodeError:
            try:
                check_values(data, 4 * MOST_VALUES)
                document = json.loads(data)
            except (ValueError, RecursionError):
                document = None
            if not find_odd_usage(document, forget=True):
                raise
            return decode(json.dumps(document).encode())

    return decode_trial


def find_odd_usage(
    document: object, *, forget: bool = False, believable_only: bool = False
) -> list[tuple[str, object]]:
    """Tokens and money in a trial result that are no number; with `forget`, they are null then.

    With `believable_only`, also those that are numbers and cannot be: below 0, or far too large.
    """
    most = _BELIEVABLE if believable_only else sys.float_info.max
    results = [document, *(_get(document, "step_results", list) or ())]
    found = []
    for result in [_get(each, "agent_result", dict) for each in results]:
        for name in _USAGE:
            value = result.get(name) if result else None
            if not result or value is None:
                continue
            is_number = _is_number(value, whole=name != "cost_usd", most=most)
            if not is_number or (believable_only and value < 0):
                found.append((name, value))
                if forget:
                    result[name] = None
    return found


def _get(value: object, key: str, kind: type[Any]) -> Any:
    found = value.get(key) if isinstance(value, dict) else None
    return found if isinstance(found, kind) else None


def _is_number(value: object, *, whole: bool, most: float) -> bool:
    if isinstance(value, bool) or not isinstance(value, int if whole else int | float):
        return False
    # Whole numbers of any size are read; floats are not.
    return abs(value) <= most or (whole and most == sys.float_info.max)


_decode_whole_trial = decode_forgiving(TrialDocument)
TRIAL = Decoder(TrialDocument, _decode_trial)
JOB = Decoder(JobDocument)
JOB_CONFIG = Decoder(JobConfigDocument, _decode_job_config)
LOCK = Decoder(LockDocument, _decode_lock)
STATE = Decoder(StateDocument, writer="proctor")
DETAILS = Decoder(TrialDetails, decode_forgiving(TrialDetails))
_CONFIG: Decoder[dict[str, Any]] = Decoder(dict[str, Any])


def load_details(directory: str) -> TrialDetails | None:
    """What a record needs of a trial's result.json; None when it never wrote one.

    Raises:
        JobError: it is unreadable, torn or not a trial result.
    """
    path = os.path.join(directory, "result.json")
    return DETAILS.load(path) if os.path.lexists(path) else None


def load_config(directory: str) -> dict[str, Any]:
    """The configuration of a trial.

    Raises:
        JobError: its config.json is missing, unreadable or torn.
    """
    return _CONFIG.load(os.path.join(directory, "config.json"))


def load_lock(job: str) -> LockDocument | None:
    """What the job around a trial pinned; None where there is no lock.json.

    Raises:
        JobError: it is unreadable, torn or not as harbor writes it.
    """
    path = os.path.join(job, "lock.json")
    return LOCK.load(path) if os.path.lexists(path) else None


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
