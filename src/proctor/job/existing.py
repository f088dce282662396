"""Load a job's own files from an earlier run. Does not read trials."""

from datetime import datetime
from pathlib import Path
from uuid import UUID, uuid4

import msgspec

from proctor.files import read_small
from proctor.harbor.configs import JobConfig
from proctor.job.progress import local_now
from proctor.job.store import RESULT, JobState, load_config, load_state


class Published(msgspec.Struct, frozen=True):
    """The parts of an earlier run's result.json that are needed."""

    id: UUID
    started_at: datetime
    updated_at: datetime | None = None
    finished_at: datetime | None = None
    stats: dict[str, object] = {}

    @property
    def n_retries(self) -> int:
        """Number of retries."""
        value = self.stats.get("n_retries")
        return value if isinstance(value, int) else 0


_decode_published = msgspec.json.Decoder(Published).decode


class Existing(msgspec.Struct, frozen=True):
    """A job's own files from an earlier run."""

    config: JobConfig | None = None
    """Secrets are redacted."""
    state: JobState | None = None
    """None also if harbor began the job."""
    published: Published | None = None
    """None also if it is torn."""

    @property
    def job_id(self) -> UUID:
        """The job's id, or a new one each time."""
        if self.state is not None:
            return self.state.job_id
        return self.published.id if self.published else uuid4()

    @property
    def n_retries(self) -> int:
        """Number of retries so far."""
        return self.published.n_retries if self.published else 0

    @property
    def started_at(self) -> datetime:
        """When the job was begun, or now."""
        if self.state is not None:
            return self.state.started_at
        return self.published.started_at if self.published else local_now()


def load_existing(directory: Path) -> Existing:
    """Load the files of a job; all None if there are none.

    Raises:
        JobError: config.json or proctor.json is invalid.
    """
    try:
        published = _decode_published(read_small(f"{directory}/{RESULT}"))
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        published = None
    return Existing(load_config(directory), load_state(directory), published)
