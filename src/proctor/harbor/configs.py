"""config.json of a job and of its trials, as harbor 0.13.1 reads and writes them.

Fields are in harbor's order, which is the order of the text. Values that look like secrets are
written as a template or redacted, as in harbor (proctor.harbor.env); they must be provided again
when such a file is read back.

Old spellings are accepted as in harbor. Pass a list as the validation context to collect a sentence
about each: `JobConfig.model_validate(data, context=notes)`.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NotRequired, Self, TypedDict, get_args
from uuid import UUID

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    PlainSerializer,
    ValidationInfo,
    model_validator,
)
from pydantic_core import from_json

from proctor.harbor.env import Env
from proctor.task.config import Artifact
from proctor.task.environment import McpServer, Processors, Tpu
from proctor.task.network import parse_hosts

SANDBOX = "proctor.environments.sandbox.environment:SandboxEnvironment"
NULL = "proctor.environments.null:NullEnvironment"
"""proctor's own environments are not in harbor's list of types, so files name their classes."""
OWN_ENVIRONMENTS = {"sandbox": SANDBOX, "null": NULL}
HOST_BASE = "host"
"""The base of a sandbox that uses the host's root file system."""
DOCKER: Final = "docker"
"""The environment type that both harbor and proctor have."""


def _parse_hosts(hosts: list[str]) -> list[str]:
    return list(parse_hosts(hosts))


type Hosts = Annotated[list[str], AfterValidator(_parse_hosts)]


def _note(info: ValidationInfo, sentence: str) -> None:
    if isinstance(info.context, list):
        info.context.append(sentence)


class AgentConfig(BaseModel, defer_build=True):
    """An agent in a job's configuration."""

    name: str | None = None
    import_path: str | None = None
    model_name: str | None = None
    skills: list[Path] = []
    override_timeout_sec: float | None = None
    override_setup_timeout_sec: float | None = None
    max_timeout_sec: float | None = None
    extra_allowed_hosts: Hosts = []
    kwargs: dict[str, Any] = {}
    env: Env = {}
    mcp_servers: list[McpServer] = []

    @model_validator(mode="after")
    def _default_to_oracle(self) -> Self:
        if self.name is None and self.import_path is None:
            self.name = "oracle"
        return self


type EnvironmentType = Literal[
    "docker",
    "daytona",
    "e2b",
    "modal",
    "runloop",
    "gke",
    "novita",
    "apple-container",
    "singularity",
    "islo",
    "tensorlake",
    "cwsandbox",
    "wandb",
    # Since 0.13.1, up to 0.25.0.
    "sbx",
    "podman",
    "langsmith",
    "ec2",
    "ack",
    "openshift",
    "use-computer",
    "cua-cloud",
    "blaxel",
    "opensandbox",
    "beam",
    "skypilot",
    "hf-sandbox",
    "hyperbrowser",
    "vercel",
    "runta",
    "prime",
    "kata",
    "mosaic",
    "smol",
    "sail",
    "kernel",
]
"""harbor's names; proctor's own environments are in import_path."""
HARBOR_ENVIRONMENTS: frozenset[str] = frozenset(get_args(EnvironmentType.__value__)) - {"docker"}
"""Those that only harbor has."""


