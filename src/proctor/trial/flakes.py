"""Measure how often a task's tests agree with themselves on the same state.

A result is a text: rewards to the last bit and with their types, or the type of the exception. Two
results are equal if their texts are. The flake rate is the share of differing pairs among all pairs
of verifications of one state, including the one that counts: an unbiased estimate of the
probability that two verifications of the same work disagree. Does not run anything or change
scores.
"""

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import msgspec

from proctor.harbor.render import render_json
from proctor.reward.number import Number, json_number
from proctor.task.directory import Step
from proctor.trial.changes import LeftOut
from proctor.trial.clean_room_result import Verification
from proctor.trial.environment import Process

type State = Literal["frozen", "live"]

FROZEN: State = "frozen"
LIVE: State = "live"


class Pairs(msgspec.Struct, frozen=True):
    """Pairs of verifications of the same state."""

    pairs: int
    """Number of pairs."""
    differing: int
    """Pairs whose results differ."""

    @property
    def rate(self) -> float | None:
        """The flake rate; None without pairs."""
        return self.differing / self.pairs if self.pairs else None


def count_pairs(results: Iterable[str]) -> Pairs:
    """Count the pairs among results of one state."""
    counts = Counter(results)
    total = math.comb(counts.total(), 2)
    return Pairs(total, total - sum(math.comb(count, 2) for count in counts.values()))


class StateVerified(msgspec.Struct, frozen=True, kw_only=True):
    """A state that an agent left, and the result of every verification of it."""

    step: str | None
    """The step that left it; null for a task without steps."""
    state: State | None
    """`frozen`: each verification began with the same files. `live`: they ran one after another
    while the agent's processes were alive. null: not verified again.
    """
    verifications: list[Verification]
    """The verifications, starting with the one that counts."""
    n_differing: int
    """Verifications whose result differs from the one that counts."""
    pairs: int
    """Pairs of these verifications."""
    differing_pairs: int
    """Pairs whose results differ."""
    flake_rate: float | None
    """differing_pairs / pairs; null without pairs."""
    reason: str | None
    """Why there are fewer verifications than requested; null if there are not."""


class VerifiedAgain(msgspec.Struct, frozen=True, kw_only=True):
    """verify-again.json of a trial."""

    task: str
    task_checksum: str
    """The task's digest, as in result.json."""
    n: int
    """Number of verifications requested beyond the one that counts."""
    states: list[StateVerified]
    """One for the trial, or one for each of its steps that was verified."""


@dataclass(slots=True, kw_only=True)
class Reverification:
    """A state to verify again, and its verifications so far."""

    step: Step | None
    artifacts_dir: Path = Path()
    """Directory of the collected artifacts, for a separate verifier environment."""
    state: State | None = None
    reason: str | None = None
    """Why it is not verified again, or not as often as requested."""
    verifications: list[Verification] = field(default_factory=list)

    def add(self, verification: Verification) -> None:
        """Add a verification; the first is the one that counts."""
        first = self.verifications[0] if self.verifications else verification
        is_same, number = verification.result == first.result, len(self.verifications)
        self.verifications.append(
            msgspec.structs.replace(verification, number=number, is_same=is_same)
        )

    @property
    def n_differing(self) -> int:
        """Verifications whose result differs from the one that counts."""
        return sum(not each.is_same for each in self.verifications)

    @property
    def results(self) -> Mapping[str, int]:
        """Number of verifications by result."""
        return Counter(each.result for each in self.verifications)

    def as_stored(self) -> StateVerified:
        """Its part of verify-again.json."""
        pairs = count_pairs(each.result for each in self.verifications)
        return StateVerified(
            step=self.step.name if self.step else None,
            state=self.state,
            verifications=self.verifications,
            n_differing=self.n_differing,
            pairs=pairs.pairs,
            differing_pairs=pairs.differing,
            flake_rate=pairs.rate,
            reason=self.reason,
        )


@dataclass(kw_only=True)
class CleanRoom:
    """A clean-room verification, before and after it ran."""

    step: Step | None
    reverification: Reverification
    """Holds the verification that counts."""
    left_out: LeftOut = field(default_factory=lambda: LeftOut(frozenset(), frozenset()))
    survivors: Sequence[Process] = ()
    """Processes the agent left running."""
    reason: str | None = None
    """Why it was not run."""
    is_prevented: bool = False
    """Whether something the agent left prevented it."""
    clean: list[Verification] = field(default_factory=list)
    control: list[Verification] = field(default_factory=list)
    declared: list[Verification] = field(default_factory=list)
    """Results with the files whose names the task declares."""
    packages: tuple[str, ...] = ()
    """Packages reinstalled in the clean room for another try."""
    packaged: Verification | None = None
    """Result with those packages."""

    def is_repeated_by(self, verifications: Iterable[Verification]) -> bool:
        """Whether one of some verifications gave the result that counts."""
        return any(
            each.result == self.reverification.verifications[0].result for each in verifications
        )


def note_rewards(rewards: Mapping[str, Number] | None, seconds: float) -> Verification:
    """Record a verification that completed; None: the verifier declined to score."""
    return Verification(
        result=render_result(rewards),
        rewards=msgspec.Raw(render_json(rewards).encode()),
        seconds=round(seconds, 6),
    )


def note_exception(kind: str, message: str, seconds: float) -> Verification:
    """Record a verification that raised an exception."""
    return Verification(
        result=kind,
        rewards=msgspec.Raw(b"null"),
        exception_type=kind,
        exception_message=message,
        seconds=round(seconds, 6),
    )


def render_result(rewards: Mapping[str, Number] | None) -> str:
    """Render rewards as a text, equal only for identical rewards: 1 is not 1.0, nan is nan."""
    if rewards is None:
        return "null"
    parts = [f"{json.dumps(name)}: {_render(rewards[name])}" for name in sorted(rewards)]
    return f"{{{', '.join(parts)}}}"


def _render(value: Number) -> str:
    is_odd = isinstance(value, float) and not math.isfinite(value)
    return repr(value) if is_odd else json_number(value)


def render_verified_again(
    task: str, task_checksum: str, n: int, reverifications: Sequence[Reverification]
) -> str:
    """Render verify-again.json."""
    states = [each.as_stored() for each in reverifications if each.verifications]
    stored = VerifiedAgain(task=task, task_checksum=task_checksum, n=n, states=states)
    return msgspec.json.format(msgspec.json.encode(stored), indent=2).decode()


_decode = msgspec.json.Decoder(VerifiedAgain).decode


def parse_verified_again(data: bytes) -> VerifiedAgain:
    """Parse verify-again.json."""
    return _decode(data)
