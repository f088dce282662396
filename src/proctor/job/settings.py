"""Settings of a job beyond harbor's configuration: `<job>/proctor.json`."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from proctor.record.model import AdaptationProvenance

type TaskOrder = Literal["name", "directory"]
type VerifierCompat = Literal["harbor-0.13.1"]

MOST_AGAIN = 100
"""Most repeated verifications of a trial."""


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
