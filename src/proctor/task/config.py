"""The whole of task.toml, as harbor 0.13.1 accepts it.

Types, defaults and rules are harbor's: what harbor accepts is accepted here with the same values.
`proctor.task.parse` reads the text.
"""

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Self

from pydantic import AfterValidator, Field, model_validator

from proctor.task.environment import EnvironmentConfig, Healthcheck
from proctor.task.network import PhaseNetwork
from proctor.task.table import LaterKey, Table

MAIN_SERVICE = "main"
"""harbor's name for the container that the agent works in, among those of docker-compose.yaml."""

# As in harbor, `$` also matches before a trailing newline.
_PACKAGE_NAME = re.compile(r"^[a-zA-Z0-9][a-zA-Z0-9._-]*/[a-zA-Z0-9][a-zA-Z0-9._-]*$")


def _check_package_name(name: str) -> str:
    if not _PACKAGE_NAME.match(name) or ".." in name:
        raise ValueError(
            f"{name!r}; expected 'organisation/name' of letters, digits, '.', '_' and '-', each "
            "beginning with a letter or digit, and no '..'"
        )
    return name


class Author(Table):
    """An author of the task."""

    name: str
    """Full name."""
    email: str | None = None
    """Email address."""


class Package(Table):
    """[task]: the name and description under which the task is published."""

    later_keys: ClassVar[Mapping[str, LaterKey]] = {"version": LaterKey(effect=None)}

    name: Annotated[str, AfterValidator(_check_package_name)]
    """`organisation/name`."""
    description: str = ""
    """Description for people."""
    authors: tuple[Author, ...] = ()
    """Authors."""
    keywords: tuple[str, ...] = ()
    """Search terms."""

    @property
    def short_name(self) -> str:
        """The name after the slash."""
        return self.name.partition("/")[2]


class SolutionConfig(Table):
    """[solution]: settings for running the reference solution."""

    env: dict[str, str] = Field(default_factory=dict)
    """Variables of the solution script; `${NAME}` is read from the host."""


class AgentConfig(PhaseNetwork):
    """[agent], and [steps.agent]."""

    timeout_sec: float | None = None
    """Time limit of the agent in seconds; None: no limit."""
    user: str | int | None = None
    """Name or number of the user it runs as; None: the environment's default."""


class VerifierMode(StrEnum):
    """Where the verifier runs."""

    SHARED = "shared"
    SEPARATE = "separate"


class VerifierConfig(PhaseNetwork):
    """[verifier], and [steps.verifier]."""

    later_keys: ClassVar[Mapping[str, LaterKey]] = {
        "collect": LaterKey("its commands would not be run, and the tests would score other files")
    }

    timeout_sec: float = 600.0
    """Time limit of the tests in seconds. A step has this default too: it inherits nothing."""
    env: dict[str, str] = Field(default_factory=dict)
    """Variables of the test script; `${NAME}` is read from the host."""
    user: str | int | None = None
    """Name or number of the user it runs as; None: the environment's default."""
    environment_mode: VerifierMode | None = None
    """Whether it runs in the agent's environment; None: unless `environment` is set."""
    environment: EnvironmentConfig | None = None
    """A separate environment for the verifier."""

    @model_validator(mode="after")
    def _mode_fits_environment(self) -> Self:
        if self.environment_mode is VerifierMode.SHARED and self.environment is not None:
            raise ValueError("environment_mode is 'shared', but an environment is given too")
        return self

    @property
    def mode(self) -> VerifierMode | None:
        """The mode set or implied here; None if neither."""
        if self.environment_mode is None and self.environment is not None:
            return VerifierMode.SEPARATE
        return self.environment_mode


class Artifact(Table):
    """A file or directory to keep after the run."""

    later_keys: ClassVar[Mapping[str, LaterKey]] = {
        "service": LaterKey(
            "the files would come from the agent's own container", same=(MAIN_SERVICE,)
        )
    }

    source: str
    """Path inside the environment."""
    destination: str | None = None
    """Path below the trial's artifacts; None: the last part of the source."""
    exclude: tuple[str, ...] = ()
    """Patterns for tar of what to leave out of a directory."""


class StepConfig(Table):
    """One entry of [[steps]]."""

    name: str
    """Also the name of its directory below steps/."""
    agent: AgentConfig = AgentConfig()
    """Limits of the agent in this step."""
    verifier: VerifierConfig = VerifierConfig()
    """How this step is verified."""
    min_reward: float | dict[str, float] | None = None
    """Minimum for the next step to run: of the key `reward`, or per key. A missing reward counts as
    minus infinity."""
    healthcheck: Healthcheck | None = None
    """Must pass after the step is set up, in addition to the environment's own."""
    artifacts: tuple[str | Artifact, ...] = ()
    """Kept after this step, in addition to the task's."""


class RewardStrategy(StrEnum):
    """How the rewards of the steps are combined into the trial's."""

    MEAN = "mean"
    FINAL = "final"


class TaskConfig(Table):
    """task.toml."""

    other_spellings: ClassVar[Mapping[str, str]] = {"version": "schema_version"}

    schema_version: str = "1.3"
    """Version of the format; `version` is accepted as an alias."""
    task: Package | None = None
    """The name and description under which the task is published."""
    metadata: dict[str, Any] = Field(default_factory=dict)
    """Free-form; not interpreted."""
    verifier: VerifierConfig = VerifierConfig()
    """How the task is verified."""
    agent: AgentConfig = AgentConfig()
    """Limits of the agent."""
    environment: EnvironmentConfig = EnvironmentConfig()
    """The machine the task runs in."""
    solution: SolutionConfig = SolutionConfig()
    """Settings for the reference solution."""
    source: str | None = None
    """Where the task comes from, as its author wrote it."""
    multi_step_reward_strategy: RewardStrategy | None = None
    """How the rewards of the steps are combined; None: by their mean."""
    steps: tuple[StepConfig, ...] | None = None
    """The steps, in order; None or empty: a single-step task."""
    artifacts: tuple[str | Artifact, ...] = ()
    """Kept after the run."""

    @model_validator(mode="before")
    @classmethod
    def _take_version(cls, data: Any) -> Any:
        if isinstance(data, dict) and "version" in data:
            return {"schema_version": data["version"], **data}
        return data

    def find_verifier_environment(self, step: StepConfig | None = None) -> EnvironmentConfig | None:
        """The environment of a separate verifier; None if it shares the agent's."""
        own = (step.verifier, self.verifier) if step else (self.verifier,)
        mode = next((said.mode for said in own if said.mode), VerifierMode.SHARED)
        if mode is VerifierMode.SHARED:
            return None
        return next((said.environment for said in own if said.environment), self.environment)
