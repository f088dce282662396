"""One job directory as a value: its trials in order, what is broken in it, what is missing.

    <job>/
      result.json config.json lock.json     about the job as a whole
      proctor.json                          what proctor left out of its numbers
      <trial>/…                             one directory per trial

Reading salvages: a broken trial becomes a Problem and the others are kept. Only a directory that
is no job at all is an error.

No file states the order in which harbor added the trials up. A finished job was added up in the
order of its plan, which lock.json keeps as a list of (task, agent) slots; trials of equal slots
follow each other as they were started. A resumed job has its earlier trials first, in the order a
directory listing once gave: only the published lists of names still show it. An unfinished job was
added up as its trials ended.
"""

import errno
import heapq
import json
import os
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import pairwise
from pathlib import Path

import msgspec

from proctor.errors import JobError
from proctor.harbor.documents import (
    JOB,
    JOB_CONFIG,
    LOCK,
    STATE,
    AgentConfig,
    JobConfigDocument,
    JobDocument,
    LockDocument,
    StateDocument,
    TrialConfigDocument,
)
from proctor.harbor.trial import FoundTrial, load_trial
from proctor.json_values import MOST_VALUES, check_values
from proctor.reward.profile import DEFAULT_PROFILE, Profile


class PublishedResult:
    """What a job says of itself."""

    __slots__ = ("document", "evals", "stats")

    def __init__(self, document: JobDocument, path: str) -> None:
        self.document = document
        self.stats = parse_stats(bytes(document.stats), path)
        """`stats` as plain values; keys that occur twice have their lists joined."""
        evals = self.stats.get("evals")
        items = evals.items() if isinstance(evals, dict) else ()
        self.evals = {key: entry for key, entry in items if isinstance(entry, dict)}
        """The groups that have the shape of groups."""

    @property
    def finished(self) -> bool:
        """Whether the job ran to its end; a killed job leaves a file that looks like any other."""
        return self.document.finished_at is not None

    def count(self, name: str) -> int:
        """A counter of `stats`; 0 when it is missing or no whole number."""
        value = self.stats.get(name)
        return value if isinstance(value, int) and not isinstance(value, bool) else 0

    def metrics(self, key: str) -> list[dict[str, object]]:
        """The metric entries of a group."""
        entries = self.evals.get(key, {}).get("metrics")
        return (
            [entry for entry in entries if isinstance(entry, dict)]
            if isinstance(entries, list)
            else []
        )

    def chains(self) -> Iterator[list[str]]:
        """Lists of trial names, each in the order in which the trials were added up."""
        for entry in self.evals.values():
            rewards = entry.get("reward_stats")
            tables = list(rewards.values()) if isinstance(rewards, dict) else []
            for table in [*tables, entry.get("exception_stats")]:
                if isinstance(table, dict):
                    lists = [_names(value) for value in table.values()]
                    yield from lists
                    # Values and exceptions are listed as they first occurred.
                    yield [names[0] for names in lists if names]

    def names(self) -> set[str]:
        """Every trial that is mentioned."""
        return {name for chain in self.chains() for name in chain}


def load_published(path: str) -> PublishedResult:
    """The job result at path.

    Raises:
        JobError: unreadable, torn, or not a job's result.
    """
    return PublishedResult(JOB.load(path), path)


def parse_stats(data: bytes, path: str) -> dict[str, object]:
    """`stats` as plain values, with joined lists where a key occurs twice, as several nan do."""
    try:
        check_values(data, 4 * MOST_VALUES)
        stats = json.loads(data, object_pairs_hook=_join_pairs)
    except (ValueError, RecursionError) as error:
        raise JobError(f"{path}: stats is torn or not JSON: {error}") from error
    if not isinstance(stats, dict):
        raise JobError(f"{path}: stats is a JSON {type(stats).__name__}; expected an object")
    return stats


def _join_pairs(pairs: list[tuple[str, object]]) -> dict[str, object]:
    joined: dict[str, object] = {}
    for key, value in pairs:
        earlier = joined.get(key)
        if isinstance(earlier, list) and isinstance(value, list):
            earlier.extend(value)
        else:
            joined[key] = value
    return joined


def _names(value: object) -> list[str]:
    return [name for name in value if isinstance(name, str)] if isinstance(value, list) else []


class OrderBasis(StrEnum):
    """What the order of a job's trials was taken from."""

    PLAN = "the plan in lock.json"
    STARTED = "the time each started"
    FINISHED = "the time each ended"
    PUBLISHED = "the lists published in result.json"


