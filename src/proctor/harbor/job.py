"""One job directory as a value: its trials in order, broken and missing ones.

    <job>/
      result.json config.json lock.json     about the job as a whole
      proctor.json                          what proctor left out of its numbers
      <trial>/…                             one directory per trial

Reading is lenient: a broken trial becomes a Problem and the others are kept. Only a directory that
is not a job at all is an error.

No file records the order in which harbor added up the trials. A finished job was added up in the
order of its plan, which lock.json has as a list of (task, agent) slots; trials of equal slots are
ordered by start. A resumed job has its earlier trials first, in the order of a directory listing:
only the published lists of names still show it. An unfinished job was added up as its trials ended.
"""

import errno
import glob
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
    is_trial,
)
from proctor.harbor.trial import FoundTrial, load_trial
from proctor.json_values import MOST_VALUES, check_values
from proctor.reward.profile import DEFAULT_PROFILE, Profile
from proctor.sentence import count_of


class PublishedResult:
    """A job's published result.json."""

    __slots__ = ("document", "evals", "stats")

    def __init__(self, document: JobDocument, path: str) -> None:
        self.document = document
        self.stats = parse_stats(bytes(document.stats), path)
        """`stats` as plain values; keys that occur twice have their lists joined."""
        evals = self.stats.get("evals")
        items = evals.items() if isinstance(evals, dict) else ()
        self.evals = {key: entry for key, entry in items if isinstance(entry, dict)}
        """The groups that have the form of groups."""

    @property
    def finished(self) -> bool:
        """Whether the job ran to its end; the file of a killed job looks the same otherwise."""
        return self.document.finished_at is not None

    def count(self, name: str) -> int:
        """A counter of `stats`; 0 if it is missing or not a whole number."""
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
                    # Values and exceptions are listed in order of first occurrence.
                    yield [names[0] for names in lists if names]

    def names(self) -> set[str]:
        """Every trial that is mentioned."""
        return {name for chain in self.chains() for name in chain}


def load_published(path: str) -> PublishedResult:
    """Load a job's result.json."""
    return PublishedResult(JOB.load(path), path)


def parse_stats(data: bytes, path: str) -> dict[str, object]:
    """Parse `stats`; lists of a key that occurs twice, as several nan do, are joined."""
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
    """Where the order of a job's trials is taken from."""

    PLAN = "the plan in lock.json"
    STARTED = "the time each started"
    FINISHED = "the time each ended"
    PUBLISHED = "the lists published in result.json"


class Ordered(msgspec.Struct, frozen=True):
    """Trials in the order in which harbor added them up, as far as it is known."""

    trials: list[FoundTrial]
    basis: OrderBasis
    contradicted: bool = False
    """The published lists contradict every order of the trials."""
    certain: bool = False
    """No other order is possible: every slot of the plan has one trial."""


type Slot = tuple[str | None, ...]


def order_finished(
    trials: Sequence[FoundTrial], lock: LockDocument | None, chains: Iterable[Sequence[str]]
) -> Ordered:
    """Order the trials of a finished job by plan, unless the published lists contradict it."""
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
    """Order the trials of a running or stopped job by their end."""
    return Ordered(sorted(trials, key=_finished), OrderBasis.FINISHED)


def _started(found: FoundTrial) -> tuple[str, str]:
    return (moment(found.document.started_at), found.trial.name)


def _finished(found: FoundTrial) -> tuple[str, str]:
    return (moment(found.document.finished_at), found.trial.name)


def moment(written: str | None) -> str:
    """Convert a time to text that sorts chronologically."""
    # Without a fraction, the Z of a full second would sort after every fraction.
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
    """Trials that fit the planned slots, in slot order; of equal ones the first."""
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
    """What identifies an agent within a job."""
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
    """An order of indexes that keeps every chain, the lowest first; None if there is none.

    Two trials with one name have two indexes, of which `place` has the later.
    """
    after: list[list[int]] = [[] for _ in range(n_places)]
    waiting_for = [0] * n_places
    for chain in chains:
        places = [place[name] for name in chain if name in place]
        for left, right in pairwise(places):
            after[left].append(right)
            waiting_for[right] += 1
    # Kahn's topological sort; the heap keeps the planned order where the chains leave it open.
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
    """A file or directory that could not be used, with the reason."""

    path: str
    message: str
    is_linked: bool = False
    """A link that was not followed, because it leads out of the trial or the job."""


