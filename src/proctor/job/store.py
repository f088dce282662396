"""A job's own files: their contents, and the lock that protects them.

    <job>/
        proctor.json    what harbor's files have no place for: settings, slots and their trials
        config.json     the job's configuration, as harbor writes it
        lock.json       the plan, as harbor writes it; earlier plans are lock.1.json, …
        result.json     the statistics so far, as harbor writes them
        flakes.json     agreement of repeated verifications, if requested
        job.log         log messages, for people
        runner.lock     held by the process that runs the job; has no other meaning
        <trial>/…       one directory per trial

Files are written atomically. proctor.json is written first, so that every config.json has its
settings next to it. A trial's name is in proctor.json before the trial's directory is created.
"""

import contextlib
import os
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Annotated
from uuid import UUID

import msgspec
from pydantic import ValidationError

from proctor.errors import JobError
from proctor.files import read_small, replace_file, try_lock, write_all, write_atomic, write_new
from proctor.harbor.configs import JobConfig, set_unstated_environment
from proctor.harbor.lock import MANY_TRIALS
from proctor.job.flakes import FLAKES
from proctor.job.planned import PinnedDataset
from proctor.job.settings import Settings

STATE = "proctor.json"
CONFIG = "config.json"
LOCK = "lock.json"
RESULT = "result.json"
LOG = "job.log"
RUNNER = "runner.lock"
# Do not follow a link, and do not block on opening a FIFO.
_NO_LINK = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class NamedSlot(msgspec.Struct, frozen=True, gc=False):
    """A slot of the plan and its trial."""

    index: int
    """Position in the plan, from 0."""
    key: str
    """Digest of everything that decides the trial."""
    trial: str
    """Name of the trial, and of its directory."""


class ChosenEnvironment(msgspec.Struct, frozen=True):
    """The kind of environment that a job runs in; resume uses the same."""

    kind: str
    """harbor's type, or an import path."""
    why: str
    """Why it was chosen."""
    base: str | None = None
    """The requested root file system."""


class JobState(msgspec.Struct, frozen=True, kw_only=True):
    """proctor.json."""

    proctor: str
    """Version of proctor that wrote it."""
    job_id: UUID
    started_at: datetime
    """Local time without a zone, as in result.json."""
    cwd: str
    """The working directory that relative paths in config.json start from."""
    settings: dict[str, object]
    environment: ChosenEnvironment
    slots: list[NamedSlot]
    """In plan order."""
    refused: list[str] = []
    """Paths of tasks that could not be run when it was planned."""
    ledger: str | None = None
    """The ledger that its trials are sealed into: the address of a served one, else its absolute
    path; earlier versions wrote the path of the copy. None: not sealed."""
    unplanned: list[NamedSlot] = []
    """Slots of earlier plans whose task, agent or image has changed since."""
    datasets: list[PinnedDataset] = []
    """The datasets that have a version, each with the digest of its tasks."""
    images: dict[str, str] = {}
    """Digests of the images of registries that its tasks run on, by name."""

    def read_settings(self, path: str) -> Settings:
        """Parse the settings.

        Raises:
            JobError: they are invalid.
        """
        try:
            return Settings.model_validate(self.settings)
        except ValidationError as error:
            raise JobError(f"{path}: settings are not proctor's: {_first_of(error)}") from error


class _Written(JobState, frozen=True, kw_only=True):
    """proctor.json; with many trials, each key is written once and slots refer to it."""

    keys: list[str] = []
    """The distinct keys."""
    slots: list[NamedSlot | tuple[Annotated[int, msgspec.Meta(ge=0)], str]]  # type: ignore[assignment]
    """In plan order; else the number of the key, and the trial."""

    def unpack(self) -> JobState:
        """The state with named slots."""
        fields = {name: getattr(self, name) for name in JobState.__struct_fields__}
        fields["slots"] = [
            slot if isinstance(slot, NamedSlot) else NamedSlot(index, self.keys[slot[0]], slot[1])
            for index, slot in enumerate(self.slots)
        ]
        return JobState(**fields)


def _encode_state(state: JobState, many: int) -> bytes:
    slots = state.slots
    # Slots are in plan order, so that positions need not be written.
    if len(slots) <= many or any(slot.index != at for at, slot in enumerate(slots)):
        return msgspec.json.format(msgspec.json.encode(state), indent=1)
    numbers = {key: number for number, key in enumerate(dict.fromkeys(slot.key for slot in slots))}
    fields = {name: getattr(state, name) for name in JobState.__struct_fields__}
    fields["slots"] = [(numbers[slot.key], slot.trial) for slot in slots]
    return msgspec.json.encode(_Written(**fields, keys=list(numbers)))


_decode_state = msgspec.json.Decoder(_Written).decode


def load_state(directory: Path) -> JobState | None:
    """Load a job's proctor.json; None if missing, as in a job that harbor began.

    Raises:
        JobError: it is invalid.
    """
    path = f"{directory}/{STATE}"
    try:
        return _decode_state(read_small(path)).unpack()
    except FileNotFoundError:
        return None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, IndexError) as error:
        raise JobError(
            f"{path}: not as proctor writes it: {error}; if you move it away, the job is treated "
            "as one of harbor, and its trials are found by their own files"
        ) from error
    except OSError as error:
        raise JobError(f"{path}: cannot be read: {error.strerror}") from error


