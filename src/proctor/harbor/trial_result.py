"""A trial's complete result.json, with harbor's exact bytes. Does not write files.

Fields are in harbor's order, which is the order of the text. A reward that is nan or infinite is
written as null, as in harbor; null is read back as nan.
"""

import math
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID, uuid4

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from proctor.harbor.configs import TrialConfig
from proctor.harbor.stats import NO_USAGE, Trial, Usage, total_usage
from proctor.reward.steps import Verdict


class AgentContext(BaseModel, defer_build=True):
    """An agent's report about its own run; filled in while it works."""

    model_config = ConfigDict(validate_assignment=False)

    n_input_tokens: int | None = None
    """All input, including cached tokens."""
    n_cache_tokens: int | None = None
    n_output_tokens: int | None = None
    cost_usd: float | None = None
    """US dollars."""
    rollout_details: list[Any] | None = None
    """Token ids and log probabilities, if the agent has them."""
    metadata: dict[str, Any] | None = None
    """Anything else the agent reports."""

    def is_empty(self) -> bool:
        """Whether nothing was reported."""
        return all(value is None for value in self.__dict__.values())


class TimingInfo(BaseModel, defer_build=True):
    """Start and end of a phase, in UTC."""

    started_at: datetime | None = None
    finished_at: datetime | None = None
    """None while the phase is running."""


class ExceptionInfo(BaseModel, defer_build=True):
    """The exception that ended a trial or a step."""

    exception_type: str
    """Name of its class, without the module."""
    exception_message: str
    exception_traceback: str
    """Python's traceback."""
    occurred_at: datetime
    """Local time, without a zone."""


class ModelInfo(BaseModel, defer_build=True):
    """The model that an agent used."""

    name: str
    """Without its provider."""
    provider: str | None = None


class AgentInfo(BaseModel, defer_build=True):
    """The agent that ran the task."""

    name: str
    version: str
    """`unknown` if the agent does not report it."""
    model_info: ModelInfo | None = None


def _read_lost_number(value: object) -> object:
    return math.nan if value is None else value


type _Reward = Annotated[float | int, BeforeValidator(_read_lost_number)]


class VerifierResult(BaseModel, defer_build=True):
    """The result of a verifier that finished."""

    rewards: dict[str, _Reward] | None = None
    """By key, in the verifier's order; None if it wrote null."""


class StepResult(BaseModel, defer_build=True):
    """The result of one step."""

    step_name: str
    agent_result: AgentContext | None = None
    verifier_result: VerifierResult | None = None
    exception_info: ExceptionInfo | None = None
    """Recorded only on the step: harbor does not count it as an error of the trial."""
    agent_execution: TimingInfo | None = None
    verifier: TimingInfo | None = None


class LocalTaskId(BaseModel, defer_build=True):
    """A task in a directory."""

    model_config = ConfigDict(extra="forbid")

    path: str


class GitTaskId(BaseModel, defer_build=True):
    """A task in a git repository."""

    model_config = ConfigDict(extra="forbid")

    git_url: str
    git_commit_id: str | None = None
    path: str


class PackageTaskId(BaseModel, defer_build=True):
    """A published task."""

    model_config = ConfigDict(extra="forbid")

    org: str
    name: str
    ref: str | None = None


type TaskId = LocalTaskId | GitTaskId | PackageTaskId


class TrialResult(BaseModel, defer_build=True):
    """The result of one trial."""

    id: UUID = Field(default_factory=uuid4)
    task_name: str
    """The name in [task], else the name of the task's directory."""
    trial_name: str
    trial_uri: str
    """file:// and the trial's directory."""
    task_id: TaskId
    """The source of the task."""
    source: str | None = None
    """Name of the dataset, if the task came from one."""
    task_checksum: str
    """Digest of every file of the task."""
    config: TrialConfig
    agent_info: AgentInfo
    agent_result: AgentContext | None = None
    """None before the agent started, and in a multi-step trial."""
    verifier_result: VerifierResult | None = None
    exception_info: ExceptionInfo | None = None
    """The first exception."""
    started_at: datetime | None = None
    """UTC, like all times except that of the exception."""
    finished_at: datetime | None = None
    environment_setup: TimingInfo | None = None
    agent_setup: TimingInfo | None = None
    agent_execution: TimingInfo | None = None
    verifier: TimingInfo | None = None
    step_results: list[StepResult] | None = None

    @property
    def contexts(self) -> list[AgentContext]:
        """The agent's reports: about the trial, or about each step."""
        if self.agent_result is not None:
            return [self.agent_result]
        results = [step.agent_result for step in self.step_results or ()]
        return [result for result in results if result is not None]


def render_trial_result(result: TrialResult, config: str | None = None) -> bytes:
    """Render result.json, without a final newline.

    `config` is the text of the trial's config.json, if the caller already has it.
    """
    # No warnings for fields of the wrong type: what cannot be written at all raises an error.
    if config is None:
        return result.model_dump_json(indent=4, warnings=False).encode()
    text = result.model_dump_json(indent=4, warnings=False, exclude=_CONFIG)
    # Values have no raw newlines, so this matches the field and never a part of a value.
    before, key, after = text.partition('\n    "agent_info": ')
    inner = config.replace("\n", "\n    ")
    return f'{before}\n    "config": {inner},{key}{after}'.encode()


_CONFIG = {"config"}


def parse_trial_result(data: bytes) -> TrialResult:
    """Parse a trial's result.json."""
    return TrialResult.model_validate_json(data)


def task_id_of(config: TrialConfig) -> TaskId:
    """The source of a trial's task, as in its result.

    Raises:
        ValueError: its config has no task.
    """
    task = config.task
    if task.name is not None:
        org, slash, name = task.name.partition("/")
        if not slash:
            raise ValueError(f"Package name must be in 'org/name' format: {task.name}")
        return PackageTaskId(org=org, name=name, ref=task.ref)
    if task.path is None:
        raise ValueError("Task path must be set for a local task.")
    if task.git_url is not None:
        commit = task.git_commit_id
        return GitTaskId(git_url=task.git_url, git_commit_id=commit, path=str(task.path))
    return LocalTaskId(path=str(task.path))


def counted(result: TrialResult) -> Trial:
    """The values of a trial that count for its job."""
    info, verified, error = result.agent_info, result.verifier_result, result.exception_info
    return Trial(
        name=result.trial_name,
        task=result.task_name,
        agent=info.name,
        model=info.model_info.name if info.model_info else None,
        source=result.source,
        verdict=Verdict(verified.rewards) if verified else None,
        exception=error.exception_type if error else None,
        usage=_find_usage(result.contexts),
    )


def _find_usage(contexts: list[AgentContext]) -> Usage:
    usages = [
        Usage(said.n_input_tokens, said.n_cache_tokens, said.n_output_tokens, said.cost_usd)
        for said in contexts
        if not said.is_empty()
    ]
    return total_usage(usages) if usages else NO_USAGE
