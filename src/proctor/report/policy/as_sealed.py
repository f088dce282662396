"""Compares a job directory with the ledger that it was sealed into, trial by trial, file by file.

Every trial of the directory must be sealed under its name with the same files, or, if a resume ran
it again, as its last run; every sealed trial of the experiment must be in the directory. The job's
own files are not compared, because they change after trials were sealed.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from proctor.digest import sha256_file, sha256_hex
from proctor.errors import InputError
from proctor.ledger.counting import restarted_as
from proctor.ledger.entry import TrialEntry
from proctor.ledger.keeping import JOB_PREFIX
from proctor.ledger.query import load_position
from proctor.ledger.reader import LedgerReader
from proctor.ledger.row import TrialRow
from proctor.ledger.submission import has_record, list_files, read_linked, submit_trial
from proctor.ledger.trial_sealing import find_before, group_reruns
from proctor.record.reasons import outcome_of
from proctor.report.policy.from_jobs import UNSIGNED
from proctor.report.policy.submission import SealedIn, Submission
from proctor.sentence import count_of, render_figure

_RECORD = "record.json"
_SHOWN = 3


def compare_with_ledger(
    submission: Submission, ledger: LedgerReader, sealed: SealedIn
) -> Submission:
    """Add what the ledger says to a submission."""
    known = _find_sealed(submission, ledger)
    differences = tuple(_find_differences(submission, known, ledger))
    return replace(
        submission,
        sealed=replace(sealed, differences=differences),
        unchecked=[each for each in submission.unchecked if each != UNSIGNED],
    )


def _find_sealed(submission: Submission, ledger: LedgerReader) -> dict[str, TrialRow]:
    """The sealed trials of the submission's experiments, by name."""
    return {
        row.name: row
        for experiment in dict.fromkeys(each.row.experiment_id for each in submission.trials)
        for row in load_position(ledger, experiment=experiment).trials
    }


def _find_differences(
    submission: Submission, known: Mapping[str, TrialRow], ledger: LedgerReader
) -> Iterator[tuple[str, str]]:
    handed_in = {trial.name: trial.row for trial in submission.trials}
    reruns = group_reruns({name: row.status for name, row in known.items()})
    found = set()
    for name, row in handed_in.items():
        sealed_as = reruns[name][-1] if name in reruns else name
        if sealed_as not in known:
            sealed_as = _find_former(row, known, ledger) or name
        found.add(sealed_as)
        if sealed_as not in known:
            yield name, "is not in the ledger"
        elif message := _compare(row, known[sealed_as], ledger):
            yield name, message
    for name, row in known.items():
        if name not in found:
            yield name, f"is sealed, with {_show(row)}, but not submitted"


def _show(row: TrialRow) -> str:
    if row.status == "withheld":
        return "its bytes withheld"
    return outcome_of(row) if row.reward is None else f"reward {render_figure(row.reward)}"


def _find_former(row: TrialRow, known: Mapping[str, TrialRow], ledger: LedgerReader) -> str | None:
    """The name under which a kept attempt was sealed while it was still the trial itself."""
    base = restarted_as(row.trial_id)
    place = Path(row.place or "")
    if base is None or not has_record(place):
        return None
    try:
        found = find_before(ledger, submit_trial(place, experiment=row.experiment_id), base)
    except InputError:
        return None
    name = None if found is None else f"{row.experiment_id}/{found.trial_id}"
    return name if name in known else None


def _compare(row: TrialRow, sealed: TrialRow, ledger: LedgerReader) -> str | None:
    entry = ledger.entry(sealed.seq)
    if not isinstance(entry, TrialEntry):
        return None  # a withheld trial cannot be compared; the check of records reports it
    kept = {
        file.path: file.sha256 for file in entry.evidence if not file.path.startswith(JOB_PREFIX)
    }
    place = Path(row.place or "")
    try:
        files, refused = list_files(str(place))
        there = {name: sha256_file(place / name) for name in files}
        linked = read_linked(place) if refused else {}
        there |= {name: sha256_hex(data) for name, data in linked.items()}
    except OSError as error:
        return f"cannot be compared: {error.filename}: {error.strerror}"
    if row.trial_id != sealed.trial_id and restarted_as(row.trial_id):
        # Its record now has the id of the attempt, and is otherwise the sealed one.
        kept.pop(_RECORD, None)
        there.pop(_RECORD, None)
    changed = sorted(
        name for name in kept.keys() | there.keys() if kept.get(name) != there.get(name)
    )
    if not changed:
        return None
    shown = ", ".join(changed[:_SHOWN])
    return f"{count_of(len(changed), 'file')} not as sealed: {shown}"