def load_config(directory: Path) -> JobConfig | None:
    """Load a job's config.json; None if missing.

    Raises:
        JobError: it is invalid.
    """
    path = f"{directory}/{CONFIG}"
    try:
        data = read_small(path)
        config = JobConfig.model_validate_json(data)
    except FileNotFoundError:
        return None
    except ValidationError as error:
        raise JobError(f"{path}: not a job's config: {_first_of(error)}") from error
    except OSError as error:
        raise JobError(f"{path}: cannot be read: {error.strerror}") from error
    set_unstated_environment(config.environment, data)
    return config


def _first_of(error: ValidationError) -> str:
    fault = error.errors()[0]
    where = ".".join(map(str, fault["loc"]))
    return f"{where}: {fault['msg']}" if where else fault["msg"]


class JobFiles:
    """The files of a job that this process has locked."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._runner = f"{directory}/{RUNNER}"

    def check_held(self) -> None:
        """Check that the directory is still the one that this process locked.

        Raises:
            JobError: it is gone; a directory created in its place would not be this job.
        """
        if not os.path.exists(self._runner):
            raise JobError(
                f"{self.directory}: the job's directory was removed while the job runs; restore "
                "it, then resume with `proctor resume`"
            )

    def write_state(self, state: JobState, *, many: int = MANY_TRIALS) -> None:
        """Write proctor.json; compact if it has more than `many` slots."""
        self._write(STATE, _encode_state(state, many))

    def write_config(self, text: bytes) -> None:
        """Write config.json."""
        self._write(CONFIG, text)

    def write_lock(self, text: bytes) -> None:
        """Write lock.json; one of a different plan is kept under the next free number."""
        path = self.directory / LOCK
        if path.exists():
            # An earlier plan is evidence of how the job was run, so it is never overwritten.
            numbers = (path.with_name(f"lock.{number}.json") for number in range(1, 1_000_000))
            free = next(number for number in numbers if not os.path.lexists(number))
            with self._saying(free.name):
                write_new(free, path.read_bytes())
        self._write(LOCK, text)

    def has_lock(self) -> bool:
        """Whether there is a lock.json."""
        return (self.directory / LOCK).exists()

    def is_result(self, text: str) -> bool:
        """Whether result.json has this text."""
        try:
            return read_small(f"{self.directory}/{RESULT}") == text.encode()
        except OSError:
            return False

    def write_result(self, text: str) -> None:
        """Write result.json."""
        self._write(RESULT, text.encode())

    def write_live_result(self, text: str) -> None:
        """Write result.json while the job runs: atomically, without waiting for the disk."""
        with self._saying(RESULT):
            replace_file(f"{self.directory}/{RESULT}", text.encode())

    def write_flakes(self, text: bytes) -> None:
        """Write flakes.json."""
        self._write(FLAKES, text)

    def append_log(self, sentence: str) -> None:
        """Append a line to job.log."""
        with self._saying(LOG):
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | _NO_LINK
            fd = os.open(self.directory / LOG, flags, 0o666)
            try:
                write_all(fd, f"{sentence}\n".encode())
            finally:
                os.close(fd)

    def _write(self, name: str, data: bytes) -> None:
        with self._saying(name):
            write_atomic(self.directory / name, data)

    @contextlib.contextmanager
    def _saying(self, name: str) -> Iterator[None]:
        self.check_held()
        try:
            yield
        except OSError as error:
            raise JobError(
                f"{self.directory / name}: cannot be written: {error.strerror}; "
                f"{self._describe_next_step()}"
            ) from error

    def _describe_next_step(self) -> str:
        if not os.path.exists(self.directory / CONFIG):
            return "no trial was started. Free space there, or use another directory: --jobs-dir"
        return (
            "the job cannot continue without its own files. What its trials wrote is kept, and "
            "`proctor resume` continues from it"
        )


@contextlib.contextmanager
def held_job(directory: Path) -> Iterator[JobFiles]:
    """Lock a job's files for this process; creates the directory if needed.

    The kernel releases the lock when the process ends, however it ends.

    Raises:
        JobError: another process runs the job, or its directory cannot be written.
    """
    path = directory / RUNNER
    try:
        directory.mkdir(parents=True, exist_ok=True)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | _NO_LINK, 0o666)
    except OSError as error:
        elsewhere = (
            "" if os.access(directory, os.F_OK) else "; --jobs-dir names another place for jobs"
        )
        raise JobError(f"{error.filename}: cannot be made: {error.strerror}{elsewhere}") from error
    try:
        if not try_lock(fd):
            raise JobError(f"{directory}: {_describe_holder(fd)}")
        # Best effort: on a full disk, only the next process's message lacks the PID.
        with contextlib.suppress(OSError):
            os.ftruncate(fd, 0)
            os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        yield JobFiles(directory)
    finally:
        os.close(fd)


def _describe_holder(fd: int) -> str:
    pid = os.pread(fd, 32, 0).decode("ascii", "replace").strip()
    who = f"process {pid}" if pid.isdigit() else "another process"
    return (
        f"{who} is running this job; wait for it, stop it, or give the new job another "
        "name with --job-name"
    )
