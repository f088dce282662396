"""What came of running trials again, as values."""

from collections.abc import Sequence
from enum import StrEnum

import msgspec

from proctor.harbor.documents import WrittenRewards
from proctor.harbor.render import render_json
from proctor.rerun.observed import Compared
from proctor.sentence import count_of


class Verdict(StrEnum):
    """What can be said of one trial."""

    REPRODUCED = "reproduced"
    """The same rewards, and every output the same."""
    DIFFERS = "differs"
    """Other rewards, or the same rewards and a command that gave something else."""
    NOT_REPLAYABLE = "not replayable"
    """It was not run again, or not to its end."""


class Rerun(msgspec.Struct, frozen=True, kw_only=True):
    """One trial that was to be run again."""

    trial: str
    task: str
    verdict: Verdict
    reason: str
    """A sentence."""
    same_rewards: bool | None = None
    """None where it is not known."""
    rewards_then: WrittenRewards | None = None
    rewards_now: WrittenRewards | None = None
    exception_now: str | None = None
    """The type of the exception that ended the new trial."""
    compared: Compared | None = None
    """None where nothing was run."""
    directory: str | None = None
    """The job that ran it again."""
    notes: tuple[str, ...] = ()
    """What was another than then."""


def judge(
    then: WrittenRewards | None, now: WrittenRewards | None, compared: Compared
) -> tuple[Verdict, str]:
    """What rewards and outputs say, and in what words."""
    if not are_same(then, now):
        return Verdict.DIFFERS, f"then {show_rewards(then)}, now {show_rewards(now)}"
    scored = f"{show_rewards(then)} again"
    if compared.first is not None:
        at = f"observations differ at step {compared.first.step}"
        return Verdict.DIFFERS, f"same reward ({show_rewards(then)}), {at}"
    if not compared.compared:
        return Verdict.REPRODUCED, f"{scored}; there were no observations to compare"
    after = f", {compared.equal_after} of them but for what varies" if compared.equal_after else ""
    equal = count_of(compared.equal, "observation")
    return Verdict.REPRODUCED, f"{scored}; {equal} equal{after}"


def are_same(then: WrittenRewards | None, now: WrittenRewards | None) -> bool:
    """Whether rewards are the same; none and an empty table are."""
    return (then or None) == (now or None)


def show_rewards(rewards: WrittenRewards | None) -> str:
    """Rewards as text."""
    if not rewards:
        return "no reward"
    if list(rewards) == ["reward"]:
        return f"reward {render_json(rewards['reward'])}"
    return f"rewards {render_json(rewards)}"


def find_exit_code(reruns: Sequence[Rerun]) -> int:
    """0: all reproduced. 1: a reward differs. 3: none does, but not all were reproduced."""
    if any(rerun.same_rewards is False for rerun in reruns):
        return 1
    return 0 if all(rerun.verdict is Verdict.REPRODUCED for rerun in reruns) else 3
