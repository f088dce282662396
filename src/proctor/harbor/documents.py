"""Readers of the JSON files that harbor 0.13 to 0.25 writes in a job directory.

    <job>/result.json           JobDocument
    <job>/config.json           JobConfigDocument
    <job>/lock.json             LockDocument
    <job>/proctor.json          StateDocument, if proctor ran the job
    <job>/<trial>/result.json   TrialDocument, and TrialDetails for a record

Later releases also write a lock.json into each trial, which repeats its slot in the job's. Unknown
keys are skipped, so files of later releases can be read. Numbers keep their type: 1 stays an int.
harbor writes nan as null, which is read as None.

Others read a trial's result.json too: `traces`, a layer below, and the page of a trial read steps,
times and exceptions; the audit reads `config` as text, in which a key may occur twice.
"""

import functools
import json
import os
import re
import sys
from collections.abc import Callable
from datetime import datetime
from typing import Any

import msgspec

from proctor.errors import JobError
from proctor.files import find_way_out, read_inside
from proctor.json_values import MOST_VALUES, check_values
from proctor.reward.number import Number
from proctor.reward.profile import DEFAULT_PROFILE, HARBOR_0_25, Profile

type WrittenRewards = dict[str, Number | None]
"""Rewards as in a file: None means nan or infinite."""


class ModelInfo(msgspec.Struct, frozen=True, gc=False):
    """A model as the agent reported it."""

    name: str
    """Without its provider."""
    provider: Any = None


class AgentInfo(msgspec.Struct, frozen=True, gc=False):
    """The agent of a trial."""

    name: str
    model_info: ModelInfo | None = None


class UsageDocument(msgspec.Struct, frozen=True, gc=False):
    """`agent_result`: tokens and cost."""

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
    """Start and end of a part of a trial."""

    started_at: str | None = None
    finished_at: str | None = None


class StepDocument(msgspec.Struct, frozen=True, gc=False):
    """One entry of `step_results`."""

    step_name: str
    agent_result: UsageDocument | None = None
    verifier_result: VerifierDocument | None = None
    exception_info: ExceptionDocument | None = None
    verifier: Phase | None = None
    """None if verification did not start."""


class TaskConfig(msgspec.Struct, frozen=True, gc=False):
    """The source of a trial's task."""

    path: str | None = None
    git_url: str | None = None
    name: str | None = None
    source: str | None = None
    """The dataset it belongs to."""
    digest: str | None = None
    """In a lock: `sha256:…` over the files that harbor would publish."""

    @property
    def identity(self) -> tuple[str | None, str | None]:
        """What identifies a task within a job; names may not be unique.

        Without the commit: a lock has the resolved one, a trial the requested one.
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
    """Resources that override those of the task."""

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
    """None if verification did not start."""
    step_results: list[StepDocument] | None = None


class MetricConfig(msgspec.Struct, frozen=True, gc=False):
    """A metric in a job's config.json."""

    type: str = "mean"
    kwargs: dict[str, Any] = {}


class DatasetConfig(msgspec.Struct, frozen=True, gc=False):
    """A dataset in a job's config.json: a directory, or a registry or package name."""

    path: str | None = None
    name: str | None = None


class JobConfigDocument(msgspec.Struct, frozen=True, gc=False):
    """A job's config.json."""

    n_attempts: int | None = None
    metrics: list[MetricConfig] = []
    datasets: list[DatasetConfig] = []


class TimedPhase(msgspec.Struct, frozen=True):
    """Start and end of a part of a trial."""

    started_at: datetime | None = None
    finished_at: datetime | None = None


class AgentDetails(msgspec.Struct, frozen=True):
    """The version that an agent reported."""

    version: str | None = None


class AgentReport(UsageDocument, frozen=True, gc=True):
    """What an agent reported: tokens (input includes cached), cost, and metadata."""

    metadata: dict[str, Any] | None = None


class StepDetails(msgspec.Struct, frozen=True):
    """Details of one entry of `step_results`."""

    step_name: str = ""
    agent_result: AgentReport | None = None
    agent_execution: TimedPhase | None = None
    verifier: TimedPhase | None = None


