"""What is looked at: a ledger, or job directories without one.

An experiment is one of the ledger, or a job by its directory's name; a trial is found in it by its
id or by its directory's name. A request opens what it needs and closes it, so that what changes
underneath is seen by the next one. No name of a request becomes part of a path.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from proctor.errors import NotThereError, ProctorError
from proctor.ledger.ledger import Ledger
from proctor.ledger.query import TrialFilter, looking, select_trials
from proctor.ledger.row import TrialRow
from proctor.ledger.submission import ATTEMPTS
from proctor.web.damage import Health
from proctor.web.experiment import Experiment, load_sealed
from proctor.web.job_files import JobFiles
from proctor.web.kept import Kept
from proctor.web.shelf import JobShelf

ATTEMPT: Final = ".attempt-"
"""Between the name of a trial and the number of an attempt that is kept of it."""
_SHOWN = 80
_VERSIONS = 200
_PREPARED = 3
"""Jobs whose trials are read before anybody asks."""


class Subject:
    """What the pages are about; either a ledger or jobs."""

    def __init__(
        self,
        ledger: Path | None = None,
        jobs: tuple[Path, ...] = (),
        root: Path | None = None,
    ) -> None:
        self.ledger = ledger
        self.shelf = JobShelf(jobs, root)
        """The jobs; those in `root` as they come and go."""
        self.kept = Kept()
        self._versions: dict[str, tuple[object, str]] = {}
        """Of experiments of the ledger, with what it was when they were found."""
        self.health = Health(ledger) if ledger is not None else None

    @property
    def jobs(self) -> tuple[Path, ...]:
        """Job directories, by whose names they are known."""
        return tuple(job.directory for job in self.shelf.all())

    def prepare(self) -> None:
        """Read what the first pages will show, before somebody waits for it."""
        with contextlib.suppress(ProctorError):
            self.damage()
        jobs = sorted(self.shelf.all(), key=JobFiles.changed_at, reverse=True)
        for job in jobs[:_PREPARED]:
            job.look()

    def close(self) -> None:
        """Let go of what is kept on the disk."""
        if self.health is not None:
            self.health.close()

    def damage(self) -> str | None:
        """What is wrong with the ledger, in a sentence."""
        return self.health.look() if self.health is not None else None

    @contextlib.contextmanager
    def opened(self) -> Iterator[Ledger | None]:
        """The ledger, for one request; a damaged one as it was found; None for jobs.

        Raises:
            LedgerError: it cannot be opened.
        """
        if self.health is None:
            yield None
            return
        with self.health.opened() as ledger:
            yield ledger

    def experiment(self, name: str) -> Experiment:
        """An experiment or a job, trial by trial.

        Raises:
            NotThereError: there is none of that name.
            DamageError: the ledger is damaged.
        """
        with self.opened() as ledger:
            found = load_sealed(ledger, _text(name)) if ledger is not None else None
        if self.health is None:
            job = self.shelf.find(name)
            found = job.look() if job is not None else None
        if found is None:
            raise _no_experiment(name)
        return found

    def version(self, name: str) -> str:
        """What differs where anything of an experiment does.

        Raises:
            NotThereError: there is none of that name.
            DamageError: the ledger is damaged.
        """
        if self.health is None:
            return self.experiment(name).version
        self.health.look()
        seen, known = self.health.seen, self._versions.get(name)
        if known is not None and known[0] == seen:
            return known[1]
        with self.health.opened() as ledger, looking(ledger):
            found = ledger.index.experiment_version(_text(name))
        if found is None:
            raise _no_experiment(name)
        if len(self._versions) >= _VERSIONS:
            self._versions.clear()
        self._versions[name] = seen, found
        return found

    def has_ended(self, name: str) -> bool:
        """Whether nothing more will come of an experiment: a job that says so."""
        job = self.shelf.find(name) if self.ledger is None else None
        return job is not None and job.look().is_finished

    def trial_directory(self, experiment: str, trial: str) -> Path:
        """Where a trial of a job lies, or an attempt that is kept in it.

        Raises:
            NotThereError: there is none of that name.
        """
        job = self.shelf.find(experiment)
        if job is None:
            raise _no_trial(experiment, trial)
        # Only names that the directory itself lists, and no links.
        listed = _list_directories(job.directory)
        if trial in listed:
            return job.directory / trial
        base, _, number = trial.rpartition(ATTEMPT)
        kept = job.directory / base / ATTEMPTS
        is_own = base in listed and number.isdecimal() and not kept.is_symlink()
        if is_own and number in _list_directories(kept):
            return kept / number
        raise _no_trial(experiment, trial)


def find_row(ledger: Ledger, experiment: str, trial: str) -> TrialRow:
    """The sealed trial of exactly that name.

    Raises:
        NotThereError: there is none.
        DamageError: the log does not give what its checkpoint says.
    """
    wanted = TrialFilter(experiment=_text(experiment), trial=_text(trial))
    with looking(ledger):
        rows = select_trials(ledger, wanted)
    if not rows:
        raise _no_trial(experiment, trial)
    return rows[0]


def _list_directories(place: Path) -> set[str]:
    try:
        with os.scandir(place) as entries:
            return {each.name for each in entries if each.is_dir(follow_symlinks=False)}
    except OSError:
        return set()


def _no_experiment(name: str) -> NotThereError:
    return NotThereError(f"there is no experiment {_shown(name)}")


def _no_trial(experiment: str, trial: str) -> NotThereError:
    return NotThereError(f"there is no trial {_shown(trial)} in an experiment {_shown(experiment)}")


def _text(name: str) -> str:
    """A name that an index can be asked for.

    Raises:
        NotThereError: it has control characters, or is no text; nothing has such a name.
    """
    if not name.isprintable():
        raise NotThereError(f"nothing is called {_shown(name)}")
    return name


def _shown(name: str) -> str:
    return repr(name if len(name) <= _SHOWN else f"{name[:_SHOWN]}…")