class Job(msgspec.Struct, frozen=True):
    """A job directory."""

    directory: str
    published: PublishedResult | None
    """None if result.json is missing or broken."""
    config: JobConfigDocument | None
    lock: LockDocument | None
    ordered: Ordered
    unfinished: list[str]
    """Trial directories without a result.json: the trial was killed, or is running."""
    broken: list[Problem]
    """Trial directories with an unusable result.json."""
    problems: list[Problem]
    """Other unusable files."""
    set_aside: list[str] = []
    """Trial directories of earlier plans, according to proctor.json: they are in no number."""
    refused: list[str] = []
    """Paths of tasks that could not be run, according to proctor.json."""
    cwd: str | None = None
    """Directory that relative paths start from, according to proctor.json."""
    profile: Profile = DEFAULT_PROFILE
    """The rules by which its rewards were read."""

    @property
    def name(self) -> str:
        """The name of the directory."""
        return os.path.basename(os.path.abspath(self.directory))

    @property
    def trials(self) -> list[FoundTrial]:
        """Trials in the order in which they are added up."""
        return self.ordered.trials

    @property
    def finished(self) -> bool:
        """Whether the job ran to its end, according to harbor."""
        return self.published is not None and self.published.finished

    @property
    def n_planned(self) -> int:
        """Number of planned trials, from the best available source."""
        if self.published is not None:
            return self.published.document.n_total_trials
        if self.lock is not None:
            return len(self.lock.trials)
        return len(self.trials) + len(self.unfinished) + len(self.broken)

    def attempts(self) -> dict[tuple[str, str], int]:
        """Attempts by evals key and task: the planned number, or the number found if larger."""
        found = Counter((found.trial.evals_key, found.trial.task) for found in self.trials)
        planned = (self.config.n_attempts if self.config else None) or 0
        return {slot: max(planned, n) for slot, n in found.items()}


type Watch = Callable[[int, int], None]
"""Called from time to time with the number of trials read, and their total."""

_WATCH_EVERY = 500


def load_job(directory: str, profile: Profile | None = None, watch: Watch | None = None) -> Job:
    """Load the job in a directory.

    Without a profile, rewards are read as by the harbor release in lock.json; by the default rules
    if there is none.
    """
    # Normalise: `job/` and `./job` are the same job, and so are the paths of their trials.
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
    profile = profile or (lock.harbor.profile if lock else DEFAULT_PROFILE)
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
        profile=profile,
    )


def _load_trials(
    paths: Sequence[str], profile: Profile, watch: Watch | None
) -> tuple[list[FoundTrial], list[str], list[Problem]]:
    """Return readable trials, directories of unfinished ones, and broken ones."""
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
    """List subdirectories, sorted by name, and trials that are links to other places."""
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
    """Whether an entry is a directory, and not a link back to the job or its parents."""
    try:
        if not entry.is_dir():
            return False
    except OSError:  # a cycle of links, or one that may not be followed
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


def _check_not_own_runner(directory: str) -> None:
    """Refuse a job of agent-challenge's own_runner, which has its trials one level deeper."""
    found = sorted(glob.glob(f"{glob.escape(directory)}/trials/*/result.json"))
    if found:
        raise JobError(
            f"{directory}: a job directory of own_runner ({count_of(len(found), 'trial')} in "
            "trials/, without harbor's trial results); expected a Harbor job directory. Judge such "
            "a run by its output: `proctor outcome --stdout FILE --exit-code N`"
        )


def _check_is_job(directory: str, remains: Sequence[object], *parts: object) -> None:
    """Refuse a directory that has neither trials, nor remains of trials, nor files of a job."""
    if is_trial(directory):
        around = os.path.dirname(os.path.abspath(directory))
        raise JobError(
            f"{directory}: this is one trial; expected the job directory around it ({around})"
        )
    _check_not_own_runner(directory)
    if any(part is not None for part in parts):
        return
    with os.scandir(directory) as entries:
        names = sorted(entry.name for entry in entries)
    if not names:
        raise JobError(f"{directory}: empty directory; expected a Harbor job directory")
    inside = {name: os.path.join(directory, name) for name in names}
    jobs = [
        name
        for name, path in inside.items()
        if os.path.exists(f"{path}/lock.json") and not is_trial(path)
    ]
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