class TrialDetails(TimedPhase, frozen=True, kw_only=True):
    """What a record needs of a trial's result.json but scoring does not: settings and times.

    Separate, so that scoring many trials stays cheap, and an invalid time or setting does not
    prevent a reward from being read.
    """

    config: dict[str, Any]
    """The trial's complete config, as written."""
    agent_info: AgentDetails = AgentDetails()
    agent_result: AgentReport | None = None
    environment_setup: TimedPhase | None = None
    agent_setup: TimedPhase | None = None
    agent_execution: TimedPhase | None = None
    verifier: TimedPhase | None = None
    step_results: list[StepDetails] | None = None


class HarborVersion(msgspec.Struct, frozen=True, gc=False):
    """The harbor that wrote the lock."""

    version: str | None = None
    git_commit_hash: str | None = None

    @property
    def release(self) -> tuple[int, int] | None:
        """The first two numbers of its version; None if it has none."""
        numbers = re.match(r"([0-9]{1,6})\.([0-9]{1,6})(?![0-9])", self.version or "")
        return (int(numbers[1]), int(numbers[2])) if numbers else None

    @property
    def profile(self) -> Profile:
        """Its scoring rules; the default ones if its release is unknown."""
        is_later = self.release is not None and self.release >= _REFUSES_ODD_REWARDS
        return HARBOR_0_25 if is_later else DEFAULT_PROFILE


# The first release of harbor with the rules of the profile harbor-0.25.
_REFUSES_ODD_REWARDS = (0, 23)


class LockDocument(msgspec.Struct, frozen=True, gc=False):
    """A job's lock.json: the planned trials, in order. Trials with equal text are one object."""

    trials: list[TrialConfigDocument] = []
    harbor: HarborVersion = HarborVersion()
    schema_version: int | None = None
    n_concurrent_trials: int | None = None
    created_at: str | None = None

    def find_digest(self, path: object, name: object) -> str | None:
        """The digest of a task, by its path, else by its name; None unless it is unique."""
        found = {
            trial.task.digest
            for trial in self.trials
            if (path is not None and trial.task.path == path)
            or (path is None and name is not None and trial.task.name == name)
        }
        return found.pop() if len(found) == 1 else None


class LockHead(msgspec.Struct, frozen=True, gc=False):
    """A job's lock.json without its plan, which may be large."""

    harbor: HarborVersion = HarborVersion()
    schema_version: int | None = None


class _WrittenLock(msgspec.Struct, frozen=True, gc=False):
    trials: list[msgspec.Raw] = []
    harbor: HarborVersion = HarborVersion()
    schema_version: int | None = None
    n_concurrent_trials: int | None = None
    created_at: str | None = None


class JobDocument(msgspec.Struct, frozen=True, gc=False):
    """A job's result.json. `stats` is kept as written, for comparison."""

    n_total_trials: int
    stats: msgspec.Raw
    id: str | None = None
    started_at: str | None = None
    finished_at: str | None = None


class NamedTrial(msgspec.Struct, frozen=True, gc=False):
    """A trial named in proctor.json."""

    trial: str


class StateDocument(msgspec.Struct, frozen=True, gc=False):
    """The parts of a job's proctor.json that say what its numbers leave out."""

    refused: list[str] = []
    """Paths of tasks that could not be run."""
    unplanned: list[NamedTrial] = []
    """Trials of earlier plans, whose task, agent or image has changed since."""
    cwd: str | None = None
    """Directory that relative paths of the job start from."""


class Decoder[T]:
    """Reads one kind of document, and explains why a file is not one."""

    def __init__(
        self,
        kind: type[T],
        decode: Callable[[bytes], T] | None = None,
        *,
        writer: str = "harbor",
        largest: int = 1 << 28,
    ) -> None:
        self._largest = largest
        self._decode = decode or msgspec.json.Decoder(kind).decode
        self._writer = writer

    def parse(self, data: bytes) -> T:
        """Parse a document."""
        return self._decode(data)

    def load(self, path: str, root: str | None = None) -> T:
        """Load a document; a link that leads out of its directory, or of `root`, is refused.

        Raises:
            JobError: unreadable, invalid JSON, or not of this kind.
        """
        try:
            return self._decode(read_inside(root or os.path.dirname(path), path, self._largest))
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
    # Most of a large result is token ids, which are skipped at no cost; kwargs are decoded.
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
    # A plan repeats each task for every attempt: decode equal texts once.
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


