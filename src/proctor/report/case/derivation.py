"""Checks that a sealed reward follows from the reward files that were sealed with it.

The files are parsed by the rules of scoring, and decide: record, breakdown and certificate must
match them, whatever the certificate names as its basis. A reward whose files are not in the page
cannot be verified, which is a problem.

The page's script (script/rewards.js) derives the same: keep both in step.
"""

import contextlib
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import msgspec

from proctor.audit.certificate import find_number, write_number
from proctor.diagnostic import Diagnostic
from proctor.errors import ProofFileError, RewardError
from proctor.harbor.record import make_evaluation
from proctor.ledger.claims.document import check_unique
from proctor.report.case.facts import REWARD_FILES
from proctor.report.case.opened import OpenedCase
from proctor.report.case.spelled import Spelled
from proctor.reward.number import Number, Rewards, same_number
from proctor.reward.profile import DEFAULT_PROFILE, PROFILES, Profile
from proctor.reward.read import parse_reward
from proctor.reward.steps import Step, Strategy, Verdict, trial_verdict

_RESULT: Final = "result.json"
_IN_STEP: Final = re.compile(r"steps/(.+)/verifier/reward\.(?:json|txt)", re.DOTALL)
_WAYS: Final[tuple[tuple[Strategy, str], ...]] = (
    ("mean", "the mean of the steps' reward files"),
    ("final", "the last step's reward file"),
)


class _Evaluation(msgspec.Struct, frozen=True):
    reward: int | float | None = None
    breakdown: dict[str, int | float | str] | None = None


class _Record(msgspec.Struct, frozen=True):
    evaluation: _Evaluation = _Evaluation()


class _Certificate(msgspec.Struct, frozen=True):
    rewards: dict[str, int | str] | None = None


@dataclass(frozen=True, slots=True)
class _Derived:
    """The rewards that the files give."""

    source: str
    rewards: Rewards | None


class _Stated(msgspec.Struct, frozen=True):
    """The rewards that the entry states."""

    evaluation: _Evaluation
    certificate: _Certificate | None

    @property
    def is_scored(self) -> bool:
        """Whether it states any number."""
        certified = self.certificate.rewards if self.certificate else None
        evaluation = self.evaluation
        return bool(evaluation.reward is not None or evaluation.breakdown or certified)


def judge_reward(opened: OpenedCase) -> Iterator[Diagnostic]:
    """Problems of the reward: the files give another one, or it cannot be verified."""
    try:
        stated = _read_stated(opened)
    except msgspec.MsgspecError as error:
        yield Diagnostic("reward-differs", f"the stated reward cannot be read: {error}")
        return
    derived = _derive(opened)
    if isinstance(derived, str):
        if stated.is_scored:
            yield Diagnostic("reward-not-shown", f"the reward cannot be verified: {derived}")
        return
    differences = [list(_compare(stated, each)) for each in derived]
    if all(differences):
        # The rewards of steps are combined in one of two ways; report the first, harbor's default.
        yield from (Diagnostic("reward-differs", each) for each in differences[0])


def find_unchecked_reward(opened: OpenedCase) -> str | None:
    """Why the absence of a reward could not be verified; None if it was."""
    derived = _derive(opened)
    with contextlib.suppress(msgspec.MsgspecError):
        if isinstance(derived, str) and not _read_stated(opened).is_scored:
            return f"that the trial has no reward: {derived}"
    return None


def _read_stated(opened: OpenedCase) -> _Stated:
    evaluation = msgspec.json.decode(opened.trial.record, type=_Record).evaluation
    score = opened.trial.score
    if score is None or score.certificate is None:
        return _Stated(evaluation, None)
    return _Stated(evaluation, msgspec.convert(score.certificate, _Certificate))


def _derive(opened: OpenedCase) -> list[_Derived] | str:
    """The rewards by each of harbor's strategies, or a message if files are missing."""
    twice = [path for path, n in Counter(each.path for each in opened.evidence).items() if n > 1]
    if twice:
        return f"the entry names {twice[0]} more than once"
    document = _find_result(opened)
    name = _find_reward_file(opened, "verifier")
    is_stepped = document is not None and not document.at("step_results").is_nothing
    steps = [found[1] for each in opened.evidence if (found := _IN_STEP.fullmatch(each.path))]
    if document is not None and (why := _find_excuse(document, document)):
        return [_Derived(why, None)]
    if name is None and (is_stepped or steps):
        return _derive_steps(opened, document, steps)
    if name is None:
        return "the evidence has no reward file in verifier/"
    data = _bytes_of(opened, name)
    if data is None:
        return f"{name} is not in the page"
    return [_Derived(name, _read(name, data, _profile(opened)))]


