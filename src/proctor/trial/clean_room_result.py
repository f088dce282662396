"""Read clean-room.json, and describe it in a sentence.

The file may be untrusted. An unusable file gives a sentence, never an exception. Its texts are
returned unchanged; the caller escapes them for output.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from proctor.json_values import check_values
from proctor.sentence import count_of, render_duration, render_limit, shown
from proctor.trial.finding import FindingCode

FORMAT = "proctor-clean-room-1"
AGREES = "agrees"
MORE = "more"
LARGEST = 1 << 20
"""Largest file, in bytes, that is read."""
_LONGEST = 200


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    """One verification of a state."""

    number: int = 0
    """0 for the one that counts; the others are numbered from 1."""
    result: str
    """Its exact result: rewards by name, or the type of the exception."""
    is_same: bool = True
    """Whether its result equals that of the one that counts."""
    rewards: msgspec.Raw
    """The rewards as in result.json, or null."""
    exception_type: str | None = None
    exception_message: str | None = None
    seconds: float
    """Elapsed seconds."""


class CleanRoomResult(msgspec.Struct, frozen=True, kw_only=True):
    """clean-room.json."""

    format: str = FORMAT
    verdict: str
    """agrees, a code of a finding, or `more`: the clean room gave more than the trial."""
    reason: str | None
    """Why it was not run, or not completed."""
    step: str | None
    left_out: int
    """Number of the agent's paths that were not in the clean room."""
    survivors: int
    """Number of processes the agent left running."""
    first: Verification
    """The verification that counts."""
    clean: tuple[Verification, ...]
    """More than one if only a later control gave the trial's result."""
    control: tuple[Verification, ...]
    """Runs of the tests with all files that the agent left, up to three, until one gave the trial's
    result. Only run if the clean room gave less.
    """
    packages: tuple[str, ...] = ()
    """Packages of the agent that were reinstalled in another clean room."""
    packaged: Verification | None = None
    """Result of the tests with these packages."""
    seconds: float
    """Total elapsed seconds."""

    @property
    def named(self) -> list[tuple[str, Verification]]:
        """All verifications, each with a name for display."""
        clean = [("clean room", each) for each in self.clean]
        control = [("control", each) for each in self.control]
        packaged = [("with packages", self.packaged)] if self.packaged else []
        return [("trial", self.first), *clean, *control, *packaged]

    @property
    def is_alarming(self) -> bool:
        """Whether it is evidence that the score may not be earned."""
        return self.verdict == FindingCode.CLEAN_ROOM_DIFFERS

    @property
    def is_skipped(self) -> bool:
        """Whether it was not run, or not completed."""
        return self.verdict == FindingCode.CLEAN_ROOM_SKIPPED

    @property
    def is_different(self) -> bool:
        """Whether it was run and gave another result than the trial."""
        return self.verdict != AGREES and not self.is_skipped


_decode = msgspec.json.Decoder(CleanRoomResult).decode


def parse_clean_room(data: bytes) -> CleanRoomResult | str:
    """Parse clean-room.json; return a sentence if that fails."""
    if len(data) > LARGEST:
        return f"it is larger than {render_limit(LARGEST)}, and was not read"
    try:
        check_values(data)
        found = _decode(data)
    except RecursionError:
        return "JSON that is nested too deeply"
    except (msgspec.MsgspecError, ValueError) as error:
        return f"{error}; expected {FORMAT}"
    if found.format != FORMAT:
        return f"format {shown(found.format)}; expected {FORMAT}"
    return found


def describe_clean_room(found: CleanRoomResult) -> str:
    """Describe a clean-room result in one line: `differs: 0.0 against 1.0, 4 paths left out`."""
    if found.is_skipped:
        return f"skipped: {_cut(found.reason or 'no reason is on record')}"
    first, clean = describe_rewards(found.first), describe_all(found.clean)
    if found.verdict == AGREES:
        return f"agrees (reward {first}), {render_duration(found.seconds)}"
    what = "gives more" if found.verdict == MORE else "differs"
    code = "" if found.verdict in (MORE, FindingCode.CLEAN_ROOM_DIFFERS) else found.verdict
    left_out = f"{count_of(found.left_out, 'path')} left out"
    return f"{what}: {clean} against {first}, {left_out}{f' ({_cut(code)})' if code else ''}"


def describe_missing(findings: Iterable[Mapping[str, Any]], reward: float | None) -> str:
    """Explain why a trial with recorded changes has no clean-room.json, as far as is known."""
    for each in findings:
        if each.get("code") == FindingCode.CLEAN_ROOM_SKIPPED:
            detail = each.get("detail")
            reason = detail.get("reason") if isinstance(detail, dict) else None
            return (
                f"skipped: {_cut(reason if isinstance(reason, str) else 'no reason is on record')}"
            )
    if reward is None or reward <= 0:
        return "not run: no reward above 0"
    return "not run: there is no clean-room.json"


def describe_all(verifications: Iterable[Verification]) -> str:
    """Describe the results of several verifications."""
    return ", ".join(map(describe_rewards, verifications)) or "not run"


def describe_rewards(verification: Verification) -> str:
    """Describe a result: the reward, all rewards by name, or the exception."""
    if verification.exception_type is not None:
        return _cut(verification.exception_type)
    # None if they are not all numbers (NaN is stored as null).
    try:
        rewards = msgspec.json.decode(verification.rewards, type=dict[str, int | float])
    except (msgspec.MsgspecError, ValueError, RecursionError):
        rewards = None
    if rewards is None:
        return _cut(verification.result)
    if len(rewards) == 1:
        return _cut(str(next(iter(rewards.values()))))
    return _cut(", ".join(f"{name} {value}" for name, value in rewards.items())) or "no reward"


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}…"
