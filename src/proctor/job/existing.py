"""Load a job's own files from an earlier run. Does not read trials."""

import contextlib
from datetime import datetime
from pathlib import Path
from uuid import UUID, uuid4

import msgspec

from proctor.errors import JobError
from proctor.files import read_small
from proctor.harbor.configs import JobConfig
from proctor.harbor.documents import LOCK_HEAD, LockHead, is_trial
from proctor.job.progress import local_now
from proctor.job.store import LOCK, RESULT, JobState, load_config, load_state

# The last release of harbor whose trials are recognised by their configs, and its lock's schema.
_LAST_RELEASE = (0, 13)
_SCHEMA = 1


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
    """Load the files of a job; all None if there are none."""
    state = load_state(directory)
    if state is None:
        _check_release(directory)
    try:
        published = _decode_published(read_small(f"{directory}/{RESULT}"))
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        published = None
    return Existing(load_config(directory), state, published)


def _check_release(directory: Path) -> None:
    """Refuse the job of a harbor whose trials would not be recognised, and all be run again."""
    head = LockHead()
    # A missing or damaged plan is made again.
    with contextlib.suppress(JobError):
        head = LOCK_HEAD.load(f"{directory}/{LOCK}")
    release = head.harbor.release
    is_later = release is not None and release > _LAST_RELEASE
    if is_later or head.schema_version not in (None, _SCHEMA) or _has_trial_locks(directory):
        raise JobError(
            f"{directory}: begun by harbor {head.harbor.version or 'of a later release'}; proctor "
            "resumes its own jobs and those of harbor 0.13. Finish this one with `harbor job "
            "resume`, or start a new job with another --job-name"
        )


def _has_trial_locks(directory: Path) -> bool:
    """Whether a trial has a lock.json of its own, as of later releases."""
    with contextlib.suppress(OSError):
        return any(
            is_trial(str(place)) and (place / LOCK).exists() for place in directory.iterdir()
        )
    return False