def _find_result(opened: OpenedCase) -> Spelled | None:
    """The trial result, if it is in the page and unambiguous."""
    data = _bytes_of(opened, _RESULT)
    if data is None:
        return None
    try:
        check_unique(data, _RESULT)
    except ProofFileError:
        return None
    return Spelled(data)


def _find_excuse(document: Spelled, part: Spelled) -> str | None:
    """Why a trial or a step has no rewards although it may have a reward file."""
    if document.at("config", "verifier", "disable").raw == b"true":
        return f"{_RESULT} says that verification was disabled, so there is no reward"
    failed, claimed = (not part.at(key).is_nothing for key in ("exception_info", "verifier_result"))
    if failed and not claimed:
        return f"{_RESULT} records an exception and no verifier result, so there is no reward"
    return None


def _derive_steps(
    opened: OpenedCase, document: Spelled | None, found: list[str]
) -> list[_Derived] | str:
    if document is None:
        return f"{_RESULT}, which lists the steps, is missing in the page or unreadable"
    steps = list(document.at("step_results").items)
    names = [step.at("step_name").string for step in steps]
    if len(set(names)) < len(names):
        return "two steps have the same name and share their files"
    if missing := sorted(set(found).difference(name for name in names if name is not None)):
        return f"steps/{missing[0]} has a reward file, but {_RESULT} lists no such step"
    executed: list[Step] = []
    for name, step in zip(names, steps, strict=True):
        if _find_excuse(document, step):
            executed.append(Step(str(name), None))
            continue
        path = _find_reward_file(opened, f"steps/{name}/verifier")
        data = None if path is None else _bytes_of(opened, path)
        if path is None or data is None:
            return f"the reward file of step {name} is not in the page"
        executed.append(Step(str(name), Verdict(_read(path, data, _profile(opened)))))
    verdicts = [(how, trial_verdict(executed, way)) for way, how in _WAYS]
    return [_Derived(how, verdict.rewards if verdict else None) for how, verdict in verdicts]


def _find_reward_file(opened: OpenedCase, folder: str) -> str | None:
    """The reward file that decides: reward.json if present, else reward.txt."""
    wanted = [f"{folder}/{each.rpartition('/')[2]}" for each in REWARD_FILES]
    named = {each.path for each in opened.evidence}
    return next((path for path in wanted if path in named), None)


def _bytes_of(opened: OpenedCase, path: str) -> bytes | None:
    found = next((each.sha256 for each in opened.evidence if each.path == path), "")
    return opened.files.get(found)


def _profile(opened: OpenedCase) -> Profile:
    score = opened.trial.score
    return PROFILES.get(score.profile, DEFAULT_PROFILE) if score else DEFAULT_PROFILE


def _read(name: str, data: bytes, profile: Profile) -> Rewards | None:
    with contextlib.suppress(RewardError, ValueError, RecursionError):
        return parse_reward(data, name, profile)
    return None


def _compare(stated: _Stated, derived: _Derived) -> Iterator[str]:
    """Messages for differences between the entry and the files."""
    source, record = derived.source, stated.evaluation
    wanted = make_evaluation(derived.rewards, (), (), [])
    if record.reward != wanted.reward:
        yield f"{source}: reward {wanted.reward}; the record says {record.reward}"
    if record.breakdown is not None and record.breakdown != (wanted.breakdown or {}):
        yield f"{source}: rewards {wanted.breakdown}; the record's breakdown {record.breakdown}"
    if stated.certificate is None:
        return
    given, certified = derived.rewards or {}, stated.certificate.rewards or {}
    if set(given) != set(certified):
        yield f"the certificate's operand has other rewards than {source} gives"
        return
    for key, written in certified.items():
        number = _number(written)
        if number is None or not same_number(number, given[key]):
            yield f"the certificate's operand has {written} for {key}; {source}: {given[key]!r}"


def _number(written: int | str) -> Number | None:
    """A number exactly as certificates write it; None if it is written differently."""
    number = find_number(written)
    return number if number is not None and write_number(number) == written else None
