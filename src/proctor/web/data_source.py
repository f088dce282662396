"""The data behind the pages: a ledger, or job directories without one.

An experiment is one of the ledger, or a job by its directory's name; a trial is found in it by its
id or by its directory's name. Each request opens what it needs and closes it, so the next request
sees changes. Names from requests never become part of a path.
"""

import contextlib
import os
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from markupsafe import Markup

from proctor.errors import DamageError, LedgerError, NoteError, NotThereError, ProctorError
from proctor.ledger.as_found import Seen, has_lines, index_found, is_grown, open_found, see_files
from proctor.ledger.counting import ATTEMPT
from proctor.ledger.place import open_reader
from proctor.ledger.query import list_trials, snapshot
from proctor.ledger.reader import LedgerReader
from proctor.ledger.row import TrialRow
from proctor.ledger.submission import ATTEMPTS
from proctor.ledger.trial_index import TrialFilter
from proctor.ledger.verification.verify import verify_ledger
from proctor.sentence import count_of
from proctor.web.experiment import Experiment, load_sealed
from proctor.web.job_directories import JobDirectories, JobFiles
from proctor.web.lru import LruCache

# Detecting a damaged ledger, and showing as much of it as possible
#
# Each request makes a cheap check: if neither the checkpoint nor the log changed since the last
# one, the earlier result still holds. Otherwise the index is updated from the log, which must match
# the signed checkpoint, and all lines are hashed once in the background. Evidence is not read here:
# opening a file verifies its digest.
#
# A log that does not match its signature is shown as found, with a separate index.

# Seconds between two verifications of a growing ledger; at least ten times what one took.
_PAUSE = 20.0


class Health:
    """State of a ledger, shared by all requests."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._lock = threading.Lock()
        self._seen: Seen | None = None
        self._found: str | None = None
        """Result of the cheap check."""
        self._verified: str | None = None
        """Result of the last verification."""
        self._verified_of: Seen | None = None
        self._verifying: threading.Thread | None = None
        self._next = 0.0
        self._kept: tempfile.TemporaryDirectory[str] | None = None
        """Directory of a damaged log's index."""

    @property
    def seen(self) -> Seen | None:
        """The ledger's files at the last check."""
        return self._seen

    def look(self) -> str | None:
        """Describe the damage to the ledger in a sentence; None if none is known."""
        with self._lock:
            seen = see_files(self._directory)
            if seen != self._seen:
                self._check()
                self._seen = seen
                if self._verified is not None:
                    self._next = 0.0  # verify at once whether the damage is still there
            self._verify_later(seen)
            return self._found or self._verified

    @contextlib.contextmanager
    def opened(self) -> Iterator[LedgerReader]:
        """Open the ledger; a damaged one as found."""
        self.look()
        with self._lock:
            kept = Path(self._kept.name) if self._kept else None
        if kept is None:
            with open_reader(self._directory) as ledger:
                yield ledger
            return
        with open_found(self._directory, kept) as found:
            yield found

    def _check(self) -> None:
        found, kept = None, None
        try:
            with open_reader(self._directory) as ledger:
                ledger.refresh()
        except (DamageError, NoteError) as error:
            found, kept = str(error), _index_found(self._directory)
        except LedgerError as error:
            # A log without a checkpoint is still a log.
            if has_lines(self._directory):
                found, kept = str(error), _index_found(self._directory)
        self._found = found
        if self._kept is not None:
            self._kept.cleanup()
        self._kept = kept

    def _verify_later(self, seen: Seen) -> None:
        """Hash all lines in the background, once after a change, at a limited rate."""
        is_busy = self._verifying is not None and self._verifying.is_alive()
        if seen == self._verified_of or is_busy or time.monotonic() < self._next:
            return
        self._verified_of = seen
        self._verifying = threading.Thread(
            target=self._verify, args=(seen,), name="verify", daemon=True
        )
        self._verifying.start()

    def _verify(self, seen: Seen) -> None:
        start = time.monotonic()
        sentence = _verify(self._directory)
        took = time.monotonic() - start
        with self._lock:
            # If files were replaced while they were read, the result is true of neither version.
            holds = sentence is None or is_grown(seen, see_files(self._directory))
            self._verified = sentence if holds else None
            self._verified_of = seen if holds else None
            self._next = time.monotonic() + max(_PAUSE, 10 * took)

    def close(self) -> None:
        """Discard what was kept; the next check finds it again."""
        self.wait()
        with self._lock:
            if self._kept is not None:
                self._kept.cleanup()
            self._kept = self._seen = None

    def wait(self) -> None:
        """Wait until a running verification has ended."""
        verifying = self._verifying
        if verifying is not None:
            verifying.join()


