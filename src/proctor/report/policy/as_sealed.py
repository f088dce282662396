"""A job directory against the ledger that it was sealed into: trial by trial, file by file.

Every trial of the directory must be sealed under its name, with the very files that lie there, or,
where a resume ran it again, as its last run; every trial that is sealed of the experiment must be
there. Files that the job itself has are not compared: they go on changing after its trials are
sealed.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from proctor.digest import sha256_file, sha256_hex
from proctor.errors import InputError
from proctor.ledger.counting import restarted_as
from proctor.ledger.entry import TrialEntry
from proctor.ledger.keeping import AROUND
from proctor.ledger.query import load_position
from proctor.ledger.reader import LedgerReader
from proctor.ledger.row import TrialRow
from proctor.ledger.submission import has_record, list_files, read_linked, submit_trial
from proctor.ledger.trial_sealing import find_before, find_reruns
from proctor.ledger.withheld import find_unnamed
from proctor.report.policy.from_jobs import UNSIGNED
from proctor.report.policy.from_ledger import with_coverage
from proctor.report.policy.submission import SealedIn, Submission
from proctor.sentence import count_of

_RECORD = "record.json"
_SHOWN = 3


def hold_against(submission: Submission, ledger: LedgerReader, sealed: SealedIn) -> Submission:
    """The same submission with what the ledger says of it.

    Raises:
        DamageError: the log does not give what its checkpoint says.
    """
    known = _find_sealed(submission, ledger)
    differences = tuple(_find_differences(submission, known, ledger))
    return replace(
        submission,
        sealed=replace(
            with_coverage(sealed, ledger, list(known.values())),
            differences=differences,
            unnamed=tuple(find_unnamed(ledger)),
        ),
        unchecked=[each for each in submission.unchecked if each != UNSIGNED],
    )


def _find_sealed(submission: Submission, ledger: LedgerReader) -> dict[str, TrialRow]:
    """What is sealed of the experiments that trials were handed in of, by name."""
    return {
        attempt.name: attempt
        for experiment in dict.fromkeys(each.attempt.experiment_id for each in submission.trials)
        for attempt in load_position(ledger, experiment=experiment).trials
    }


def _find_differences(
    submission: Submission, known: Mapping[str, TrialRow], ledger: LedgerReader
) -> Iterator[tuple[str, str]]:
    handed_in = {trial.name: trial.attempt for trial in submission.trials}
    reruns = find_reruns({name: attempt.status for name, attempt in known.items()})
    found = set()
    for name, attempt in handed_in.items():
        sealed_as = reruns[name][-1] if name in reruns else name
        if sealed_as not in known:
            sealed_as = _find_former(attempt, known, ledger) or name
        found.add(sealed_as)
        if sealed_as not in known:
            yield name, "is not in the ledger"
        elif message := _compare(attempt, known[sealed_as], ledger):
            yield name, message
    for name, attempt in known.items():
        if name not in found:
            yield name, f"is sealed, with {_show(attempt)}, and not handed in"


def _show(attempt: TrialRow) -> str:
    if attempt.status == "withheld":
        return "its bytes withheld"
    return "no reward" if attempt.reward is None else f"reward {attempt.reward:g}"


def _find_former(
    attempt: TrialRow, known: Mapping[str, TrialRow], ledger: LedgerReader
) -> str | None:
    """What a kept attempt was sealed as, if that was while it was still the trial itself."""
    base = restarted_as(attempt.trial_id)
    place = Path(attempt.place or "")
    if base is None or not has_record(place):
        return None
    try:
        found = find_before(ledger, submit_trial(place, experiment=attempt.experiment_id), base)
    except InputError:
        return None
    name = None if found is None else f"{attempt.experiment_id}/{found.trial_id}"
    return name if name in known else None


def _compare(attempt: TrialRow, sealed: TrialRow, ledger: LedgerReader) -> str | None:
    entry = ledger.entry(sealed.seq)
    if not isinstance(entry, TrialEntry):
        return None  # what was withheld cannot be compared; the check of records says so
    kept = {file.path: file.sha256 for file in entry.evidence if not file.path.startswith(AROUND)}
    place = Path(attempt.place or "")
    try:
        files, refused = list_files(str(place))
        there = {name: sha256_file(place / name) for name in files}
        linked = read_linked(place) if refused else {}
        there |= {name: sha256_hex(data) for name, data in linked.items()}
    except OSError as error:
        return f"cannot be compared: {error.filename}: {error.strerror}"
    if attempt.trial_id != sealed.trial_id and restarted_as(attempt.trial_id):
        # Its record has the name of an attempt now, and is the sealed one in all else.
        kept.pop(_RECORD, None)
        there.pop(_RECORD, None)
    changed = sorted(
        name for name in kept.keys() | there.keys() if kept.get(name) != there.get(name)
    )
    if not changed:
        return None
    shown = ", ".join(changed[:_SHOWN])
    return f"{count_of(len(changed), 'file')} not as sealed: {shown}"
