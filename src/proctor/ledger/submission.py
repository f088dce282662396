"""Makes a submission from the directory of a trial: record, evidence, findings and score.

Every plain file of the trial is evidence. An attempt kept in `attempts/N` is a trial by itself.
What cannot be evidence (a link, a device, an undecodable name) is left out with a finding, so that
an agent cannot prevent its trial from being sealed.
"""

import contextlib
import os
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from proctor.audit.certificate import certify_trial
from proctor.errors import JobError, LinkedRewardError, NotSealedError, RecordError
from proctor.files import read_inside, read_small, walk_files
from proctor.harbor.documents import load_details
from proctor.harbor.record import Ending
from proctor.harbor.trial import FoundTrial, load_trial
from proctor.harbor.trial_cost import Reported, find_cost_kind
from proctor.ledger.admission import is_evidence_path
from proctor.ledger.entry import Slot, Source, TrialScore
from proctor.ledger.keeping import JOB_PREFIX, JobFiles
from proctor.ledger.sealing import Submission, identify_submission
from proctor.record.ids import check_id
from proctor.record.model import TrialRecord
from proctor.record.read import parse_record, replace_id
from proctor.record.reasons import ReasonCode
from proctor.reward.read import LARGEST
from proctor.reward.score import Unscored
from proctor.trial.finding import FindingCode

ATTEMPTS = "attempts"
"""Directory of a trial with its kept attempts, each in a directory named after its number."""
_MOST_NAMED = 100


_FINDINGS = msgspec.json.Decoder(list[dict[str, Any]])


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialContext:
    """What is known of a trial apart from its directory."""

    slot: Slot | None = None
    source: Source | None = None
    cost_basis: str | None = None
    job_files: JobFiles | None = None
    """The files of its job."""
    found: FoundTrial | None = None
    """The trial as it is scored, if it was read already."""


def list_attempts(trial: Path) -> list[Path]:
    """The attempts kept in a trial, in order.

    Raises:
        NotSealedError: the trial cannot be read.
    """
    kept = trial / ATTEMPTS
    try:
        is_here = kept.is_dir() and not kept.is_symlink()
        names = [path.name for path in kept.iterdir()] if is_here else []
    except OSError as error:
        raise NotSealedError(f"{trial}: cannot be read: {error.strerror}") from error
    numbers = (name for name in names if name.isascii() and name.isdigit())
    return [kept / name for name in sorted(numbers, key=int)]


def has_record(trial: Path) -> bool:
    """Whether the trial has a record that proctor wrote."""
    path = f"{trial}/record.json"
    # If the directory may not be read, reading the trial reports it.
    return os.path.isfile(path) and not os.path.islink(path)  # noqa: PTH113, PTH114


def submit_trial(
    trial: Path, *, experiment: str | None = None, context: TrialContext | None = None
) -> Submission:
    """Read the trial in a directory with a record.json; `experiment` replaces its experiment.

    Raises:
        NotSealedError: the record or a file cannot be read.
        RecordError: the experiment's name is invalid.
    """
    path = trial / "record.json"
    try:
        data = read_small(str(path))
    except OSError as error:
        raise NotSealedError(f"{path}: cannot be read: {error.strerror}") from error
    if experiment is not None:
        # record.json stays unchanged in the evidence.
        check_id(experiment, "experiment")
        data = _replace(data, "experiment_id", experiment, str(path))
    submission = submit_record(data, trial, context)
    if submission.cost_basis is not None or submission.loaded is None:
        return submission
    cost = submission.loaded.record.cost
    return replace(submission, cost_basis=find_cost_kind(cost, _load_reported(trial)))


def submit_record(record: bytes, trial: Path, context: TrialContext | None = None) -> Submission:
    """Make a submission from a record and the directory of its trial.

    Raises:
        NotSealedError: the record or a file cannot be read.
    """
    context = context or TrialContext()
    files, refused = list_files(str(trial))
    # Salvaging, because unsealed trials are shown as well; sealing is strict later.
    try:
        loaded = parse_record(record, f"{trial}: its record", salvage=True)
    except RecordError as error:
        raise NotSealedError(str(error)) from error
    score, reason = find_score(trial, loaded.record, context.found)
    linked = read_linked(trial) if refused else {}
    return Submission(
        record=record,
        loaded=loaded,
        where=str(trial),
        root=trial,
        evidence=tuple(files),
        attached=linked,
        findings=(
            *_load_findings(trial),
            *make_refused_finding([name for name in refused if name not in linked]),
        ),
        score=score,
        cost_basis=context.cost_basis,
        reason_code=reason,
        slot=context.slot,
        source=context.source,
        job_files=context.job_files,
    )


