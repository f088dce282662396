"""What a machine submits is checked again before it is sealed, whatever the machine has checked.

Ids, record and evidence as in sealing; the machine's signature; and the score: what an entry says
about rewards must follow from the reward files and the result.json in its own evidence.

Without a result.json nothing can be computed again: the entry has no `score`, and what it says is
the record's own statement. So it is on a ledger of this machine, and so readers show it.
"""

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

import msgspec

from proctor.audit.own_records import find_record_faults
from proctor.errors import DamageError, InputError, JobError, NotSealedError
from proctor.harbor.record import find_reward
from proctor.harbor.trial import load_trial
from proctor.ledger.admission import find_fault
from proctor.ledger.artifacts import ArtifactStore
from proctor.ledger.entry import (
    LARGEST_ENTRY,
    AnyEntry,
    EvidenceFile,
    PlanEntry,
    Subject,
    SupersedeEntry,
    TrialEntry,
    decode_line,
    encode_entry,
    submittable,
)
from proctor.ledger.machines import Machines
from proctor.ledger.sealing import NewEntry, check_stored
from proctor.ledger.submission import find_score
from proctor.record.read import parse_record
from proctor.reward.profile import DEFAULT_PROFILE, PROFILES
from proctor.reward.read import LARGEST

MOST_ENTRIES = 1000
"""Entries of one request, at most."""
# A file that decides a score is read into memory and written to a temporary directory.
_LARGEST_RESULT = 1 << 26
# All of a trial: its steps have such files too.
_LARGEST_RESULTS = 1 << 27


class RefusedError(Exception):
    """A token may not do that."""


class Submitted(msgspec.Struct, frozen=True):
    """Entries that passed the checks."""

    trials: list[NewEntry]
    others: list[AnyEntry]
    """Plans and supersessions; a request has trials or others, never both."""

    def __len__(self) -> int:
        return len(self.trials) + len(self.others)


def decode_submission(body: bytes) -> list[AnyEntry]:
    """The entries in a request: one a line.

    Raises:
        NotSealedError: it has something else.
    """
    lines = body.splitlines()
    if not lines or len(lines) > MOST_ENTRIES:
        raise NotSealedError(f"{len(lines):,} entries; expected 1 to {MOST_ENTRIES:,}")
    entries: list[AnyEntry] = []
    for number, line in enumerate(lines):
        where = f"line {number + 1}"
        if len(line) > LARGEST_ENTRY:
            raise NotSealedError(f"{where}: {len(line):,} bytes; at most {LARGEST_ENTRY:,}")
        try:
            entry = submittable(decode_line(line, where), where)
        except DamageError as error:
            raise NotSealedError(str(error)) from error
        if encode_entry(entry) != line or entry.at or entry.seq:
            raise NotSealedError(
                f"{where}: not as proctor writes what it submits: it has another key, a time or a "
                "position"
            )
        entries.append(entry)
    if len({isinstance(entry, TrialEntry) for entry in entries}) > 1:
        raise NotSealedError("trials and other entries in one request; expected one of the two")
    return entries


@dataclass(frozen=True, slots=True, kw_only=True)
class Intake:
    """Where entries go, and who sends them."""

    origin: str
    machines: Machines
    artifacts: ArtifactStore
    may_submit: Callable[[str], bool]
    """Whether the token may write to an experiment."""
    is_sealed: Callable[[Subject], bool]
    """Whether a trial has been sealed under this name."""
    finish: Callable[[Sequence[EvidenceFile]], None]
    """Stores what was uploaded of these files and held back: see uploads.py."""


def check_submission(entries: Sequence[AnyEntry], intake: Intake) -> Submitted:
    """Check everything that can be checked before the log is locked.

    Raises:
        NotSealedError: an entry may not be sealed.
        RefusedError: an experiment is not the token's.
    """
    found = Submitted([], [])
    for number, entry in enumerate(entries):
        where = f"entry {number + 1} of {len(entries)}"
        if entry.signed is msgspec.UNSET:
            raise NotSealedError(f"{where} is not signed by a machine")
        if unsigned := intake.machines.find_fault(entry, intake.origin):
            raise NotSealedError(f"{where} {unsigned}")
        if isinstance(entry, TrialEntry):
            found.trials.append(_check_trial(entry, where, intake))
        else:
            if fault := find_fault(entry):
                raise NotSealedError(f"{where}: {fault.message}")
            match entry:
                case SupersedeEntry():
                    experiments = [entry.subject.experiment_id, entry.by.experiment_id]
                    _check_scope(experiments, intake.may_submit)
                case PlanEntry():
                    _check_scope([entry.experiment_id], intake.may_submit)
            found.others.append(entry)
    return found


def _check_scope(experiments: Sequence[str], may_submit: Callable[[str], bool]) -> None:
    for experiment in experiments:
        if not may_submit(experiment):
            raise RefusedError(f"this token may not write to the experiment {experiment!r}")


