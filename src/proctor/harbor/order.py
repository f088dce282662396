"""The order in which harbor added a job's trials up.

No file states it. A finished job was added up in the order of its plan, which lock.json keeps as
a list of (task, agent) slots; trials of equal slots follow each other as they were started. A
resumed job has its earlier trials first, in the order a directory listing once gave: only the
published lists of names still show it. An unfinished job was added up as its trials ended.
"""

import heapq
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from itertools import pairwise

import msgspec

from proctor.harbor.documents import AgentConfig, LockDocument, TrialConfigDocument
from proctor.harbor.trial import FoundTrial


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
