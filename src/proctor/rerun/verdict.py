"""The results of running trials again."""

from collections.abc import Sequence
from enum import StrEnum

import msgspec

from proctor.harbor.documents import WrittenRewards
from proctor.harbor.render import render_json
from proctor.rerun.observed import Compared
from proctor.sentence import count_of


class Verdict(StrEnum):
    """The verdict on one trial."""

    REPRODUCED = "reproduced"
    """Equal rewards, and every output equal."""
    DIFFERS = "differs"
    """Different rewards, or equal rewards but a different output."""
    NOT_REPLAYABLE = "not replayable"
    """It was not run again, or not to the end."""


class Way(StrEnum):
    """How a trial was run again."""

    AGENT = "agent"
    """Its agent, whose actions follow from the task alone."""
    COMMANDS = "commands"
    """The commands of its trace."""
    ANSWERS = "answers"
    """Its agent, with the recorded answers of its model."""


class Rerun(msgspec.Struct, frozen=True, kw_only=True):
    """The rerun of one trial."""

    trial: str
    task: str
    verdict: Verdict
    reason: str
    """A sentence."""
    way: Way | None = None
    """How it was run; None if it was not."""
    same_rewards: bool | None = None
    """None if unknown."""
    rewards_then: WrittenRewards | None = None
    rewards_now: WrittenRewards | None = None
    exception_now: str | None = None
    """The type of the exception that ended the new trial."""
    compared: Compared | None = None
    """None if nothing was run."""
    directory: str | None = None
    """The job that ran it again."""
    notes: tuple[str, ...] = ()
    """Differences between the recorded and the new conditions."""


def judge(
    then: WrittenRewards | None, now: WrittenRewards | None, compared: Compared
) -> tuple[Verdict, str]:
    """Judge rewards and outputs; return the verdict and a sentence."""
    if not are_same(then, now):
        return Verdict.DIFFERS, f"then {show_rewards(then)}, now {show_rewards(now)}"
    scored = f"{show_rewards(then)} again"
    if compared.first is not None:
        at = f"observations differ at step {compared.first.step}"
        return Verdict.DIFFERS, f"same reward ({show_rewards(then)}), {at}"
    if not compared.compared:
        return Verdict.REPRODUCED, f"{scored}; there were no observations to compare"
    after = f", {compared.equal_after} of them once normalised" if compared.equal_after else ""
    equal = count_of(compared.equal, "observation")
    return Verdict.REPRODUCED, f"{scored}; {equal} equal{after}"


def judge_answered(
    then: WrittenRewards | None, now: WrittenRewards | None, n_answers: int
) -> tuple[Verdict, str]:
    """Judge the rewards of an agent that ran again with recorded answers to all its requests."""
    answers = f"with the recorded answers to all {count_of(n_answers, 'request')} of the agent"
    if not are_same(then, now):
        return Verdict.DIFFERS, f"then {show_rewards(then)}, now {show_rewards(now)}, {answers}"
    return Verdict.REPRODUCED, f"{show_rewards(then)} again, {answers}"


def are_same(then: WrittenRewards | None, now: WrittenRewards | None) -> bool:
    """Whether rewards are equal; no rewards and an empty table are equal."""
    return (then or None) == (now or None)


def show_rewards(rewards: WrittenRewards | None) -> str:
    """Format rewards as text."""
    if not rewards:
        return "no reward"
    if list(rewards) == ["reward"]:
        return f"reward {render_json(rewards['reward'])}"
    return f"rewards {render_json(rewards)}"


def find_exit_code(reruns: Sequence[Rerun]) -> int:
    """0: all reproduced. 1: a reward differs. 3: no reward differs, but not all were reproduced."""
    if any(rerun.same_rewards is False for rerun in reruns):
        return 1
    return 0 if all(rerun.verdict is Verdict.REPRODUCED for rerun in reruns) else 3
