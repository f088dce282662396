"""How often the tests of a task agree with themselves: verifications of one state, compared.

What a verification gave is a text, so that two are the same result where the texts are: rewards to
the last bit and with their types, or the type of the exception. The flake rate is the share of the
pairs of verifications of one state that differ, the one that counts among them: it estimates
without bias how probable it is that two verifications of the same work disagree. Nothing here is
run, and nothing changes a score.
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
    """How many there are."""
    differing: int
    """Those whose results are not the same."""

    @property
    def rate(self) -> float | None:
        """The flake rate; None where there is no pair."""
        return self.differing / self.pairs if self.pairs else None


def count_pairs(results: Iterable[str]) -> Pairs:
    """The pairs among results of one state."""
    counts = Counter(results)
    total = math.comb(counts.total(), 2)
    return Pairs(total, total - sum(math.comb(count, 2) for count in counts.values()))


class StateVerified(msgspec.Struct, frozen=True, kw_only=True):
    """One state that an agent left, and what every verification of it gave."""

    step: str | None
    """The step after which it was so; null for a task without steps."""
    state: State | None
    """`frozen`: each began with the same files. `live`: where the agent's processes still ran, one
    after the other. null: it was not verified again."""
    verifications: list[Verification]
    """The one that counts first."""
    n_differing: int
    """Verifications whose result is not that of the one that counts."""
    pairs: int
    """Pairs of these verifications."""
    differing_pairs: int
    """Those among them whose results are not the same."""
    flake_rate: float | None
    """differing_pairs / pairs; null where there is no pair."""
    reason: str | None
    """Why there are fewer verifications than were asked for; null where there are not."""


class VerifiedAgain(msgspec.Struct, frozen=True, kw_only=True):
    """verify-again.json of a trial."""

    task: str
    task_checksum: str
    """The task's digest, as in result.json."""
    n: int
    """How many verifications were asked for beyond the one that counts."""
    states: list[StateVerified]
    """One for the trial, or one for each of its steps that was verified."""


@dataclass(slots=True, kw_only=True)
class Reverification:
    """A state that is to be verified again, and what came of that so far."""

    step: Step | None
    artifacts_dir: Path = Path()
    """Where what was collected lies, for a verifier in an environment of its own."""
    state: State | None = None
    reason: str | None = None
    """Why it is not verified again, or not as often as was asked for."""
    verifications: list[Verification] = field(default_factory=list)

    def add(self, verification: Verification) -> None:
        """Another verification; the first is the one that counts."""
        first = self.verifications[0] if self.verifications else verification
        is_same, number = verification.result == first.result, len(self.verifications)
        self.verifications.append(
            msgspec.structs.replace(verification, number=number, is_same=is_same)
        )

    @property
    def n_differing(self) -> int:
        """Verifications whose result is not that of the one that counts."""
        return sum(not each.is_same for each in self.verifications)

    @property
    def results(self) -> Mapping[str, int]:
        """How many verifications gave each result."""
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
    """A second verification, before and after it ran."""

    step: Step | None
    kept: Reverification
    """The verification that counts, in its list."""
    left_out: LeftOut = field(default_factory=lambda: LeftOut(frozenset(), frozenset()))
    survivors: Sequence[Process] = ()
    """What the agent left running."""
    reason: str | None = None
    """Why there is none."""
    is_prevented: bool = False
    """It is for what the agent left that there is none."""
    clean: list[Verification] = field(default_factory=list)
    control: list[Verification] = field(default_factory=list)
    declared: list[Verification] = field(default_factory=list)
    """What it gave with files of names that the task declares."""
    packages: tuple[str, ...] = ()
    """What was installed in the clean room, where it was tried once more."""
    packaged: Verification | None = None
    """What that gave."""


def note_rewards(rewards: Mapping[str, Number] | None, seconds: float) -> Verification:
    """A verification that ended by itself; None: the verifier declined to score."""
    return Verification(
        result=render_result(rewards),
        rewards=msgspec.Raw(render_json(rewards).encode()),
        seconds=round(seconds, 6),
    )


def note_exception(kind: str, message: str, seconds: float) -> Verification:
    """A verification that ended in an exception."""
    return Verification(
        result=kind,
        rewards=msgspec.Raw(b"null"),
        exception_type=kind,
        exception_message=message,
        seconds=round(seconds, 6),
    )


def render_result(rewards: Mapping[str, Number] | None) -> str:
    """Rewards as a text that is the same for the same rewards alone: 1 is not 1.0, nan is nan."""
    if rewards is None:
        return "null"
    told = [f"{json.dumps(name)}: {_render(rewards[name])}" for name in sorted(rewards)]
    return f"{{{', '.join(told)}}}"


def _render(value: Number) -> str:
    is_odd = isinstance(value, float) and not math.isfinite(value)
    return repr(value) if is_odd else json_number(value)


def render_verified_again(
    task: str, task_checksum: str, n: int, kept: Sequence[Reverification]
) -> str:
    """The text of verify-again.json."""
    states = [each.as_stored() for each in kept if each.verifications]
    stored = VerifiedAgain(task=task, task_checksum=task_checksum, n=n, states=states)
    return msgspec.json.format(msgspec.json.encode(stored), indent=2).decode()


_decode = msgspec.json.Decoder(VerifiedAgain).decode


def parse_verified_again(data: bytes) -> VerifiedAgain:
    """verify-again.json as a value.

    Raises:
        MsgspecError, UnicodeDecodeError: it is none.
    """
    return _decode(data)