def _lower(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


type ResourceMode = Annotated[
    Literal["auto", "limit", "request", "guarantee", "ignore"], BeforeValidator(_lower)
]


class BindOptions(TypedDict):
    """Options for binding a directory of the host."""

    create_host_path: NotRequired[Literal[False]]


class SubpathOptions(TypedDict):
    """Which part of a volume or image is mounted."""

    subpath: NotRequired[str]


class Mount(TypedDict):
    """A mount in an environment, in the terms of Docker Compose."""

    type: Literal["bind", "volume", "image"]
    source: str
    target: str
    read_only: NotRequired[Literal[True]]
    bind: NotRequired[BindOptions]
    volume: NotRequired[SubpathOptions]
    image: NotRequired[SubpathOptions]


def _parse_env(value: Any, info: ValidationInfo) -> Any:
    if not isinstance(value, list):
        return value
    _note(info, "environment.env is a list; harbor asks for a table of names and values instead")
    pairs = [str(item).partition("=") for item in value]
    for name, equals, _ in pairs:
        if not equals:
            raise ValueError(f"{name!r}; expected NAME=VALUE")
    return {name.strip(): text.strip() for name, _, text in pairs}


class EnvironmentConfig(BaseModel, defer_build=True):
    """The environment in a job's configuration."""

    type: EnvironmentType | None = None
    import_path: str | None = None
    force_build: bool = False
    delete: bool = True
    cpu_enforcement_policy: ResourceMode = "auto"
    memory_enforcement_policy: ResourceMode = "auto"
    override_cpus: Processors | None = None
    override_memory_mb: int | None = None
    override_storage_mb: int | None = None
    override_gpus: int | None = None
    override_tpu: Tpu | None = None
    mounts: list[Mount] | None = None
    extra_docker_compose: list[Path] = []
    env: Annotated[Env, BeforeValidator(_parse_env)] = {}
    kwargs: dict[str, Any] = {}
    extra_allowed_hosts: Hosts = []

    @model_validator(mode="before")
    @classmethod
    def _take_old_keys(cls, data: Any, info: ValidationInfo) -> Any:
        if not isinstance(data, dict):
            return data
        data = dict(data)
        if "mounts_json" in data:
            old = data.pop("mounts_json")
            if "mounts" not in data:
                _note(info, "environment.mounts_json is the old spelling of environment.mounts")
                data["mounts"] = old
        if "suppress_override_warnings" in data:
            _note(info, "environment.suppress_override_warnings has no effect any more")
        return _take_own_name(data)

    @model_validator(mode="after")
    def _default_to_sandbox(self) -> Self:
        if self.type is None and self.import_path is None:
            self.import_path = SANDBOX
        return self


def _take_own_name(data: dict[str, Any]) -> dict[str, Any]:
    """`type: sandbox` is proctor's own; harbor's files have the import path of its class."""
    own = OWN_ENVIRONMENTS.get(str(data.get("type")))
    if own is None or data.get("type") is None:
        return data
    return {**data, "type": None, "import_path": data.get("import_path") or own}


class VerifierConfig(BaseModel, defer_build=True):
    """The verifier in a job's configuration."""

    override_timeout_sec: float | None = None
    max_timeout_sec: float | None = None
    env: Env = {}
    import_path: str | None = Field(default=None, exclude_if=lambda value: value is None)
    kwargs: dict[str, Any] = Field(default={}, exclude_if=lambda value: not value)
    disable: bool = False


class TaskConfig(BaseModel, defer_build=True):
    """The source of a task: a directory, a path in a git repository, or a package."""

    path: Path | None = None
    git_url: str | None = None
    git_commit_id: str | None = None
    name: str | None = None
    """organisation/name of a package."""
    ref: str | None = None
    """Tag, revision or `sha256:…` of a package."""
    overwrite: bool = False
    download_dir: Path | None = None
    source: str | None = None
    """Name of its dataset."""

    @model_validator(mode="after")
    def _comes_from_one_place(self) -> Self:
        _check_one_of(self.path, self.name)
        if self.ref is not None and self.name is None:
            raise ValueError("ref requires name: it is a version of a package")
        if self.git_commit_id is not None and self.git_url is None:
            raise ValueError("git_commit_id requires git_url")
        if self.git_url is not None and self.path is None:
            raise ValueError("git_url requires path: where in the repository the task is")
        if self.name is not None and "/" not in self.name:
            raise ValueError(f"name is {self.name!r}; expected a package, organisation/name")
        return self


def _check_one_of(path: Path | None, name: str | None) -> None:
    if path is None and name is None:
        raise ValueError("neither path nor name; expected one of them")
    if path is not None and name is not None:
        raise ValueError("both path and name; expected one of them")


class TrialConfig(BaseModel, defer_build=True):
    """The configuration of one trial."""

    task: TaskConfig
    trial_name: str
    trials_dir: Path
    timeout_multiplier: float = 1.0
    agent_timeout_multiplier: float | None = None
    verifier_timeout_multiplier: float | None = None
    agent_setup_timeout_multiplier: float | None = None
    environment_build_timeout_multiplier: float | None = None
    agent: AgentConfig = Field(default_factory=AgentConfig)
    environment: EnvironmentConfig = Field(default_factory=EnvironmentConfig)
    verifier: VerifierConfig = Field(default_factory=VerifierConfig)
    artifacts: list[str | Artifact] = []
    extra_instruction_paths: list[Path] = []
    job_id: UUID | None = None


class DatasetConfig(BaseModel, defer_build=True):
    """A dataset in a job's configuration: a directory, a name in a registry, or a package."""

    path: Path | None = None
    name: str | None = None
    """A package if it has a slash, else a name in a registry."""
    version: str | None = None
    ref: str | None = None
    registry_url: str | None = None
    registry_path: Path | None = None
    overwrite: bool = False
    download_dir: Path | None = None
    task_names: list[str] | None = None
    exclude_task_names: list[str] | None = None
    n_tasks: int | None = None

    @model_validator(mode="before")
    @classmethod
    def _take_old_registry(cls, data: Any, info: ValidationInfo) -> Any:
        if not isinstance(data, dict) or "registry" not in data:
            return data
        _note(info, "datasets: registry is the old spelling of registry_url and registry_path")
        registry = data["registry"] if isinstance(data["registry"], dict) else {}
        found = {f"registry_{key}": registry[key] for key in ("url", "path") if key in registry}
        return {**found, **{key: value for key, value in data.items() if key != "registry"}}

    @model_validator(mode="after")
    def _comes_from_one_place(self) -> Self:
        _check_one_of(self.path, self.name)
        if self.version is not None and self.ref is not None:
            raise ValueError("both version and ref; expected one: version of a registry's dataset")
        return self


NOT_RETRIED = frozenset(
    {
        "AgentTimeoutError",
        "VerifierTimeoutError",
        "RewardFileNotFoundError",
        "RewardFileEmptyError",
        "VerifierOutputParseError",
    }
)


def _sorted(names: Iterable[str] | None) -> list[str] | None:
    # harbor writes a set in arbitrary order; sorted, equal configs have equal text.
    return None if names is None else sorted(names)


type Names = Annotated[set[str] | None, PlainSerializer(_sorted)]


class RetryConfig(BaseModel, defer_build=True):
    """Which trials are retried, and when."""

    max_retries: int = Field(default=0, ge=0)
    include_exceptions: Names = None
    exclude_exceptions: Names = Field(default_factory=lambda: set(NOT_RETRIED))
    wait_multiplier: float = 1.0
    min_wait_sec: float = 1.0
    max_wait_sec: float = 60.0


class MetricConfig(BaseModel, defer_build=True):
    """A metric in a job's configuration."""

    type: Literal["sum", "min", "max", "mean", "uv-script"] = "mean"
    kwargs: dict[str, Any] = {}


class PluginConfig(BaseModel, defer_build=True):
    """A harbor plugin that observes a job."""

    import_path: str
    kwargs: dict[str, Any] = {}


class JobConfig(BaseModel, defer_build=True):
    """The configuration of a job."""

    job_name: str
    jobs_dir: Path = Path("jobs")
    n_attempts: int = 1
    timeout_multiplier: float = 1.0
    agent_timeout_multiplier: float | None = None
    verifier_timeout_multiplier: float | None = None
    agent_setup_timeout_multiplier: float | None = None
    environment_build_timeout_multiplier: float | None = None
    debug: bool = False
    n_concurrent_trials: int = 4
    quiet: bool = False
    retry: RetryConfig = Field(default_factory=RetryConfig)
    environment: EnvironmentConfig = Field(default_factory=EnvironmentConfig)
    verifier: VerifierConfig = Field(default_factory=VerifierConfig)
    metrics: list[MetricConfig] = []
    agents: list[AgentConfig] = Field(default_factory=lambda: [AgentConfig()])
    datasets: list[DatasetConfig] = []
    tasks: list[TaskConfig] = []
    artifacts: list[str | Artifact] = []
    extra_instruction_paths: list[Path] = []
    plugins: list[PluginConfig] = []

    @model_validator(mode="before")
    @classmethod
    def _take_old_orchestrator(cls, data: Any, info: ValidationInfo) -> Any:
        if not isinstance(data, dict) or "orchestrator" not in data:
            return data
        _note(
            info,
            "orchestrator is an old key: n_concurrent_trials, quiet and retry stand by themselves",
        )
        old = data["orchestrator"] if isinstance(data["orchestrator"], dict) else {}
        keys = ("n_concurrent_trials", "quiet", "retry")
        found = {key: old[key] for key in keys if key in old}
        return {**found, **{key: value for key, value in data.items() if key != "orchestrator"}}


def set_unstated_environment(environment: EnvironmentConfig, data: bytes) -> None:
    """Set the environment of a valid config.json to Docker unless the text of the file names one.

    proctor and harbor 0.13.1 always write it. Later releases of harbor leave out what has their
    default, also when they rewrite the config of an older job.
    """
    stated = from_json(data).get("environment", {})
    if stated.get("type") is None and stated.get("import_path") is None:
        environment.type, environment.import_path = DOCKER, None