def _verify(directory: Path) -> str | None:
    try:
        result = verify_ledger(directory, fast=True)
    except ProctorError as error:
        return str(error)
    if result.is_sound:
        return None
    more = len(result.damage) - 1
    rest = f", and {count_of(more, 'further finding')}" if more else ""
    return f"{result.damage[0].message}{rest}; `proctor ledger verify` lists all"


def _index_found(directory: Path) -> tempfile.TemporaryDirectory[str]:
    kept = tempfile.TemporaryDirectory(prefix="proctor-view-")
    index_found(directory, Path(kept.name))
    return kept


# Rendered pages that are cached, and the most characters of one.
_PAGES, _LARGEST = 8, 4_000_000
_SHOWN = 80
_VERSIONS = 200
# Jobs whose trials are read in advance.
_PREPARED = 3


class DataSource:
    """A ledger or jobs, as shown by the pages."""

    def __init__(
        self,
        ledger: Path | None = None,
        jobs: tuple[Path, ...] = (),
        root: Path | None = None,
    ) -> None:
        self.ledger = ledger
        self.root = root
        """The directory of the jobs; None for a ledger, and for jobs that were named one by one."""
        self.directories = JobDirectories(jobs, root)
        """The jobs; those in `root` are listed as they come and go."""
        self.kept = LruCache[Markup](_PAGES, lambda page: len(page) <= _LARGEST)
        # Versions of experiments in the ledger, with the state of the ledger they belong to.
        self._versions: dict[str, tuple[object, str]] = {}
        self.health = Health(ledger) if ledger is not None else None

    @property
    def jobs(self) -> tuple[Path, ...]:
        """Job directories, identified by their names."""
        return tuple(job.directory for job in self.directories.all())

    def prepare(self) -> None:
        """Read what the first pages will show, before a request waits for it."""
        with contextlib.suppress(ProctorError):
            self.damage()
        jobs = sorted(self.directories.all(), key=JobFiles.changed_at, reverse=True)
        for job in jobs[:_PREPARED]:
            job.look()

    def close(self) -> None:
        """Delete temporary files."""
        if self.health is not None:
            self.health.close()

    def damage(self) -> str | None:
        """Describe the damage to the ledger in a sentence; None if none is known."""
        return self.health.look() if self.health is not None else None

    @contextlib.contextmanager
    def opened(self) -> Iterator[LedgerReader | None]:
        """Open the ledger for one request, a damaged one as found; None for jobs."""
        if self.health is None:
            yield None
            return
        with self.health.opened() as ledger:
            yield ledger

    def experiment(self, name: str) -> Experiment:
        """Load an experiment or a job with its trials.

        Raises:
            NotThereError: there is none of that name.
            DamageError: the ledger is damaged.
        """
        with self.opened() as ledger:
            found = load_sealed(ledger, _text(name)) if ledger is not None else None
        if self.health is None:
            job = self.directories.find(name)
            found = job.look() if job is not None else None
        if found is None:
            raise _no_experiment(name)
        return found

    def version(self, name: str) -> str:
        """Return a string that changes whenever the experiment does.

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
        with self.health.opened() as ledger, snapshot(ledger):
            found = ledger.index.experiment_version(_text(name))
        if found is None:
            raise _no_experiment(name)
        if len(self._versions) >= _VERSIONS:
            self._versions.clear()
        self._versions[name] = seen, found
        return found

    def has_ended(self, name: str) -> bool:
        """Whether an experiment is a job that reports to be finished."""
        job = self.directories.find(name) if self.ledger is None else None
        return job is not None and job.look().is_finished

    def trial_directory(self, experiment: str, trial: str) -> Path:
        """Return the directory of a trial of a job, or of an attempt kept in it.

        Raises:
            NotThereError: there is none of that name.
        """
        job = self.directories.find(experiment)
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


def find_row(ledger: LedgerReader, experiment: str, trial: str) -> TrialRow:
    """Find the sealed trial of exactly that name.

    Raises:
        NotThereError: there is none.
        DamageError: the log does not match its checkpoint.
    """
    wanted = TrialFilter(experiment=_text(experiment), trial=_text(trial))
    rows = list_trials(ledger, wanted)
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
    """Check that an index can be queried for a name."""
    if not name.isprintable():
        raise NotThereError(f"nothing is called {_shown(name)}")
    return name


def _shown(name: str) -> str:
    return repr(name if len(name) <= _SHOWN else f"{name[:_SHOWN]}…")
