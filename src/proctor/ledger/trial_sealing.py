"""Seals the trials of a job from their directories, each once.

    a kept attempt                         TRIAL.attempt-N
    a trial                                TRIAL
    a trial that was sealed as TRIAL and
    run again by a later resume            TRIAL.rerun-N, which replaces the one before

An attempt that was sealed while it was still the trial itself is not sealed a second time.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import count, takewhile
from pathlib import Path

from proctor.ledger.entry import Subject, SupersedeEntry, TrialEntry
from proctor.ledger.reader import WAITING, LedgerReader, LedgerWriter
from proctor.ledger.row import read_row
from proctor.ledger.sealing import (
    Sealed,
    Secrets,
    Submission,
    check_submission,
    identify_submission,
    seal,
)
from proctor.ledger.submission import has_record, list_attempts, rename_trial, submit_trial

AUTHOR = "proctor resume"
_RERUN = ".rerun-"
_FIRST_RERUN = f"{_RERUN}1"
_REPLACED = ("superseded", "withheld")
REASON = "the trial was run again under the same name"


def seal_trials(ledger: LedgerWriter, trials: Sequence[Path], secrets: Secrets) -> list[Sealed]:
    """Seal trials and the attempts kept in them, except for those that are sealed already."""
    ledger.keep_up()
    submissions = [each for trial in trials for each in _find_unsealed(ledger, trial)]
    if not submissions:
        return []
    supersessions = []
    for submission, former in submissions:
        if former is not None:
            # Before anything is appended: a trial that cannot be sealed must not replace another
            # one.
            check_submission(submission, secrets)
            supersessions.append(_supersede(former, identify_submission(submission)))
    if supersessions:
        # Supersessions come first: if the process is killed in between, no two runs of a trial
        # count.
        with ledger.writing():
            ledger.append(supersessions)
    return seal(ledger, [submission for submission, _ in submissions], secrets)


def find_before(ledger: LedgerReader, submission: Submission, trial: str) -> Sealed | None:
    """What a trial, or an attempt kept in it, was sealed as; None if it is new."""
    name = identify_submission(submission)
    for known in _names(trial):
        found = ledger.find_sealed(name.experiment_id, known)
        if found is None:
            return None
        if found.record == identify_submission(rename_trial(submission, known)).record:
            sealed = None if found.seq == WAITING else ledger.entry(found.seq)
            status = read_row(sealed).status if isinstance(sealed, TrialEntry) else "withheld"
            status = "waiting" if found.seq == WAITING else status
            return Sealed(found.seq, name.experiment_id, known, found.record, status, is_new=False)
    return None


def group_reruns(statuses: Mapping[str, str]) -> dict[str, list[str]]:
    """Trials that a resume ran again: each name, with the sealed names of its runs, in order.

    Only the last run counts. `statuses` are those of trials, by name.
    """
    found = {}
    for name in statuses:
        base = name.removesuffix(_FIRST_RERUN)
        if base == name or base not in statuses:
            continue
        sealed_as = list(takewhile(statuses.__contains__, _names(base)))
        if all(statuses[former] in _REPLACED for former in sealed_as[:-1]):
            found[base] = sealed_as
    return found


def place_rerun(
    ledger: LedgerWriter, submission: Submission
) -> tuple[Submission, SupersedeEntry | None]:
    """The trial under a free name, and the entry that makes it replace the run before."""
    for renamed, former in _find_new(ledger, submission):
        return renamed, _supersede(former, identify_submission(renamed)) if former else None
    return submission, None


def _find_unsealed(
    ledger: LedgerWriter, trial: Path
) -> Iterator[tuple[Submission, Subject | None]]:
    """The unsealed submissions of a trial, each with the sealed trial that it replaces."""
    for attempt in list_attempts(trial):
        if has_record(attempt):
            submission = submit_trial(attempt)
            # Under its own name, or under a name that it had as the trial itself.
            name = identify_submission(submission)
            is_sealed = ledger.find_sealed(name.experiment_id, name.trial_id) is not None
            if not is_sealed and find_before(ledger, submission, trial.name) is None:
                yield submission, None
    if has_record(trial):
        yield from _find_new(ledger, submit_trial(trial))


def _find_new(
    ledger: LedgerWriter, submission: Submission
) -> Iterator[tuple[Submission, Subject | None]]:
    """The trial under the first free name, unless the same bytes are sealed already."""
    name = identify_submission(submission)
    former = None
    for known in _names(name.trial_id):
        renamed = rename_trial(submission, known)
        found = ledger.find_sealed(name.experiment_id, known)
        if found is None:
            yield renamed, former
            return
        if found.record == identify_submission(renamed).record:
            return
        former = Subject(experiment_id=name.experiment_id, trial_id=known, record=found.record)


def _names(trial: str) -> Iterator[str]:
    yield trial
    for number in count(1):
        yield f"{trial}{_RERUN}{number}"


def _supersede(former: Subject, new: Subject) -> SupersedeEntry:
    return SupersedeEntry(
        at="",
        seq=0,
        subject=former,
        by=new,
        cause="other",
        reason=REASON,
        author=AUTHOR,
    )
