"""Format claims, verdicts and evidence for findings."""

import json
from collections.abc import Mapping

from proctor.harbor.documents import ExceptionDocument, VerifierDocument, WrittenRewards
from proctor.harbor.render import render_json
from proctor.reward.number import Number, Rewards
from proctor.reward.score import Score, Scored, Unscored
from proctor.reward.steps import Verdict

type StoredRewards = Mapping[str, Number | str]
"""Rewards as a record stores them: a number that is not finite or beyond floats by its name."""

REWARD_ERRORS = frozenset(
    {
        "RewardFileNotFoundError",
        "RewardFileEmptyError",
        "VerifierOutputParseError",
        "ValidationError",
    }
)
"""Exceptions that harbor raises because of reward files."""


def is_reward_error(recorded: ExceptionDocument | None) -> bool:
    """Whether harbor raised an exception because of reward files.

    An agent may raise pydantic's ValidationError too; only harbor's is about a VerifierResult.
    """
    if recorded is None or recorded.exception_type not in REWARD_ERRORS:
        return False
    by_agent = "VerifierResult" not in recorded.exception_message
    return not (recorded.exception_type == "ValidationError" and by_agent)


def error_left(evidence: Score | None) -> str:
    """The exception that reward files cause, or what they contain instead."""
    match evidence:
        case None:
            return "RewardFileNotFoundError"
        case Unscored(error=str(error)):
            return error
        case Unscored():
            return "no reward and no error"
        case Scored(rewards):
            return f"rewards {render_json(rewards)}"


def show_claim(claimed: VerifierDocument | None) -> str:
    """Format a claimed verifier result."""
    return "nothing" if claimed is None else show_rewards(claimed.rewards)


def show_verdict(verdict: Verdict | None) -> str:
    """Format a verdict; numbers that are not finite are shown by name."""
    return "nothing" if verdict is None else show_rewards(verdict.rewards)


def show_both(claimed: VerifierDocument | None, verdict: Verdict | None) -> tuple[str, str]:
    """Format a claim and a verdict; of rewards on both sides only those that differ."""
    ours = claimed.rewards if claimed else None
    theirs = verdict.rewards if verdict else None
    if ours is None or theirs is None:
        return show_claim(claimed), show_verdict(verdict)
    same = {
        key
        for key in ours.keys() & theirs.keys()
        if _show_number(ours[key]) == _show_number(theirs[key])
    }
    if len(same) == len(ours) == len(theirs):
        same = set()  # only the order differs
    left = {key: value for key, value in ours.items() if key not in same}
    right = {key: value for key, value in theirs.items() if key not in same}
    return show_rewards(left), show_rewards(right)


def show_rewards(rewards: WrittenRewards | Rewards | StoredRewards | None) -> str:
    """Format rewards by name; None is null."""
    if rewards is None:
        return "null"
    items = (f"{json.dumps(key)}: {_show_number(value)}" for key, value in rewards.items())
    return f"{{{', '.join(items)}}}"


def _show_number(value: Number | str | None) -> str:
    return "null" if value is None else str(value)
