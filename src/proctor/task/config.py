"""The whole of task.toml, as harbor 0.13.1 takes it.

Types, defaults and rules are harbor's, so whatever it accepts is accepted here with the same
values. `proctor.task.parse` reads the text. Nothing here looks at the rest of the directory.
"""

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Self

from pydantic import AfterValidator, Field, model_validator

from proctor.task.environment import EnvironmentConfig, Healthcheck
from proctor.task.network import PhaseNetwork
from proctor.task.table import Table

# As in harbor, `$` also stands before a last newline.
_PACKAGE_NAME = re.compile(r"^[a-zA-Z0-9][a-zA-Z0-9._-]*/[a-zA-Z0-9][a-zA-Z0-9._-]*$")


def _check_package_name(name: str) -> str:
    if not _PACKAGE_NAME.match(name) or ".." in name:
        raise ValueError(
            f"{name!r}; expected 'organisation/name' of letters, digits, '.', '_' and '-', each "
            "beginning with a letter or digit, and no '..'"
        )
    return name


class Author(Table):
    """Somebody who wrote the task."""

    name: str
    """What they are called."""
    email: str | None = None
    """Where they can be written to."""


class Package(Table):
    """[task]: what the task is called where tasks are published."""

    name: Annotated[str, AfterValidator(_check_package_name)]
    """`organisation/name`."""
    description: str = ""
    """What the task is about, for people."""
    authors: tuple[Author, ...] = ()
    """Who wrote it."""
    keywords: tuple[str, ...] = ()
    """Words to find it by."""

    @property
    def organisation(self) -> str:
        """The name before the slash."""
        return self.name.partition("/")[0]

    @property
    def short_name(self) -> str:
        """The name after the slash."""
        return self.name.partition("/")[2]


class SolutionConfig(Table):
    """[solution]: for the run of the reference solution."""

    env: dict[str, str] = Field(default_factory=dict)
    """Variables of the solution script; `${NAME}` comes from the host."""


class AgentConfig(PhaseNetwork):
    """[agent], and [steps.agent]."""

    timeout_sec: float | None = None
    """Seconds that the agent may take; None: no limit."""
    user: str | int | None = None
    """Name or number of the user it runs as; None: the environment's own."""


class VerifierMode(StrEnum):
    """Where the verifier runs."""

    SHARED = "shared"
    SEPARATE = "separate"


class VerifierConfig(PhaseNetwork):
    """[verifier], and [steps.verifier]."""

    timeout_sec: float = 600.0
    """Seconds that the tests may take. A step has this default too: it inherits nothing."""
    env: dict[str, str] = Field(default_factory=dict)
    """Variables of the test script; `${NAME}` comes from the host."""
    user: str | int | None = None
    """Name or number of the user it runs as; None: the environment's own."""
    environment_mode: VerifierMode | None = None
    """Whether it runs where the agent ran; None: only if it has no environment of its own."""
    environment: EnvironmentConfig | None = None
    """An environment of its own."""

    @model_validator(mode="after")
    def _mode_fits_environment(self) -> Self:
        if self.environment_mode is VerifierMode.SHARED and self.environment is not None:
            raise ValueError("environment_mode is 'shared' and there is an environment of its own")
        return self

    @property
    def mode(self) -> VerifierMode | None:
        """The mode that is said or implied here; None where nothing is."""
        if self.environment_mode is None and self.environment is not None:
            return VerifierMode.SEPARATE
        return self.environment_mode


class Artifact(Table):
    """A file or directory that is kept after the run."""

    source: str
    """Path inside the environment."""
    destination: str | None = None
    """Path below the trial's artifacts; None: the last part of the source."""
    exclude: tuple[str, ...] = ()
    """Patterns of tar for what is left out of a directory."""


class StepConfig(Table):
    """One of [[steps]]."""

    name: str
    """Also the name of its directory below steps/."""
    agent: AgentConfig = AgentConfig()
    """The agent's limits in this step."""
    verifier: VerifierConfig = VerifierConfig()
    """How this step is verified."""
    min_reward: float | dict[str, float] | None = None
    """Below it no further step is run: of the key `reward`, or key by key. A missing one counts as
    minus infinity."""
    healthcheck: Healthcheck | None = None
    """Must pass after the step is set up, besides the environment's own."""
    artifacts: tuple[str | Artifact, ...] = ()
    """Kept after this step, besides the task's."""


class RewardStrategy(StrEnum):
    """How the rewards of the steps become the trial's."""

    MEAN = "mean"
    FINAL = "final"


class TaskConfig(Table):
    """task.toml."""

    other_spellings: ClassVar[Mapping[str, str]] = {"version": "schema_version"}

    schema_version: str = "1.3"
    """Version of the format; `version` is taken for it."""
    task: Package | None = None
    """What the task is called where tasks are published."""
    metadata: dict[str, Any] = Field(default_factory=dict)
    """Anything; nobody reads it."""
    verifier: VerifierConfig = VerifierConfig()
    """How the task is verified."""
    agent: AgentConfig = AgentConfig()
    """The agent's limits."""
    environment: EnvironmentConfig = EnvironmentConfig()
    """The machine it runs in."""
    solution: SolutionConfig = SolutionConfig()
    """For the reference solution."""
    source: str | None = None
    """Where the task comes from."""
    multi_step_reward_strategy: RewardStrategy | None = None
    """How the rewards of the steps become one; None: by their mean."""
    steps: tuple[StepConfig, ...] | None = None
    """The steps, in order; none or an empty list: a task of one step."""
    artifacts: tuple[str | Artifact, ...] = ()
    """Kept after the run."""

    @model_validator(mode="before")
    @classmethod
    def _take_version(cls, data: Any) -> Any:
        if isinstance(data, dict) and "version" in data:
            return {"schema_version": data["version"], **data}
        return data

    def find_verifier_environment(self, step: StepConfig | None = None) -> EnvironmentConfig | None:
        """The environment of a separate verifier; None where it shares the agent's."""
        own = (step.verifier, self.verifier) if step else (self.verifier,)
        mode = next((said.mode for said in own if said.mode), VerifierMode.SHARED)
        if mode is VerifierMode.SHARED:
            return None
        return next((said.environment for said in own if said.environment), self.environment)
