"""What is looked at: a ledger, or job directories without one.

An experiment is one of the ledger, or a job by its directory's name; a trial is found in it by its
id or by its directory's name. A request opens what it needs and closes it, so that what changes
underneath is seen by the next one.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from proctor.errors import NotThereError
from proctor.importers.traced_files import find_in_files
from proctor.ledger.ledger import Ledger
from proctor.ledger.query import find_trial
from proctor.traced.sealed import trace_row
from proctor.traced.trial import TracedTrial


@dataclass(frozen=True, slots=True)
class Subject:
    """What the pages are about; either a ledger or jobs."""

    ledger: Path | None = None
    jobs: tuple[Path, ...] = ()
    """Job directories, by whose names they are known."""

    @contextlib.contextmanager
    def opened(self) -> Iterator[Ledger | None]:
        """The ledger, for one request; None where jobs are looked at.

        Raises:
            LedgerError: it cannot be opened.
        """
        if self.ledger is None:
            yield None
            return
        with Ledger.open(self.ledger) as ledger:
            yield ledger

    @contextlib.contextmanager
    def trial(self, experiment: str, trial: str) -> Iterator[TracedTrial]:
        """One trial with its files, readable as long as it is open.

        Raises:
            NotThereError: there is none of that name.
            DamageError: the ledger is damaged.
        """
        with self.opened() as ledger:
            if ledger is not None:
                yield trace_row(ledger, find_trial(ledger, f"{experiment}/{trial}"))
                return
            yield self._trial_in_job(experiment, trial)

    def _trial_in_job(self, experiment: str, trial: str) -> TracedTrial:
        for job in self.jobs:
            # Only names that the directory itself lists: a name of a request makes no path.
            if job.name == experiment and trial in {each.name for each in job.iterdir()}:
                return next(iter(find_in_files(str(job / trial))))
        raise NotThereError(f"no trial {trial!r} in an experiment {experiment!r}")
