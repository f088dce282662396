"""What an earlier run of a job left of the job's own files. Nothing here looks at trials."""

from datetime import datetime
from pathlib import Path
from uuid import UUID, uuid4

import msgspec

from proctor.files import read_small
from proctor.harbor.configs import JobConfig
from proctor.job.progress import local_now
from proctor.job.store import RESULT, JobState, load_config, load_state


class Published(msgspec.Struct, frozen=True):
    """What the result.json of an earlier run says of the job."""

    id: UUID
    started_at: datetime
    updated_at: datetime | None = None
    finished_at: datetime | None = None
    stats: dict[str, object] = {}

    @property
    def n_retries(self) -> int:
        """How often a failed trial was begun again."""
        value = self.stats.get("n_retries")
        return value if isinstance(value, int) else 0


_decode_published = msgspec.json.Decoder(Published).decode


class Existing(msgspec.Struct, frozen=True):
    """What an earlier run of a job left of its own files."""

    config: JobConfig | None = None
    """With secrets redacted."""
    state: JobState | None = None
    """None also where harbor began the job."""
    published: Published | None = None
    """None also where it is torn."""

    @property
    def job_id(self) -> UUID:
        """The job's own, or a new one each time."""
        if self.state is not None:
            return self.state.job_id
        return self.published.id if self.published else uuid4()

    @property
    def n_retries(self) -> int:
        """How often a failed trial was begun again so far."""
        return self.published.n_retries if self.published else 0

    @property
    def started_at(self) -> datetime:
        """When the job was begun, or now."""
        if self.state is not None:
            return self.state.started_at
        return self.published.started_at if self.published else local_now()


def load_existing(directory: Path) -> Existing:
    """What is there of a job; everything is None where nothing is.

    Raises:
        JobError: config.json or proctor.json is there and cannot be used.
    """
    try:
        published = _decode_published(read_small(f"{directory}/{RESULT}"))
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        published = None
    return Existing(load_config(directory), load_state(directory), published)
