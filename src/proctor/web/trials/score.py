"""Explain a trial's score: from the bytes of the reward files to the recorded number.

Each stage is shown and compared with the next: the reward files are read again here, by the rules
of the profile that scored the trial. Does not change scores.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from proctor.audit.certificate import find_number, write_number
from proctor.errors import DamageError, RewardError
from proctor.files import read_head
from proctor.harbor.record import find_reward
from proctor.reward.number import Number, Rewards, is_finite, same_number
from proctor.reward.profile import DEFAULT_PROFILE, PROFILES, Profile
from proctor.reward.read import LARGEST, parse_reward
from proctor.reward.steps import Step, Strategy, Verdict, trial_verdict
from proctor.web.trials.evidence import KnownFile
from proctor.web.trials.known import Known
from proctor.web.trials.words import BASES

_NAMES = ("reward.json", "reward.txt")
_SHOWN = 2000
_MOST_STEPS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardFile:
    """A reward file of a verifier."""

    file: KnownFile
    step: str
    """Name of the step; "" for the trial itself."""
    raw: str | None = None
    """Its contents, decoded if they are text; None if unreadable."""
    is_cut: bool = False
    rewards: Rewards | None = None
    """The rewards read from it."""
    problem: str | None = None
    """Why it has no rewards."""
    beside: str | None = None
    """A reward.txt next to it, which is ignored."""

    @property
    def is_scored(self) -> bool:
        """Whether it was read, and has rewards or null."""
        return self.raw is not None and self.problem is None


@dataclass(frozen=True, slots=True)
class Operand:
    """One exact number that counts."""

    key: str
    written: str
    """A float as `float.hex` writes it, an int in decimal."""
    decimal: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Derivation:
    """How a score was derived."""

    profile: str | None
    files: tuple[RewardFile, ...]
    operands: tuple[Operand, ...]
    exception: str | None
    group: str | None
    words: tuple[str, ...]
    """The derivation in sentences."""
    disagrees: str | None = None
    """Where a stage does not follow from the one before."""


def derive_score(known: Known, steps: Sequence[str] = ()) -> Derivation:
    """Derive the score of a trial; `steps` are those of a multi-step trial, in order."""
    score = known.entry.score if known.entry else None
    certificate = (score.certificate if score else None) or {}
    profile = PROFILES.get(score.profile, DEFAULT_PROFILE) if score else DEFAULT_PROFILE
    order = {step: place for place, step in reversed(list(enumerate(steps)))}
    files = tuple(
        sorted(_read_all(known, profile), key=lambda each: order.get(each.step, len(order)))
    )
    operands = _operands_of(certificate)
    basis = certificate.get("basis")
    is_stepped = basis == "step reward files"
    strategy = _find_strategy(files, operands, steps) if is_stepped else None
    return Derivation(
        profile=score.profile if score else None,
        files=files,
        operands=tuple(map(_show_operand, operands.items())),
        exception=_text(certificate.get("exception")),
        group=_text(certificate.get("group")),
        words=tuple(_tell(known, files, basis, operands, strategy)),
        disagrees=_find_disagreement(files, basis, operands, strategy)
        or _find_other_record(known, files, basis, operands),
    )


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _read_all(known: Known, profile: Profile) -> Iterator[RewardFile]:
    """The reward files of the trial, then of its steps; of two, the deciding one comes first."""
    decided: set[str] = set()
    named = {file.path: file for file in known.files}
    folders = sorted(
        {path.rpartition("/")[0] for path in named if path.rpartition("/")[2] in _NAMES}
    )
    for folder in [each for each in folders if _is_verifiers(each)][:_MOST_STEPS]:
        for name in _NAMES:
            file = named.get(f"{folder}/{name}")
            if file is not None and folder not in decided:
                decided.add(folder)
                beside = f"{folder}/{_NAMES[1]}" if name == _NAMES[0] else ""
                found = _read(known, file, folder, profile)
                yield replace(found, beside=beside if beside in named else None)


def _is_verifiers(folder: str) -> bool:
    parts = folder.split("/")
    return parts == ["verifier"] or (
        len(parts) == 3 and parts[0] == "steps" and parts[2] == "verifier"
    )


def _read(known: Known, file: KnownFile, folder: str, profile: Profile) -> RewardFile:
    step = folder.split("/")[1] if folder.startswith("steps/") else ""
    if not file.is_here:
        return RewardFile(file=file, step=step, problem=f"the file is {file.state}")
    try:
        with known.traced.open_file(file.path) as path:
            data = read_head(path, LARGEST)
    except (OSError, DamageError) as error:
        return RewardFile(file=file, step=step, problem=str(error))
    raw = data[:_SHOWN].decode("utf-8", "backslashreplace")
    is_cut = len(data) > _SHOWN
    try:
        rewards = parse_reward(data, file.path, profile)
    except (RewardError, ValueError, RecursionError) as error:
        why = str(error.__cause__ or error).partition("\n")[0]
        return RewardFile(file=file, step=step, raw=raw, is_cut=is_cut, problem=why)
    return RewardFile(file=file, step=step, raw=raw, is_cut=is_cut, rewards=rewards)


def _operands_of(certificate: dict[str, Any]) -> dict[str, Number | None]:
    """The numbers that count, by key; None for what is not a number."""
    rewards = certificate.get("rewards")
    if not isinstance(rewards, dict):
        return {}
    return {str(key): find_number(value) for key, value in rewards.items()}


def _show_operand(operand: tuple[str, Number | None]) -> Operand:
    key, number = operand
    if number is None:
        return Operand(key, "no number", "no number")
    return Operand(key, str(write_number(number))[:100], repr(number)[:100])


def _find_strategy(
    files: tuple[RewardFile, ...], operands: dict[str, Number | None], order: Sequence[str]
) -> Strategy | None:
    """Find which way of combining the steps gives the recorded numbers."""
    verdicts = {file.step: Verdict(file.rewards) for file in files if file.is_scored and file.step}
    executed = [Step(name, verdicts.get(name)) for name in order or verdicts]
    ways: tuple[Strategy, ...] = ("mean", "final")
    for way in ways:
        verdict = trial_verdict(executed, way)
        if _is_same(verdict.rewards if verdict else None, operands):
            return way
    return None


def _is_same(rewards: Rewards | None, operands: dict[str, Number | None]) -> bool:
    given: dict[str, Number] = rewards or {}
    return given.keys() == operands.keys() and all(
        (other := operands[key]) is not None and same_number(number, other)
        for key, number in given.items()
    )


def _find_disagreement(
    files: tuple[RewardFile, ...],
    basis: object,
    operands: dict[str, Number | None],
    strategy: Strategy | None,
) -> str | None:
    if any(not file.file.is_here for file in files):
        return None
    whole = [file.rewards for file in files if not file.step]
    given = whole[0] if whole else None
    # The basis is only claimed by the record: next to a reward file, the numbers must be the
    # file's.
    is_by_file = basis == "reward file" or (basis is not None and whole and operands)
    if is_by_file and not _is_same(given, operands):
        return "The reward file does not match the recorded numbers."
    if basis == "step reward files" and strategy is None and files:
        return "The reward files of the steps do not match the recorded numbers."
    return None


def _find_other_record(
    known: Known, files: tuple[RewardFile, ...], basis: object, operands: dict[str, Number | None]
) -> str | None:
    """Where the record states another reward than its operands give."""
    record = known.traced.record
    whole = [file for file in files if not file.step]
    if record is None or (basis is None and not whole):
        return None
    if basis is None and not whole[0].file.is_here:
        return None
    counted = {key: each for key, each in operands.items() if each is not None}
    reward = find_reward(whole[0].rewards if basis is None else counted)
    stated = record.evaluation.reward
    if reward == stated:
        return None
    return f"The record states the reward {stated!r}; the values used give {reward!r}."


def _tell(
    known: Known,
    files: tuple[RewardFile, ...],
    basis: object,
    operands: dict[str, Number | None],
    strategy: Strategy | None,
) -> Iterator[str]:
    if not files:
        yield "The trial has no reward file."
    for file in files:
        yield _describe_file(file)
        if file.beside:
            yield f"{file.beside} is ignored: reward.json takes precedence."
    if basis is None:
        yield "No certified values are stored: the reward is only what the record states."
    else:
        yield BASES.get(str(basis), f"The rewards were read from: {basis}.")
    if strategy is not None:
        how = "the mean over the steps" if strategy == "mean" else "the last step's"
        yield f"The value used is {how}: it gives the recorded numbers."
    if files and basis == "trial result":
        yield "A reward file exists but does not count."
    yield from _describe_reward(known, operands)


def _describe_file(file: RewardFile) -> str:
    where = file.file.path
    if file.raw is None or file.problem is not None:
        return f"{where} gives no reward: {file.problem}."
    if file.rewards is None:
        return f"{where} contains null: the verifier declined to score."
    read = ", ".join(f"{key[:80]} = {number!r}"[:200] for key, number in file.rewards.items())
    return f"{where} is read as {read or 'an object without rewards'}."


def _describe_reward(known: Known, operands: dict[str, Number | None]) -> Iterator[str]:
    record = known.traced.record
    if record is None:
        return
    reward = record.evaluation.reward
    if len(operands) > 1 and "reward" in operands:
        yield "Of several rewards, the trial's is the one named “reward”."
    elif len(operands) > 1:
        yield "There are several rewards, none named “reward”: the trial has no single reward."
    if reward is not None:
        yield f"The record says {reward!r}."
        return
    odd = [number for number in operands.values() if number is not None and not is_finite(number)]
    if len(operands) == 1 and odd:
        yield f"{odd[0]!r} cannot be stored in a record, so the record has null."
        return
    if operands:
        yield "The record has null: the trial is scored, but without a number."
        return
    yield "The record has null: not scored, which is not 0."
    profile = known.entry.score.profile if known.entry and known.entry.score else None
    if profile is not None:
        yield f"In a job's mean, {profile} counts a trial without rewards as 0."