class Ordered(msgspec.Struct, frozen=True):
    """Trials in the order harbor added them up, as far as it can be known."""

    trials: list[FoundTrial]
    basis: OrderBasis
    contradicted: bool = False
    """The published lists fit no single order of the trials."""
    certain: bool = False
    """No other order could have been taken: every slot of the plan has one trial."""


type Slot = tuple[str | None, ...]


def order_finished(
    trials: Sequence[FoundTrial], lock: LockDocument | None, chains: Iterable[Sequence[str]]
) -> Ordered:
    """Trials of a finished job: by plan, unless the published lists of names say otherwise."""
    planned = sorted(trials, key=_started)
    basis = OrderBasis.STARTED
    if lock is not None:
        planned, basis = _by_plan(planned, lock), OrderBasis.PLAN
    chains = [list(chain) for chain in chains]
    place = {found.trial.name: index for index, found in enumerate(planned)}
    if all(_ascending(chain, place) for chain in chains):
        slots = {slot_of(found.document.config) for found in planned}
        certain = basis is OrderBasis.PLAN and len(slots) == len(planned)
        return Ordered(planned, basis, certain=certain)
    merged = _merge(chains, place, len(planned))
    if merged is None:
        return Ordered(planned, basis, contradicted=True)
    return Ordered([planned[index] for index in merged], OrderBasis.PUBLISHED)


def order_unfinished(trials: Sequence[FoundTrial]) -> Ordered:
    """Trials of a job that is running or was stopped: as they ended."""
    return Ordered(sorted(trials, key=_finished), OrderBasis.FINISHED)


def _started(found: FoundTrial) -> tuple[str, str]:
    return (moment(found.document.started_at), found.trial.name)


def _finished(found: FoundTrial) -> tuple[str, str]:
    return (moment(found.document.finished_at), found.trial.name)


def moment(written: str | None) -> str:
    """A time of one clock as text that sorts as times do."""
    # A time on the full second has no fraction, and its Z would sort after every fraction.
    return (written or "").removesuffix("Z")


def find_unplanned(trials: Sequence[FoundTrial], lock: LockDocument) -> list[FoundTrial]:
    """Trials for which the plan has no slot left."""
    return _others(trials, _fill_slots(trials, lock))


def _by_plan(trials: Sequence[FoundTrial], lock: LockDocument) -> list[FoundTrial]:
    placed = _fill_slots(trials, lock)
    return placed + _others(trials, placed)


def _others(trials: Sequence[FoundTrial], placed: Sequence[FoundTrial]) -> list[FoundTrial]:
    taken = set(map(id, placed))
    return [found for found in trials if id(found) not in taken]


def _fill_slots(trials: Sequence[FoundTrial], lock: LockDocument) -> list[FoundTrial]:
    """Trials that fit the planned slots, in the order of the slots; of equal ones the first."""
    waiting: dict[Slot, deque[FoundTrial]] = {}
    for found in trials:
        waiting.setdefault(slot_of(found.document.config), deque()).append(found)
    placed = []
    for planned in lock.trials:
        if queue := waiting.get(slot_of(planned)):
            placed.append(queue.popleft())
    return placed


def slot_of(config: TrialConfigDocument) -> Slot:
    """The task and agent that a trial is planned for."""
    return (*config.task.identity, *agent_slot(config.agent))


def agent_slot(agent: AgentConfig) -> Slot:
    """What tells the agents of a job apart."""
    kwargs = ""
    if agent.kwargs:
        kwargs = msgspec.json.encode(agent.kwargs, order="deterministic").decode()
    return (agent.name or agent.import_path, agent.model_name, kwargs)


def _ascending(chain: Sequence[str], place: Mapping[str, int]) -> bool:
    places = [place[name] for name in chain if name in place]
    return all(left < right for left, right in pairwise(places))


def _merge(
    chains: Iterable[Sequence[str]], place: Mapping[str, int], n_places: int
) -> list[int] | None:
    """Places in an order that keeps every chain, the earliest place first; None if there is none.

    Two trials of one name have two places, of which `place` knows the later.
    """
    after: list[list[int]] = [[] for _ in range(n_places)]
    waiting_for = [0] * n_places
    for chain in chains:
        places = [place[name] for name in chain if name in place]
        for left, right in pairwise(places):
            after[left].append(right)
            waiting_for[right] += 1
    ready = [index for index, count in enumerate(waiting_for) if count == 0]
    merged = []
    while ready:
        index = heapq.heappop(ready)
        merged.append(index)
        for follower in after[index]:
            waiting_for[follower] -= 1
            if waiting_for[follower] == 0:
                heapq.heappush(ready, follower)
    return merged if len(merged) == n_places else None


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
"""Called now and then with how many trials of how many have been read."""

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
