"""The viewed job directories, read repeatedly while their jobs may be running.

A trial is read once, and again if its result or its reward file changes. Files that vanish or are
half written are reported and never an error. Links are not followed, and names come only from the
directory's own listing, never from a request.
"""

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from proctor.errors import JobError, NotSealedError
from proctor.exchange.harbor_job import find_jobs
from proctor.exchange.harbor_trial import time_phases
from proctor.harbor.documents import JOB, LOCK, STATE, JobDocument, TimedPhase, load_details
from proctor.harbor.job import PublishedResult
from proctor.harbor.record import find_seconds
from proctor.harbor.render import render_json
from proctor.harbor.trial import load_trial
from proctor.ledger.counting import ATTEMPT, NOT_COUNTED, RESTARTED, SET_ASIDE, UNSEALED
from proctor.ledger.row import NOT_IN_A_LOG, TrialRow
from proctor.ledger.submission import ATTEMPTS, list_attempts
from proctor.record.ids import shown_name
from proctor.report.in_jobs import make_row
from proctor.web.experiment import BROKEN, RUNNING, Experiment
from proctor.web.live_cost import LiveCosts

# Seconds for which a reading of a job is reused, by whether the job has finished.
_FRESH = {False: 0.5, True: 2.0}
# Seconds for which the costs of running trials are reused: new ones make a page load again.
_COSTS_FRESH = 3.0
_LONGEST = 300
_REWARDS = ("verifier/reward.txt", "verifier/reward.json")

type Stamp = tuple[int, int, int]
"""Inode, size and time of modification."""
type _Unfinished = tuple[bool, Stamp | None, float | None]
"""Of a trial without a result: whether it has begun, the stamp of its kept attempts, its cost."""


@dataclass(frozen=True, slots=True)
class _Read:
    """A trial as it was last read."""

    stamp: Stamp | None
    """Of its result.json; None if there was none."""
    reward: str | None
    """The reward file that was there."""
    reward_stamp: Stamp | None
    trials: tuple[TrialRow, ...]
    """The kept attempts and the trial itself."""
    unfinished: _Unfinished | None = None


@dataclass(frozen=True, slots=True)
class JobSummary:
    """Contents of a job's own files, without its trials."""

    stamps: tuple[Stamp | None, ...] = ()
    """Stamps of the files."""
    planned: int | None = None
    is_finished: bool = False
    completed: int | None = None
    """Number of finished trials by result.json; None without one."""
    errored: int | None = None
    cost_usd: float | None = None
    seconds: float | None = None
    """From the start of the job to its end."""
    aside: frozenset[str] = frozenset()
    problems: tuple[str, ...] = ()
    published: dict[str, str] = field(default_factory=dict)


