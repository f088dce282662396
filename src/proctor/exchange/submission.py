"""A record file or a trial directory, given by the user, as submissions to seal.

A trial that proctor ran contains its record; for any other harbor trial a record is made. Kept
attempts are submitted with their trial. Does not seal.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from proctor.digest import sha256_hex
from proctor.errors import NotSealedError, RecordError
from proctor.exchange.harbor_trial import RecordRequest, make_record
from proctor.files import open_plain
from proctor.ledger.entry import Source
from proctor.ledger.sealing import LARGEST_RECORD, Submission
from proctor.ledger.submission import (
    TrialContext,
    has_record,
    list_attempts,
    submit_record,
    submit_trial,
)
from proctor.record.evidence import find_evidence
from proctor.record.read import load_record, render_record
from proctor.sentence import count_of
from proctor.trial.finding import FindingCode

_KEPT = ("verified", "present")


@dataclass(frozen=True, slots=True, kw_only=True)
class SealOptions:
    """Options for sealing."""

    experiment: str | None = None
    task: str | None = None
    """Directory of the task that a harbor trial ran."""
    dataset_id: str | None = None


def find_submissions(path: Path, options: SealOptions) -> Iterator[Submission]:
    """List the submissions at a path: one record, or a trial preceded by its kept attempts."""
    if path.is_dir() or _is_trials_own(path):
        trial = path if path.is_dir() else path.parent
        for directory in [*list_attempts(trial), trial]:
            yield _submit_directory(directory, options)
        return
    yield _submit_file(path, options)


def _is_trials_own(path: Path) -> bool:
    """Whether a record file is the one in its trial's directory."""
    names = ("result.json", "config.json")
    return path.name == "record.json" and any((path.parent / name).exists() for name in names)


def _submit_directory(trial: Path, options: SealOptions) -> Submission:
    if has_record(trial):
        return submit_trial(trial, experiment=options.experiment)
    if options.experiment is None:
        raise NotSealedError(
            f"{trial}: has no record.json; a harbor trial needs --experiment E, under which its "
            "record is made"
        )
    record, basis = make_record(
        RecordRequest(
            trial=str(trial),
            experiment=options.experiment,
            task=options.task,
            dataset_id=options.dataset_id,
        )
    )
    job = trial.resolve().parent
    source = Source(
        kind="harbor",
        name=job.parent.parent.name if trial.resolve().parent.name == "attempts" else job.name,
    )
    context = TrialContext(source=source, cost_basis=basis.kind)
    return submit_record(render_record(record), trial, context)


def _submit_file(path: Path, options: SealOptions) -> Submission:
    try:
        with open_plain(path) as file:
            data = file.read(LARGEST_RECORD + 1)
            size = path.stat().st_size
    except OSError as error:
        raise NotSealedError(f"{path}: cannot be read: {error.strerror}") from error
    if size > LARGEST_RECORD:
        raise NotSealedError(
            f"{path}: {size:,} bytes; a record has at most {LARGEST_RECORD:,}: move large "
            "contents to an evidence file"
        )
    loaded = load_record(path)
    if options.experiment not in (None, loaded.record.experiment_id):
        raise RecordError(
            f"{path}: a record of experiment {loaded.record.experiment_id!r}, not "
            f"{options.experiment!r}; --experiment is only for trials without a record"
        )
    found = find_evidence(loaded.record, path.parent)
    evidence = [each.path for each in found if each.state in _KEPT]
    if loaded.generation == "G2":
        # It is sealed converted to the first generation, with the original as evidence.
        evidence += _find_originals(path, data)
        data = render_record(loaded.record)
    # Absolute paths are a container's and cannot be checked; relative ones must exist.
    inside = [each.path for each in found if Path(each.path).is_absolute()]
    is_alone = not evidence and all(each.path in inside for each in found if each.is_problem)
    return Submission(
        record=data,
        loaded=None if loaded.generation == "G2" else loaded,
        where=str(path),
        root=None if is_alone else path.parent,
        evidence=tuple(dict.fromkeys(evidence)),
        findings=find_unreachable(inside),
    )


def _find_originals(path: Path, data: bytes) -> list[str]:
    """List a record of the second generation, and the manifest of its run."""
    run_id = str(msgspec.json.decode(data, type=dict[str, object]).get("run_id"))
    manifest = f"_runs/{sha256_hex(run_id.encode())}.json"
    return [path.name, *([manifest] if (path.parent / manifest).is_file() else [])]


def find_unreachable(paths: list[str]) -> tuple[dict[str, Any], ...]:
    """The finding that a record names files which could not be checked; empty if it names none."""
    if not paths:
        return ()
    # The text is sealed with the trial, so it stays as it is.
    return (
        {
            "code": str(FindingCode.FILES_REFUSED),
            "phase": "seal",
            "message": f"{count_of(len(paths), 'file')} that the record names by a path of its "
            "container could not be looked at",
            "detail": {"files": paths},
        },
    )
