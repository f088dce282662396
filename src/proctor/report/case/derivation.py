"""Whether a sealed reward follows from the reward file that was sealed with it.

By the scoring unit's own rules, all of them. Trials of several steps, and trials whose score rests
on something else than a reward file, are not added up here: an audit of the job does that.
"""

import contextlib

import msgspec

from proctor.errors import RewardError
from proctor.harbor.evaluation import make_evaluation
from proctor.report.case.facts import REWARD_FILES
from proctor.report.case.opened import OpenedCase
from proctor.reward.number import Rewards, same_number
from proctor.reward.profile import DEFAULT_PROFILE, PROFILES, Profile
from proctor.reward.read import parse_reward_json, parse_reward_text

_BY_FILE = "reward file"


class _Evaluation(msgspec.Struct, frozen=True):
    reward: int | float | None = None
    breakdown: dict[str, int | float | str] | None = None


class _Record(msgspec.Struct, frozen=True):
    evaluation: _Evaluation = _Evaluation()


class _Certificate(msgspec.Struct, frozen=True):
    basis: str | None = None
    rewards: dict[str, int | str] | None = None


def find_unchecked_reward(opened: OpenedCase) -> str | None:
    """Why the reward cannot be derived from the page; None where it can be."""
    file = next(
        (each for name in REWARD_FILES for each in opened.evidence if each.path == name), None
    )
    basis = _certificate(opened).basis
    if file is None:
        return "the reward: there is no reward file at verifier/ among the evidence"
    if file.sha256 not in opened.files:
        return f"the reward: {file.path} is not in the page"
    if basis not in (None, _BY_FILE):
        return f"the reward: it rests on the {basis}; `proctor audit` adds that up"
    return None


def find_differences(opened: OpenedCase) -> list[str]:
    """Where record and certificate say something else than the reward file gives."""
    score = opened.trial.score
    profile = PROFILES.get(score.profile, DEFAULT_PROFILE) if score else DEFAULT_PROFILE
    name = next(name for name in REWARD_FILES if any(each.path == name for each in opened.evidence))
    sha256 = next(each.sha256 for each in opened.evidence if each.path == name)
    rewards = _read(name, opened.files[sha256], profile)
    derived = make_evaluation(rewards, (), (), [])
    try:
        stated = msgspec.json.decode(opened.trial.record, type=_Record).evaluation
    except msgspec.MsgspecError as error:
        return [f"the record's evaluation cannot be read: {error}"]
    found = []
    if stated.reward != derived.reward:
        found.append(f"{name} gives the reward {derived.reward}; the record says {stated.reward}")
    if stated.breakdown is not None and stated.breakdown != derived.breakdown:
        found.append(f"{name} gives {derived.breakdown}; the record's breakdown {stated.breakdown}")
    return [*found, *_compare_operand(opened, rewards, name)]


def _read(name: str, data: bytes, profile: Profile) -> Rewards | None:
    parse = parse_reward_json if name.endswith(".json") else parse_reward_text
    with contextlib.suppress(RewardError, ValueError, RecursionError):
        return parse(data, name, profile)
    return None


def _certificate(opened: OpenedCase) -> _Certificate:
    score = opened.trial.score
    try:
        return msgspec.convert((score and score.certificate) or {}, _Certificate)
    except msgspec.ValidationError:
        return _Certificate(basis="certificate, which cannot be read")


def _compare_operand(opened: OpenedCase, rewards: Rewards | None, name: str) -> list[str]:
    score = opened.trial.score
    if score is None or score.certificate is None:
        return []
    stated = _certificate(opened).rewards
    if (stated is None) != (rewards is None) or set(stated or ()) != set(rewards or ()):
        return [f"the certificate's operand has other rewards than {name}"]
    return [
        f"the certificate's operand has {written} for {key}; {name} gives {rewards[key]!r}"
        for key, written in (stated or {}).items()
        if rewards is not None and not same_number(_number(written), rewards[key])
    ]


def _number(written: int | str) -> int | float:
    with contextlib.suppress(ValueError, OverflowError):
        return float.fromhex(written) if isinstance(written, str) else written
    return float("nan")