class JobFiles:
    """One job's directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._lock = threading.Lock()
        self._trials: dict[str, _Read] = {}
        self._about = JobSummary()
        self._found: Experiment | None = None
        self._made_with: JobSummary | None = None
        self._at = 0.0
        self._changes = time.time_ns()
        self._live_costs = LiveCosts()
        self._costs: dict[str, float] = {}
        """What trials without a result have cost so far, by directory."""
        self._costs_at = -_COSTS_FRESH

    @property
    def size(self) -> int:
        """Number of trials kept in memory."""
        return len(self._trials)

    def forget(self) -> None:
        """Discard what was read."""
        with self._lock:
            self._trials, self._found, self._about = {}, None, JobSummary()

    def look(self) -> Experiment:
        """The job as of now or a moment ago."""
        with self._lock:
            found = self._found
            if found is not None and time.monotonic() - self._at < _FRESH[found.is_finished]:
                return found
            self._read_about()
            has_changed = self._read_trials()
            self._at = time.monotonic()
            if found is None or has_changed or self._made_with is not self._about:
                self._changes += 1
                self._made_with = self._about
                found = self._found = self._make()
            return found

    def glance(self) -> JobSummary:
        """The current contents of the job's own files."""
        with self._lock:
            self._read_about()
            return self._about

    def live_cost(self) -> float | None:
        """What trials without a result have cost so far, as far as it is known."""
        with self._lock:
            if self._about.is_finished:
                return None
            self._read_costs()
            return sum(self._costs.values()) if self._costs else None

    def changed_at(self) -> float:
        """When its result or directory was last written, in seconds; 0 if it is gone."""
        for path in (self.directory / "result.json", self.directory):
            with contextlib.suppress(OSError):
                return path.lstat().st_mtime
        return 0.0

    def _make(self) -> Experiment:
        about = self._about
        return Experiment(
            name=self.directory.name,
            trials=[row for name in sorted(self._trials) for row in self._trials[name].trials],
            is_finished=about.is_finished,
            is_job=True,
            version=str(self._changes),
            planned=about.planned,
            problems=about.problems,
            published=about.published,
        )

    def _read_about(self) -> None:
        """Read the job's own files if they changed."""
        names = ("result.json", "lock.json", "proctor.json")
        stamps = tuple(_stamp(f"{self.directory}/{name}") for name in names)
        if stamps == self._about.stamps:
            return
        problems: list[str] = []
        place = str(self.directory)
        result = _load(JOB.load, f"{place}/result.json", stamps[0], problems)
        # The lock is only needed for the number of trials, which result.json has too.
        lock = _load(LOCK.load, f"{place}/lock.json", stamps[1], problems) if not result else None
        state = _load(STATE.load, f"{place}/proctor.json", stamps[2], problems)
        published = _find_published(result, place, problems)
        self._about = JobSummary(
            stamps=stamps,
            planned=result.n_total_trials if result else len(lock.trials) if lock else None,
            is_finished=result is not None and result.finished_at is not None,
            aside=frozenset(named.trial for named in state.unplanned) if state else frozenset(),
            completed=published.count("n_completed_trials") if published else None,
            errored=published.count("n_errored_trials") if published else None,
            cost_usd=_find_cost(published),
            seconds=_find_seconds(result) if result else None,
            published=_find_metrics(published),
            problems=tuple(problems),
        )

    def _read_costs(self) -> None:
        if time.monotonic() - self._costs_at < _COSTS_FRESH:
            return
        places: list[str] = []
        with contextlib.suppress(OSError):
            places = [f"{self.directory}/{name}" for name in _list_directories(self.directory)]
        running = [place for place in places if _stamp(f"{place}/result.json") is None]
        self._costs = self._live_costs.find(running)
        self._costs_at = time.monotonic()

    def _read_trials(self) -> bool:
        """Read new and changed trials; return whether there were any."""
        try:
            names = list(_list_directories(self.directory))
            # Stat relative to a descriptor: the kernel need not resolve the job's path for each of
            # thousands of trials.
            root = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            problem = f"{self.directory}: cannot be read: {error.strerror}"
            if self._about.problems != (problem,):
                self._about = JobSummary(stamps=self._about.stamps, problems=(problem,))
            self._trials = {}
            return False
        if not self._about.is_finished:
            self._read_costs()
        try:
            read = {name: self._read_trial(name, root) for name in names}
        finally:
            os.close(root)
        found = {name: each for name, each in read.items() if each is not None}
        has_changed = len(found) != len(self._trials) or any(
            self._trials.get(name) is not each for name, each in found.items()
        )
        self._trials = found
        return has_changed

    def _read_trial(self, name: str, root: int) -> _Read | None:
        known, place = self._trials.get(name), f"{self.directory}/{name}"
        stamp = _stamp(f"{name}/result.json", root)
        status = SET_ASIDE if name in self._about.aside else UNSEALED
        if stamp is None:
            kept = _stamp(f"{name}/{ATTEMPTS}", root)
            state = _has_begun(place), kept, self._costs.get(place)
            is_same = known is not None and known.unfinished == state
            return known if is_same else self._read_unfinished(name, place, status, state)
        if known is not None and known.stamp == stamp:
            reward = known.reward
            # The reward file is checked too: it decides the score, and may be edited without
            # result.json.
            if reward is None or _stamp(f"{name}/{reward}", root) == known.reward_stamp:
                return known
        reward, reward_stamp = _find_reward_file(name, root)
        trials = (*self._read_attempts(name, place, status), self._read(name, place, status))
        return _Read(stamp, reward, reward_stamp, trials)

    def _read_unfinished(
        self, name: str, place: str, status: str, state: _Unfinished
    ) -> _Read | None:
        """A trial without a result, or only its earlier attempts; None if it is no trial."""
        has_begun, _, usd = state
        rows = [*self._read_attempts(name, place, status)]
        if has_begun:
            rows.append(self._make_unread(name, place, RUNNING, cost_usd=usd))
        return _Read(None, None, None, tuple(rows), state) if rows else None

    def _read_attempts(self, name: str, place: str, status: str) -> Iterator[TrialRow]:
        """The attempts kept in a trial; unreadable ones are reported with the trial."""
        kept = status if status == SET_ASIDE else RESTARTED
        with contextlib.suppress(NotSealedError):
            for attempt in list_attempts(Path(place)):
                if not attempt.is_symlink():
                    yield self._read(f"{name}{ATTEMPT}{attempt.name}", str(attempt), kept)

    def _read(self, name: str, place: str, status: str) -> TrialRow:
        try:
            found = load_trial(place)
            timing = time_phases(load_details(place))
        except JobError as error:
            status = status if status in NOT_COUNTED else BROKEN
            return self._make_unread(name, place, status, exception=_cut(str(error)))
        # No record is made, as `load_jobs` does: a list of thousands of trials must not wait for
        # gigabytes of traces.
        return make_row(found, self.directory.name, name=name, status=status, timing=timing)

    def _make_unread(
        self,
        name: str,
        place: str,
        status: str,
        *,
        exception: str | None = None,
        cost_usd: float | None = None,
    ) -> TrialRow:
        """A trial whose result is not there or cannot be read."""
        return TrialRow(
            NOT_IN_A_LOG,
            self.directory.name,
            name,
            record="",
            status=status,
            task_id=shown_name(name.rpartition("__")[0] or name),
            exception=exception,
            cost_usd=cost_usd,
            place=place,
        )


