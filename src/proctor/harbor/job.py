"""One job directory as a value: its trials in order, what is broken in it, what is missing.

    <job>/
      result.json config.json lock.json     about the job as a whole
      proctor.json                          what proctor left out of its numbers
      <trial>/…                             one directory a trial

Reading salvages: a broken trial becomes a Problem and the others are kept. Only a directory that
is no job at all is an error.
"""

import errno
import os
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from proctor.errors import JobError
from proctor.harbor.documents import (
    JOB_CONFIG,
    LOCK,
    STATE,
    JobConfigDocument,
    LockDocument,
    StateDocument,
)
from proctor.harbor.order import Ordered, order_finished, order_unfinished
from proctor.harbor.published import PublishedResult, load_published
from proctor.harbor.trial import FoundTrial, load_trial
from proctor.reward.profile import DEFAULT_PROFILE, Profile


class Problem(msgspec.Struct, frozen=True):
    """A file or directory that could not be used, and why."""

    path: str
    message: str
    is_linked: bool = False
    """A link that is not followed: it leads out of the trial, or out of the job."""


class Job(msgspec.Struct, frozen=True):
    """A job directory, read."""

    directory: str
    published: PublishedResult | None
    """None when result.json is missing or broken."""
    config: JobConfigDocument | None
    lock: LockDocument | None
    ordered: Ordered
    unfinished: list[str]
    """Trial directories without a result.json: the trial was killed, or is running."""
    broken: list[Problem]
    """Trial directories whose result.json cannot be used."""
    problems: list[Problem]
    """Other files that cannot be used."""
    set_aside: list[str] = []
    """Trial directories of earlier plans, as proctor.json says: they are in no number."""
    refused: list[str] = []
    """Paths of tasks that could not be run, as proctor.json says."""
    cwd: str | None = None
    """Where the job's relative paths start from, as proctor.json says."""

    @property
    def name(self) -> str:
        """The directory's own name."""
        return os.path.basename(os.path.abspath(self.directory))

    @property
    def trials(self) -> list[FoundTrial]:
        """Trials in the order they are added up."""
        return self.ordered.trials

    @property
    def finished(self) -> bool:
        """Whether harbor says that the job ran to its end."""
        return self.published is not None and self.published.finished

    @property
    def n_planned(self) -> int:
        """Trials that were to be run, by the best source there is."""
        if self.published is not None:
            return self.published.document.n_total_trials
        if self.lock is not None:
            return len(self.lock.trials)
        return len(self.trials) + len(self.unfinished) + len(self.broken)

    def attempts(self) -> dict[tuple[str, str], int]:
        """Attempts by evals key and task: as many as were planned, or as were found if more."""
        found = Counter((found.trial.evals_key, found.trial.task) for found in self.trials)
        planned = (self.config.n_attempts if self.config else None) or 0
        return {slot: max(planned, n) for slot, n in found.items()}


type Watch = Callable[[int, int], None]
"""Told now and then how many trials of how many have been read."""

_WATCH_EVERY = 500


def load_job(directory: str, profile: Profile = DEFAULT_PROFILE, watch: Watch | None = None) -> Job:
    """The job in a directory.

    Raises:
        JobError: the path is no job directory; says what it is instead.
    """
    # `job/` and `./job` are the same job, and so are the places of their trials.
    directory = str(Path(directory))
    entries, linked = _trial_entries(directory)
    problems: list[Problem] = []
    published = _load_part(load_published, f"{directory}/result.json", problems)
    config = _load_part(JOB_CONFIG.load, f"{directory}/config.json", problems)
    lock = _load_part(LOCK.load, f"{directory}/lock.json", problems)
    state = _load_part(STATE.load, f"{directory}/proctor.json", problems) or StateDocument()
    earlier = {named.trial for named in state.unplanned}
    set_aside = [path for path in entries if os.path.basename(path) in earlier]
    entries = [path for path in entries if os.path.basename(path) not in earlier]
    trials, unfinished, broken = _load_trials(entries, profile, watch)
    broken += linked
    if not trials:
        _check_is_job(directory, unfinished or broken, published, config, lock)
    if published is None or published.finished:
        chains = published.chains() if published else ()
        ordered = order_finished(trials, lock, chains)
    else:
        ordered = order_unfinished(trials)
    return Job(
        directory=directory,
        published=published,
        config=config,
        lock=lock,
        ordered=ordered,
        unfinished=unfinished,
        broken=broken,
        problems=problems,
        set_aside=set_aside,
        refused=state.refused,
        cwd=state.cwd,
    )


