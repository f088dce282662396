"""The finished trials of a job directory."""

import os
import stat
from dataclasses import dataclass, replace
from pathlib import Path

from proctor.errors import JobError, NotReplayableError
from proctor.files import read_small
from proctor.harbor.configs import TrialConfig
from proctor.harbor.job import Job, load_job
from proctor.harbor.trial import FoundTrial
from proctor.job.settings import VerifierCompat
from proctor.job.store import STATE, load_state
from proctor.rerun.recorded import LARGEST_DOCUMENT, RecordedTrial, parse_config, read_recorded
from proctor.sentence import reason_of


@dataclass(frozen=True, slots=True)
class RecordedJob:
    """The finished trials of a job."""

    job: Job
    verifier_compat: VerifierCompat | None

    @property
    def title(self) -> str:
        """Name of the audited job."""
        return self.job.name

    @property
    def n_withheld(self) -> int:
        """Always 0: nothing of a job is withheld."""
        return 0

    @property
    def names(self) -> list[str]:
        """Names of the trials' directories; the names in their results may not be unique."""
        return [_name_of(found) for found in self.job.trials]

    def load(self, name: str) -> RecordedTrial:
        """Load one trial."""
        found = next(each for each in self.job.trials if _name_of(each) == name)
        claimed = found.claimed
        record = _read(found, "record.json", LARGEST_DOCUMENT)

        def read(path: str, largest: int) -> bytes | None:
            return _read(found, path, largest)

        rewards = claimed.rewards if claimed else None
        config = _load_config(found)
        recorded = read_recorded(name, config, found.document, rewards, record, read)
        return replace(recorded, cwd=self.job.cwd, verifier_compat=self.verifier_compat)


def load_job_trials(directory: str) -> RecordedJob:
    """Load the trials of the job in a directory.

    Raises:
        JobError: it is not a job, or none of its trials has ended.
    """
    job = load_job(directory)
    if not job.trials:
        raise JobError(f"{directory}: none of its trials has ended; there is nothing to run again")
    state = load_state(Path(directory))
    compat = state.read_settings(f"{directory}/{STATE}").verifier_compat if state else None
    return RecordedJob(job, compat)


def _name_of(found: FoundTrial) -> str:
    return Path(found.directory).name


def _load_config(found: FoundTrial) -> TrialConfig:
    name = "config.json"
    data = _read(found, name, LARGEST_DOCUMENT)
    if data is None:
        raise NotReplayableError(f"it has no {name} with its settings")
    return parse_config(data, f"{found.directory}/{name}")


def _read(found: FoundTrial, name: str, largest: int) -> bytes | None:
    path = f"{found.directory}/{name}"
    try:
        # The job is untrusted: a link, also of a directory, could lead to a file of this machine.
        is_plain = stat.S_ISREG(os.lstat(path).st_mode)
        if not is_plain or os.path.realpath(path) != f"{os.path.realpath(found.directory)}/{name}":
            raise NotReplayableError(f"{path}: not a regular file of the trial itself")
        return read_small(path, largest)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise NotReplayableError(f"{path}: cannot be read: {reason_of(error)}") from error