def _has_begun(place: str) -> bool:
    # Other directories may be in a job; a trial writes one of these first.
    return any(os.path.lexists(f"{place}/{each}") for each in ("config.json", "trial.log"))


def _list_directories(directory: Path) -> Iterator[str]:
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield entry.name


def _stamp(path: str, root: int | None = None) -> Stamp | None:
    try:
        found = os.stat(path, dir_fd=root, follow_symlinks=False)
    except (OSError, ValueError):
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def _find_reward_file(name: str, root: int) -> tuple[str | None, Stamp | None]:
    for reward in _REWARDS:
        stamp = _stamp(f"{name}/{reward}", root)
        if stamp is not None:
            return reward, stamp
    return None, None


def _load[T](
    load: Callable[[str], T], path: str, stamp: Stamp | None, problems: list[str]
) -> T | None:
    if stamp is None:
        return None
    try:
        return load(path)
    except JobError as error:
        problems.append(_cut(str(error)))
        return None


def _find_published(
    result: JobDocument | None, place: str, problems: list[str]
) -> PublishedResult | None:
    if result is None:
        return None
    try:
        return PublishedResult(result, f"{place}/result.json")
    except JobError as error:
        problems.append(_cut(str(error)))
        return None


def _find_metrics(published: PublishedResult | None) -> dict[str, str]:
    """All metrics in result.json, by group and metric."""
    if published is None:
        return {}
    return {
        f"{group}: {name}": render_json(value)
        for group in published.evals
        for entry in published.metrics(group)
        for name, value in entry.items()
        if isinstance(value, int | float)
    }


def _find_cost(published: PublishedResult | None) -> float | None:
    """The cost of all trials by result.json."""
    cost = published.stats.get("cost_usd") if published else None
    return float(cost) if isinstance(cost, int | float) and not isinstance(cost, bool) else None


def _find_seconds(result: JobDocument) -> float | None:
    try:
        return find_seconds(msgspec.convert(result, TimedPhase, from_attributes=True))
    except msgspec.ValidationError:
        return None


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "…"


# Seconds for which a list of jobs is reused.
_LIST_FRESH = 2.0
# Most trials kept in memory.
_MOST = 60_000


class JobDirectories:
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
        if self._root is None or time.monotonic() - self._at < _LIST_FRESH:
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
