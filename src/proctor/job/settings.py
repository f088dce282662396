"""Settings of a job beyond harbor's configuration: `<job>/proctor.json`."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from proctor.record.model import AdaptationProvenance

type TaskOrder = Literal["name", "directory"]
type OnDifference = Literal["stop", "live", "position"]
type VerifierCompat = Literal["harbor-0.13.1"]

MOST_AGAIN = 100
"""Most repeated verifications of a trial."""


type Amount = Annotated[float, Field(gt=0, allow_inf_nan=False)]
type Number = Annotated[int, Field(ge=1)]


class ModelLimits(BaseModel):
    """The most that may be spent on models; None: no limit."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    cost_usd: Amount | None = None
    tokens: Number | None = None
    """Input and output tokens together."""
    requests: Number | None = None


class ModelSettings(BaseModel):
    """How the trials of a job reach models."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    gateway: bool = True
    """Whether agents with a model reach it through the recording gateway."""
    endpoints: dict[str, str] = {}
    """URLs by provider, which replace the providers' usual ones."""
    trial_limits: ModelLimits = ModelLimits()
    """What the agent of one trial may spend."""
    job_limits: ModelLimits = ModelLimits()
    """What all agents may spend in one run of the job."""
    replay: Path | None = None
    """Trial or job whose recorded answers are given in place of a provider's."""
    on_difference: OnDifference = "stop"
    """What happens at a request that the recording does not answer."""


class Settings(BaseModel):
    """Settings of a job that harbor does not have."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    experiment: str | None = None
    """The experiment its records belong to; None: the job's name."""
    dataset_id: str | None = None
    """name@version of the dataset, for the records."""
    adaptation: AdaptationProvenance | None = None
    """Which variant of a task it is, for the records."""
    system_prompt: Path | None = None
    """File with the agent's system prompt, for the records."""
    verifier_compat: VerifierCompat | None = None
    """Prepare the verifier's directories as that release of harbor does."""
    task_order: TaskOrder = "name"
    """Order of a directory's tasks: sorted by name, or in directory order as in harbor."""
    strict_tasks: bool = False
    """Whether an invalid task prevents the job from starting."""
    verify_again: Annotated[int, Field(ge=0, le=MOST_AGAIN)] = 0
    """Number of verifications of a trial beyond the one that counts."""
    clean_room: bool = True
    """Whether the tests of a trial with a reward are repeated in a clean room."""
    agent_version_command: str | None = None
    """A shell command on the host whose output is the agent's revision."""
    models: ModelSettings = ModelSettings()
    """How trials reach models."""