def _load_reported(trial: Path) -> Reported:
    try:
        found = load_details(str(trial))
    except JobError:
        found = None
    if found is None:
        return Reported(())
    steps = tuple((each.step_name, each.agent_result) for each in found.step_results or ())
    return Ending(rewards=None, report=found.agent_result, steps=steps).reported


def read_linked(trial: Path) -> dict[str, bytes]:
    """Files that a score is based on and that are links inside the trial: contents by link name.

    A link is not evidence; the bytes that were read through it are.
    """
    folders = [trial / "verifier", *sorted((trial / "steps").glob("*/verifier"))]
    rewards = [folder / name for folder in folders for name in ("reward.json", "reward.txt")]
    found = {}
    for path in [trial / "result.json", trial / "config.json", *rewards]:
        name = str(path.relative_to(trial))
        with contextlib.suppress(OSError):
            # Unless a component of its path is a link, it is evidence already.
            if os.path.realpath(path) != f"{os.path.realpath(trial)}/{name}":
                found[name] = read_inside(str(trial), str(path), LARGEST)
    return found


def rename_trial(submission: Submission, trial_id: str) -> Submission:
    """The same trial under another id, also in its score; its record.json stays unchanged."""
    if identify_submission(submission).trial_id == trial_id:
        return submission
    record = _replace(submission.record, "trial_id", trial_id, submission.where)
    score = submission.score
    if score is not None and score.certificate is not None:
        score = msgspec.structs.replace(score, certificate={**score.certificate, "trial": trial_id})
    return replace(submission, record=record, loaded=None, score=score)


def _replace(data: bytes, key: str, value: str, where: str) -> bytes:
    try:
        changed = replace_id(data, key, value)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise NotSealedError(f"{where}: its record is not a TrialRecord: {error}") from error
    if changed is None:
        raise NotSealedError(f"{where}: its record cannot be given the {key} {value!r}")
    return changed


def list_files(root: str, left_out: Collection[str] = (ATTEMPTS,)) -> tuple[list[str], list[str]]:
    """The files that are evidence and those that cannot be, by relative paths with slashes.

    Raises:
        NotSealedError: a directory cannot be read.
    """
    files: list[str] = []
    refused: list[str] = []
    try:
        for name, what in walk_files(root, left_out):
            # A file named as the directory of the job's files would collide with it.
            is_free = is_evidence_path(name) and not f"{name}/".startswith(JOB_PREFIX)
            (files if what is None and is_free else refused).append(name)
    except OSError as error:
        raise NotSealedError(f"{error.filename}: cannot be read: {error.strerror}") from error
    return files, refused


def _load_findings(trial: Path) -> tuple[dict[str, Any], ...]:
    path = trial / "findings.json"
    try:
        return tuple(_FINDINGS.decode(read_small(str(path))))
    except FileNotFoundError:
        return ()
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise NotSealedError(f"{path}: not a list of findings: {error}") from error


def make_refused_finding(names: list[str]) -> list[dict[str, Any]]:
    """The finding that lists files which cannot be evidence; empty if there are none."""
    if not names:
        return []
    shown = [os.fsencode(name).decode(errors="backslashreplace") for name in names[:_MOST_NAMED]]
    return [
        {
            "code": str(FindingCode.FILES_REFUSED),
            "phase": "seal",
            "message": f"{len(names)} of the trial's files are not evidence: links, devices, "
            "or names that are no plain text",
            "detail": {"files": shown},
        }
    ]


def find_score(
    trial: Path, record: TrialRecord, found: FoundTrial | None = None
) -> tuple[TrialScore | None, str | None]:
    """The score of the trial in a directory, or the reason code if there is none.

    Raises:
        NotSealedError: the record has a reward that the files do not have.
    """
    if found is None and not (trial / "result.json").exists():
        scored = record.evaluation.reward is not None
        return None, None if scored else str(ReasonCode.HARBOR_TRIAL_RESULT_MISSING)
    try:
        found = found or load_trial(str(trial))
    except JobError:
        return None, str(ReasonCode.HARBOR_TRIAL_RESULT_MALFORMED)
    # The trial as an operand under its sealed id, with the group it counts in.
    operand: dict[str, Any] = msgspec.to_builtins(certify_trial(0, found))
    operand |= {"trial": record.trial_id, "group": found.trial.evals_key}
    score = TrialScore(profile=found.profile.name, certificate=operand)
    # A reward behind a link out of the trial is not evidence, so that the record may not claim it.
    if found.trial.exception == LinkedRewardError.__name__ and record.evaluation.reward is not None:
        message = found.evidence.reason if isinstance(found.evidence, Unscored) else ""
        raise NotSealedError(f"{trial}: its record has a reward that its files do not: {message}")
    return score, found.reason
