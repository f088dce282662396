"""Explain a trial's score: from the bytes of the reward files to the recorded number.

Each stage is shown and compared with the next: the reward files are read again here, by the rules
of the profile that scored the trial. Does not change scores.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from proctor.audit.certificate import find_number, write_number
from proctor.errors import DamageError, RewardError
from proctor.files import read_head
from proctor.harbor.record import find_reward
from proctor.reward.number import Number, Rewards, is_finite, same_number
from proctor.reward.profile import DEFAULT_PROFILE, PROFILES, Profile
from proctor.reward.read import LARGEST, parse_reward
from proctor.reward.steps import Step, Strategy, Verdict, trial_verdict
from proctor.web.trials.labels import BASES
from proctor.web.trials.trial_view import TrialFile, TrialView

_SHOWN = 2000
_MOST_STEPS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardFile:
    """A reward file of a verifier."""

    file: TrialFile
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
    def words(self) -> str:
        """What was read from it."""
        where = self.file.path
        if self.problem is not None:
            return f"{where} gives no reward: {self.problem}."
        if self.rewards is None:
            return f"{where} contains null: the verifier declined to score."
        read = ", ".join(f"{key[:80]} = {number!r}"[:200] for key, number in self.rewards.items())
        return f"{where} is read as {read or 'an object without rewards'}."


@dataclass(frozen=True, slots=True, kw_only=True)
class Derivation:
    """How a score was derived: the files, the numbers that count, and the words about it."""

    files: list[RewardFile]
    basis: str | None
    """Where the certified numbers come from; None: there are none."""
    numbers: dict[str, Number | None]
    """The certified numbers that count; None for what is not a number."""
    profile: str | None
    exception: object
    group: object
    stated: Number | None
    """The reward in the record."""
    has_record: bool
    strategy: Strategy | None
    """How the rewards of steps give the numbers."""

    @property
    def own(self) -> RewardFile | None:
        """The reward file of the trial itself."""
        return next((file for file in self.files if not file.step), None)

    @property
    def operands(self) -> Iterator[tuple[str, str, str]]:
        """Key, decimal and exact bits of each number."""
        for key, n in self.numbers.items():
            texts = (repr(n), str(write_number(n))) if n is not None else ("no number",) * 2
            yield key, texts[0][:100], texts[1][:100]

    @property
    def disagrees(self) -> str | None:
        """Where a stage does not follow from the one before."""
        if all(each.file.is_here for each in self.files):
            # The basis is only claimed by the record: next to a reward file, the numbers must be
            # the file's.
            own = self.own
            is_by_file = self.basis == "reward file" or (self.basis and own and self.numbers)
            if is_by_file and not _is_same(own.rewards if own else None, self.numbers):
                return "The reward file does not match the recorded numbers."
            if self.basis == "step reward files" and self.strategy is None and self.files:
                return "The reward files of the steps do not match the recorded numbers."
        return self._find_other_record()

    def _find_other_record(self) -> str | None:
        numbers: Rewards | None = {k: n for k, n in self.numbers.items() if n is not None}
        if self.basis is None:
            if self.own is None or not self.own.file.is_here:
                return None
            numbers = self.own.rewards
        reward = find_reward(numbers)
        if not self.has_record or reward == self.stated:
            return None
        return f"The record states the reward {self.stated!r}; the values used give {reward!r}."

    @property
    def words(self) -> Iterator[str]:
        """The derivation in sentences."""
        if not self.files:
            yield "The trial has no reward file."
        for file in self.files:
            yield file.words
            if file.beside:
                yield f"{file.beside} is ignored: reward.json takes precedence."
        if self.basis is None:
            yield "No certified values are stored: the reward is only what the record states."
        else:
            yield BASES.get(self.basis, f"The rewards were read from: {self.basis}.")
        if self.strategy is not None:
            how = "the mean over the steps" if self.strategy == "mean" else "the last step's"
            yield f"The value used is {how}: it gives the recorded numbers."
        if self.files and self.basis == "trial result":
            yield "A reward file exists but does not count."
        if self.has_record:
            yield from self._describe_reward()

    def _describe_reward(self) -> Iterator[str]:
        numbers = self.numbers
        if len(numbers) > 1 and "reward" in numbers:
            yield "Of several rewards, the trial's is the one named “reward”."
        elif len(numbers) > 1:
            yield "There are several rewards, none named “reward”: the trial has no single reward."
        odd = [
            number for number in numbers.values() if number is not None and not is_finite(number)
        ]
        if self.stated is not None:
            yield f"The record says {self.stated!r}."
        elif len(numbers) == 1 and odd:
            yield f"{odd[0]!r} cannot be stored in a record, so the record has null."
        elif numbers:
            yield "The record has null: the trial is scored, but without a number."
        else:
            yield "The record has null: not scored, which is not 0."
            if self.profile is not None:
                yield f"In a job's mean, {self.profile} counts a trial without rewards as 0."


def derive_score(known: TrialView, steps: Sequence[str] = ()) -> Derivation:
    """Derive the score of a trial; `steps` are those of a multi-step trial, in order."""
    score = known.entry.score if known.entry else None
    certificate = (score.certificate if score else None) or {}
    profile = PROFILES.get(score.profile, DEFAULT_PROFILE) if score else DEFAULT_PROFILE
    order = {step: place for place, step in reversed(list(enumerate(steps)))}
    files = sorted(_read_all(known, profile), key=lambda each: order.get(each.step, len(order)))
    written, basis = certificate.get("rewards"), certificate.get("basis")
    pairs = written.items() if isinstance(written, dict) else ()
    numbers = {str(key): find_number(value) for key, value in pairs}
    is_stepped = basis == "step reward files"
    return Derivation(
        files=files,
        basis=None if basis is None else str(basis),
        numbers=numbers,
        profile=score.profile if score else None,
        exception=certificate.get("exception"),
        group=certificate.get("group"),
        stated=known.record.evaluation.reward if known.record else None,
        has_record=known.record is not None,
        strategy=_find_strategy(files, numbers, steps) if is_stepped else None,
    )


def _read_all(known: TrialView, profile: Profile) -> Iterator[RewardFile]:
    """The reward files of the trial and of its steps; of two, the one that counts."""
    named = {file.path: file for file in known.files}
    steps = {path.split("/")[1] for path in named if path.startswith("steps/")}
    folders = {f"steps/{step}/verifier": step for step in sorted(steps)} | {"verifier": ""}
    found = 0
    for folder, step in folders.items():
        json, text = (f"{folder}/{name}" for name in ("reward.json", "reward.txt"))
        if (file := named.get(json) or named.get(text)) and found < _MOST_STEPS:
            found += 1
            beside = text if file.path == json and text in named else None
            yield replace(_read(known, file, step, profile), beside=beside)


def _read(known: TrialView, file: TrialFile, step: str, profile: Profile) -> RewardFile:
    found = RewardFile(file=file, step=step)
    if not file.is_here:
        return replace(found, problem=f"the file is {file.state}")
    try:
        with known.traced.open_file(file.path) as path:
            data = read_head(path, LARGEST)
    except (OSError, DamageError) as error:
        return replace(found, problem=str(error))
    text = data[:_SHOWN].decode("utf-8", "backslashreplace")
    found = replace(found, raw=text, is_cut=len(data) > _SHOWN)
    try:
        return replace(found, rewards=parse_reward(data, file.path, profile))
    except (RewardError, ValueError, RecursionError) as error:
        return replace(found, problem=str(error.__cause__ or error).partition("\n")[0])


def _find_strategy(
    files: list[RewardFile], numbers: dict[str, Number | None], order: Sequence[str]
) -> Strategy | None:
    """Find which way of combining the steps gives the recorded numbers."""
    verdicts = {
        file.step: Verdict(file.rewards) for file in files if file.step and file.problem is None
    }
    executed = [Step(name, verdicts.get(name)) for name in order or verdicts]
    ways: tuple[Strategy, ...] = ("mean", "final")
    for way in ways:
        verdict = trial_verdict(executed, way)
        if _is_same(verdict.rewards if verdict else None, numbers):
            return way
    return None


def _is_same(rewards: Rewards | None, numbers: dict[str, Number | None]) -> bool:
    given: dict[str, Number] = rewards or {}
    return given.keys() == numbers.keys() and all(
        (other := numbers[key]) is not None and same_number(number, other)
        for key, number in given.items()
    )