# Larger counts and costs are errors, whatever the agent reported.
_BELIEVABLE = 1e15
_USAGE = UsageDocument.__struct_fields__


def decode_forgiving[T](kind: type[T]) -> Callable[[bytes], T]:
    """Make a decoder of trial results that ignores invalid token counts and costs."""
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
    """List token counts and costs in a trial result that are not numbers; `forget` nulls them.

    With `believable_only`, also numbers that are impossible: below 0, or far too large.
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
    # The decoder accepts whole numbers of any size, but not floats beyond their range.
    return abs(value) <= most or (whole and most == sys.float_info.max)


_decode_whole_trial = decode_forgiving(TrialDocument)
TRIAL = Decoder(TrialDocument, _decode_trial)
JOB = Decoder(JobDocument)
JOB_CONFIG = Decoder(JobConfigDocument, _decode_job_config)
# A million trials take 350 MB in the compact form of `proctor.harbor.lock`.
LOCK = Decoder(LockDocument, _decode_lock, largest=1 << 30)
LOCK_HEAD = Decoder(LockHead, largest=1 << 30)
STATE = Decoder(StateDocument, writer="proctor")
TRIAL_CONFIG = Decoder(TrialConfigDocument)
DETAILS = Decoder(TrialDetails, decode_forgiving(TrialDetails))
_CONFIG: Decoder[dict[str, Any]] = Decoder(dict[str, Any])


def load_details(directory: str) -> TrialDetails | None:
    """Load what a record needs of a trial's result.json; None if it does not exist."""
    path = os.path.join(directory, "result.json")
    return DETAILS.load(path) if os.path.lexists(path) else None


def load_config(directory: str) -> dict[str, Any]:
    """Load the configuration of a trial."""
    return _CONFIG.load(os.path.join(directory, "config.json"))


def load_lock(job: str) -> LockDocument | None:
    """Load a job's lock.json; None if it does not exist."""
    path = os.path.join(job, "lock.json")
    return LOCK.load(path) if os.path.lexists(path) else None


def find_profile(trial: str) -> Profile:
    """The scoring rules of the harbor that ran a trial, by the lock.json of the job around it.

    The default ones if there is no readable lock.json.
    """
    place = os.path.realpath(trial)
    parent, name = os.path.split(place)
    if os.path.basename(parent) == "attempts" and name.isdecimal():
        parent = os.path.dirname(os.path.dirname(parent))
    path = os.path.join(parent, "lock.json")
    try:
        found = os.stat(path, follow_symlinks=False)
    except OSError:
        return DEFAULT_PROFILE
    return _find_profile_in(path, (found.st_ino, found.st_size, found.st_mtime_ns))


@functools.lru_cache(maxsize=64)
def _find_profile_in(path: str, stamp: tuple[int, int, int]) -> Profile:
    # Kept by the file's stamp: the trials of a job are often read one by one.
    try:
        return LOCK_HEAD.load(path).harbor.profile
    except JobError:
        return DEFAULT_PROFILE


# In a job and never in a trial, and the reverse. Both may have result, config and lock.
_ONLY_A_JOB = ("job.log", "proctor.json", "runner.lock")
_ONLY_A_TRIAL = ("trial.log", "verifier", "steps", "record.json", "exception.txt")
# Also a directory that `proctor init` makes, but then without the first files of a trial.
_AGENT, _FIRST_OF_A_TRIAL = ("agent",), ("config.json", "result.json")


def is_trial(directory: str) -> bool:
    """Whether a directory has files that a trial has and a job has not."""

    def has(names: tuple[str, ...]) -> bool:
        return any(os.path.lexists(os.path.join(directory, name)) for name in names)

    is_of_a_trial = has(_ONLY_A_TRIAL) or (has(_AGENT) and has(_FIRST_OF_A_TRIAL))
    return is_of_a_trial and not has(_ONLY_A_JOB)


def check_is_trial(directory: str) -> None:
    """Check that a directory is a trial.

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
    if os.path.lexists(os.path.join(directory, "lock.json")) and not is_trial(directory):
        raise JobError(f"{directory}: a job; expected one of the trial directories in it")
    for name in names:
        path = os.path.join(directory, name)
        if find_way_out(directory, path) is not None:
            raise JobError(
                f"{path}: a link that leads out of the trial, not followed; expected harbor's own "
                "file"
            )
