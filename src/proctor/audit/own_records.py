"""Compare each trial's record.json, if proctor wrote one, with its reward files and result.json.

The record repeats the rewards, the ids and the exceptions of its trial, so an edit of the other
files needs an edit of the record too. It is not evidence of its own: a job of harbor has none, and
a trial without one is not a finding.
"""

import math
from collections.abc import Iterator

import msgspec

from proctor.audit.findings import Finding, Kind
from proctor.audit.shown import StoredRewards, show_rewards, show_verdict
from proctor.files import read_inside
from proctor.harbor.job import Job
from proctor.harbor.record import DID_NOT_END, UNRESOLVED, can_store, find_reward
from proctor.harbor.trial import FoundTrial, claimed_trial
from proctor.record.ids import make_id
from proctor.reward.number import Number
from proctor.reward.steps import Verdict


class _Task(msgspec.Struct, frozen=True):
    task_id: str = UNRESOLVED


class _Tag(msgspec.Struct, frozen=True):
    category: str = ""
    source: str = ""


class _Validity(msgspec.Struct, frozen=True):
    errors: list[str] = []


class _Evaluation(msgspec.Struct, frozen=True):
    reward: Number | None = None
    breakdown: dict[str, object] | None = None
    validity: _Validity = _Validity()
    error_taxonomy: list[_Tag] | None = None


class _Own(msgspec.Struct, frozen=True):
    """The part of a record.json that is compared."""

    trial_id: str
    evaluation: _Evaluation
    task: _Task = _Task()


_OWN = msgspec.json.Decoder(_Own)


def audit_records(job: Job) -> Iterator[Finding]:
    """Find trials whose record.json contradicts their other files."""
    for found in job.trials:
        yield from _audit_record(found)


def _audit_record(found: FoundTrial) -> Iterator[Finding]:
    path = f"{found.directory}/record.json"
    try:
        own = _OWN.decode(read_inside(found.directory, path))
    except FileNotFoundError:
        return
    except OSError as error:
        yield Finding(Kind.TORN_FILE, path, f"{path}: cannot be read: {error.strerror}")
        return
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        yield Finding(Kind.TORN_FILE, path, f"{path}: not a record: {error}")
        return
    pairs = [("trial_id", own.trial_id, make_id(found.trial.name))]
    if own.task.task_id != UNRESOLVED:
        pairs.append(("task_id", own.task.task_id, found.trial.task))
    for name, recorded, expected in pairs:
        if recorded != expected:
            message = f"the record has the {name} {recorded}, the trial result {expected}"
            yield Finding(Kind.EDITED_RECORD, path, message, recorded, expected)
    # A runner that could not write the final record left the one of the last phase.
    if not any(error.startswith(DID_NOT_END) for error in own.evaluation.validity.errors):
        yield from _audit_evaluation(found, own.evaluation, path)


def find_record_faults(found: FoundTrial, record: bytes, where: str) -> list[str]:
    """How the rewards and errors in a trial's record contradict its other files.

    The ids are not compared: a trial may be sealed under another name.
    """
    own = _OWN.decode(record).evaluation
    if any(error.startswith(DID_NOT_END) for error in own.validity.errors):
        return []
    return [finding.message for finding in _audit_evaluation(found, own, where)]


def _audit_evaluation(found: FoundTrial, own: _Evaluation, path: str) -> Iterator[Finding]:
    # If files and claim differ, that is a finding of its own; the record may agree with either.
    verdicts = (found.trial.verdict, claimed_trial(found.document).verdict)
    if not any(_is_same(own, verdict) for verdict in verdicts):
        recorded, counted = _show(own), show_verdict(found.trial.verdict)
        message = f"the record has {recorded}, the trial's other files have {counted}"
        yield Finding(Kind.EDITED_RECORD, path, message, recorded, counted)
    document = found.document
    raised = document.exception_info or any(
        step.exception_info for step in document.step_results or ()
    )
    tags = [tag.category for tag in own.error_taxonomy or () if tag.source == "mechanical"]
    # The other way round is honest: a trial may fail after its record was written.
    if tags and not raised:
        message = f"the record has the error {tags[0]}, and the trial result records no exception"
        yield Finding(Kind.EDITED_RECORD, path, message, tags[0], "none")


def _is_same(own: _Evaluation, verdict: Verdict | None) -> bool:
    rewards = verdict.rewards if verdict else None
    if own.reward != find_reward(rewards):
        return False
    stored = _find_stored(own)
    if stored is None or rewards is None:
        return stored is None
    return stored.keys() == rewards.keys() and all(
        _is_stored_as(value, stored[key]) for key, value in rewards.items()
    )


def _find_stored(own: _Evaluation) -> StoredRewards | None:
    """The rewards by name. None: the trial is not scored, or another program wrote the record."""
    stored = {}
    for key, value in (own.breakdown or {}).items():
        if not isinstance(value, int | float | str):
            return None
        stored[key] = value
    return None if own.breakdown is None else stored


def _is_stored_as(value: Number, stored: Number | str) -> bool:
    if can_store(value):
        return stored == value
    # result.json has null for every number that is not finite, and is read as nan.
    return isinstance(stored, str) and (stored == repr(value) or math.isnan(value))


def _show(own: _Evaluation) -> str:
    stored = _find_stored(own)
    if stored is not None:
        return show_rewards(stored)
    return "no reward" if own.reward is None else f"the reward {own.reward!r}"