def _load_trials(
    paths: Sequence[str], profile: Profile, watch: Watch | None
) -> tuple[list[FoundTrial], list[str], list[Problem]]:
    """The trials that can be read, the directories of unfinished ones, and the broken ones."""
    trials: list[FoundTrial] = []
    unfinished: list[str] = []
    broken: list[Problem] = []
    for index, path in enumerate(paths, 1):
        try:
            trials.append(load_trial(path, profile))
        except JobError as error:
            missing = isinstance(error.__cause__, FileNotFoundError)
            if not missing or os.path.lexists(f"{path}/result.json"):
                broken.append(_problem(path, error))
            elif _is_trial_directory(path):
                unfinished.append(path)
        if watch is not None and (index % _WATCH_EVERY == 0 or index == len(paths)):
            watch(index, len(paths))
    return trials, unfinished, broken


def _problem(path: str, error: JobError) -> Problem:
    cause = error.__cause__
    return Problem(path, str(error), isinstance(cause, OSError) and cause.errno == errno.EXDEV)


def _trial_entries(directory: str) -> tuple[list[str], list[Problem]]:
    """Paths of the subdirectories, sorted by name, and trials that are links to elsewhere."""
    try:
        with os.scandir(directory) as entries:
            found = [entry for entry in entries if _leads_down(entry, directory)]
        paths = sorted(each.path.removeprefix("./") for each in found if not each.is_symlink())
        links = sorted(each.path.removeprefix("./") for each in found if each.is_symlink())
        return paths, [_say_linked(path) for path in links if _holds_trial(path)]
    except FileNotFoundError as error:
        raise JobError(
            f"{directory}: no such directory; expected a Harbor job directory"
        ) from error
    except NotADirectoryError as error:
        raise JobError(
            f"{directory}: this is a file; expected a Harbor job directory "
            "(the one that holds result.json, config.json and one directory a trial)"
        ) from error
    except OSError as error:
        raise JobError(f"{directory}: cannot be read: {error.strerror}") from error


def _holds_trial(path: str) -> bool:
    return os.path.lexists(f"{path}/result.json") or _is_trial_directory(path)


def _say_linked(path: str) -> Problem:
    message = f"{path}: a link to a trial elsewhere, not followed; expected the trial's directory"
    return Problem(path, message, is_linked=True)


def _leads_down(entry: os.DirEntry[str], directory: str) -> bool:
    """Whether it is a directory, and no link back to the job or to what is around it."""
    try:
        if not entry.is_dir():
            return False
    except OSError:  # a loop of links, or one that may not be followed
        return False
    if not entry.is_symlink():
        return True
    target = os.path.realpath(entry.path)
    return os.path.commonpath((target, os.path.realpath(directory))) != target


def _is_trial_directory(path: str) -> bool:
    return any(os.path.exists(f"{path}/{name}") for name in ("config.json", "trial.log"))


def _load_part[T](load: Callable[[str], T], path: str, problems: list[Problem]) -> T | None:
    if not os.path.lexists(path):
        return None
    try:
        return load(path)
    except JobError as error:
        problems.append(_problem(path, error))
        return None


def _check_is_job(directory: str, remains: Sequence[object], *parts: object) -> None:
    """Refuse a directory without any trial, unless remains of one or files of a job are there."""
    if os.path.exists(f"{directory}/trial.log") or os.path.isdir(f"{directory}/verifier"):
        around = os.path.dirname(os.path.abspath(directory))
        raise JobError(
            f"{directory}: this is one trial; expected the job directory around it ({around})"
        )
    if any(part is not None for part in parts):
        return
    with os.scandir(directory) as entries:
        names = sorted(entry.name for entry in entries)
    if not names:
        raise JobError(f"{directory}: empty directory; expected a Harbor job directory")
    jobs = [name for name in names if os.path.exists(f"{directory}/{name}/lock.json")]
    if jobs:
        raise JobError(
            f"{directory}: holds {len(jobs)} job directories, not one job; "
            f"name the job, for example {os.path.join(directory, jobs[0])}"
        )
    if not remains:
        raise JobError(
            f"{directory}: not a Harbor job directory: no result.json, config.json or lock.json "
            "and no directory of a trial"
        )
