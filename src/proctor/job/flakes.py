"""Measure how often each task's tests agree with themselves: `<job>/flakes.json`.

It depends only on verify-again.json of the trials, so resume computes the same from the same
trials. Attempts that were moved aside are excluded. The flake rate is that of trial/flakes.py, over
the pairs of all trials; verifications of different trials are never paired because their states
differ.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from proctor.files import read_small
from proctor.trial.flakes import (
    Pairs,
    State,
    StateVerified,
    VerifiedAgain,
    count_pairs,
    parse_verified_again,
)

FLAKES = "flakes.json"


class TaskFlakes(msgspec.Struct, frozen=True, kw_only=True):
    """One task, or one of its steps, in one kind of state."""

    task: str
    task_checksum: str
    """The task's digest, as in results of its trials."""
    step: str | None
    """The step whose tests these are; null for a task without steps."""
    state: State
    """`frozen`, or the weaker `live`, in which each verification sees what the previous one did."""
    trials: list[str]
    """The trials that were verified again."""
    verifications: int
    """Number of verifications, including those that count."""
    results: int
    """Number of distinct results."""
    n_differing: int
    """Verifications whose result differs from the one that counts in their trial."""
    pairs: int
    """Pairs of verifications of the same state."""
    differing_pairs: int
    """Pairs whose results differ."""
    flake_rate: float
    """differing_pairs / pairs."""


class NotReverified(msgspec.Struct, frozen=True, kw_only=True):
    """A state that was not verified again, or not as often as requested."""

    trial: str
    step: str | None
    reason: str


class Flakes(msgspec.Struct, frozen=True, kw_only=True):
    """flakes.json."""

    n: int
    """Requested verifications of each state beyond the one that counts."""
    tasks: list[TaskFlakes]
    """Ordered by the first trial of each."""
    not_again: list[NotReverified]


@dataclass(slots=True)
class _Gathered:
    """Counts of one task so far."""

    trials: list[str] = field(default_factory=list)
    states: list[StateVerified] = field(default_factory=list)


type _Key = tuple[str, str, str | None, State]


def find_flakes(directory: Path, trials: Iterable[str], n: int) -> Flakes:
    """Compute the flakes of a job, task by task; trials without verify-again.json are skipped."""
    gathered: dict[_Key, _Gathered] = {}
    not_again: list[NotReverified] = []
    for trial in trials:
        try:
            found = parse_verified_again(read_small(f"{directory}/{trial}/verify-again.json"))
        except FileNotFoundError:
            continue
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            reason = f"verify-again.json cannot be read: {error}"
            not_again.append(NotReverified(trial=trial, step=None, reason=reason))
            continue
        for key, state in _keyed(found):
            known = gathered.setdefault(key, _Gathered())
            known.trials.append(trial)
            known.states.append(state)
        not_again += [
            NotReverified(trial=trial, step=state.step, reason=state.reason)
            for state in found.states
            if state.reason is not None
        ]
    tasks = [_add_up(key, known.trials, known.states) for key, known in gathered.items()]
    return Flakes(n=n, tasks=tasks, not_again=not_again)


def _keyed(found: VerifiedAgain) -> Iterator[tuple[_Key, StateVerified]]:
    """The states that were verified more than once."""
    for state in found.states:
        if state.state is not None and len(state.verifications) > 1:
            yield (found.task, found.task_checksum, state.step, state.state), state


def _add_up(key: _Key, trials: Sequence[str], states: Sequence[StateVerified]) -> TaskFlakes:
    task, checksum, step, kind = key
    results = [[each.result for each in state.verifications] for state in states]
    counted = [count_pairs(of_one) for of_one in results]
    pairs = Pairs(sum(one.pairs for one in counted), sum(one.differing for one in counted))
    return TaskFlakes(
        task=task,
        task_checksum=checksum,
        step=step,
        state=kind,
        trials=list(trials),
        verifications=sum(map(len, results)),
        results=len({result for of_one in results for result in of_one}),
        n_differing=sum(state.n_differing for state in states),
        pairs=pairs.pairs,
        differing_pairs=pairs.differing,
        flake_rate=pairs.rate or 0.0,
    )


def render_flakes(flakes: Flakes) -> bytes:
    """Render flakes.json."""
    return msgspec.json.format(msgspec.json.encode(flakes), indent=2)