def _check_trial(entry: TrialEntry, where: str, intake: Intake) -> NewEntry:
    try:
        new = check_stored(entry, where)
    except InputError as error:
        raise NotSealedError(f"{where}: {error}") from error
    _check_scope([new.subject.experiment_id], intake.may_submit)
    if _find_missing(entry, intake) is not None:
        # Sent again, and its evidence withheld since: it is compared with what is sealed.
        if intake.is_sealed(new.subject):
            return new
        intake.finish(entry.evidence)
    if (file := _find_missing(entry, intake)) is not None:
        raise NotSealedError(f"{where}: the evidence {file.path!r} was not uploaded")
    try:
        _check_score(entry, where, intake.artifacts)
    except (DamageError, OSError) as error:
        raise NotSealedError(f"{where}: its evidence cannot be read: {error}") from error
    return new


def _find_missing(entry: TrialEntry, intake: Intake) -> EvidenceFile | None:
    return next((each for each in entry.evidence if not intake.artifacts.holds(each.sha256)), None)


def _check_score(entry: TrialEntry, where: str, artifacts: ArtifactStore) -> None:
    """Compute the score again from the files that decide it."""
    if entry.score is None and entry.reason_code is not None:
        # A reward, and a reason why there is none.
        reward = _reward_of(entry, where)
        if reward is not None:
            raise NotSealedError(
                f"{where}: its record has the reward {reward!r}, and it says "
                f"{entry.reason_code!r}, which is why there is none"
            )
    deciding = [file for file in entry.evidence if _decides(file.path)]
    if not any(file.path == "result.json" for file in deciding):
        if entry.score is not None:
            raise NotSealedError(f"{where}: it has a score, and its evidence no result.json")
        return
    if (n_bytes := sum(file.size for file in deciding)) > _LARGEST_RESULTS:
        raise NotSealedError(
            f"{where}: the files that decide its score have {n_bytes:,} bytes; at most "
            f"{_LARGEST_RESULTS:,}"
        )
    with tempfile.TemporaryDirectory(prefix="proctor-serve-") as made:
        trial = Path(made)
        for file in deciding:
            is_reward = file.path.rpartition("/")[2].startswith("reward")
            largest = LARGEST if is_reward else _LARGEST_RESULT
            if file.size > largest:
                raise NotSealedError(
                    f"{where}: {file.path} has {file.size:,} bytes; at most {largest:,}"
                )
            path = trial / file.path
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("xb") as target:
                artifacts.copy_sealed(file.sha256, file.size, cast(BinaryIO, target))
        _compare(entry, trial, where)


def _reward_of(entry: TrialEntry, where: str) -> float | None:
    return parse_record(bytes(entry.record), where).record.evaluation.reward


def _compare(entry: TrialEntry, trial: Path, where: str) -> None:
    """Compare what an entry says about rewards with the files in a directory."""
    record = bytes(entry.record)
    try:
        # The rules that it states; unknown ones differ from what is computed.
        stated_rules = entry.score.profile if entry.score else ""
        found = load_trial(str(trial), PROFILES.get(stated_rules, DEFAULT_PROFILE))
    except JobError:
        found = None
    if found is not None and (faults := find_record_faults(found, record, where)):
        raise NotSealedError(f"{where}: {faults[0]}")
    if entry.score is None and entry.source is not None and entry.source.kind != "harbor":
        # Other imports have the score in the record alone; their result.json may be another
        # program's.
        if found is not None:
            verdict, reward = found.trial.verdict, _reward_of(entry, where)
            given = find_reward(verdict.rewards if verdict else None)
            # A trial that did not end may have a record without the reward.
            if reward not in (None, given):
                raise NotSealedError(
                    f"{where}: its record has the reward {reward!r}; its files, {given!r}"
                )
        return
    score, reason = find_score(trial, parse_record(record, where).record, found)
    stated = msgspec.to_builtins(entry.score), entry.reason_code
    computed = msgspec.to_builtins(score), reason
    if stated != computed:
        raise NotSealedError(
            f"{where}: its score is {_show(*stated)}; its files give {_show(*computed)}"
        )


def _decides(path: str) -> bool:
    """Whether a file decides what a trial scored."""
    parts = path.split("/")
    if path in ("result.json", "config.json"):
        return True
    if parts[-1] not in ("reward.txt", "reward.json"):
        return False
    is_step = len(parts) == 4 and parts[0] == "steps" and parts[2] == "verifier"
    return is_step or parts[:-1] == ["verifier"]


def _show(score: object, reason: str | None) -> str:
    rewards = None
    if isinstance(score, dict) and isinstance(certificate := score.get("certificate"), dict):
        rewards = certificate.get("rewards")
    return f"{rewards} ({reason or 'scored'})"
