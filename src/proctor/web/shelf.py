"""The viewed jobs, by the names of their directories."""

import threading
import time
from pathlib import Path

from proctor.exchange.harbor_job import find_jobs
from proctor.web.job_files import JobFiles

# Seconds for which a list of jobs is reused.
_FRESH = 2.0
# Most trials kept in memory.
_MOST = 60_000


class JobShelf:
    """Jobs; the trials of recently viewed ones are kept in memory."""

    def __init__(self, jobs: tuple[Path, ...], root: Path | None = None) -> None:
        self._jobs = {job.name: JobFiles(job) for job in jobs}
        # The directory in which new jobs may appear.
        self._root = root
        self._at = time.monotonic()
        self._used: dict[str, None] = {}
        self._lock = threading.Lock()

    def all(self) -> list[JobFiles]:
        """All jobs that exist now."""
        with self._lock:
            self._list_again()
            return list(self._jobs.values())

    def find(self, name: str) -> JobFiles | None:
        """The job of that name."""
        with self._lock:
            self._list_again()
            job = self._jobs.get(name)
            if job is not None:
                self._keep(name)
            return job

    def _list_again(self) -> None:
        if self._root is None or time.monotonic() - self._at < _FRESH:
            return
        self._at = time.monotonic()
        found = {job.name: job for job in find_jobs(self._root) if job != self._root}
        self._jobs = {name: self._jobs.get(name) or JobFiles(job) for name, job in found.items()}

    def _keep(self, name: str) -> None:
        """Evict the trials of the least recently viewed jobs, if there are too many."""
        self._used.pop(name, None)
        self._used[name] = None
        self._used = {each: None for each in self._used if each in self._jobs}
        total = sum(self._jobs[each].size for each in self._used)
        for each in list(self._used)[:-1]:
            if total <= _MOST:
                break
            total -= self._jobs[each].size
            self._jobs[each].forget()
            del self._used[each]
