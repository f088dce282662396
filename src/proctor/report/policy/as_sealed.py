"""A job directory against the ledger that it was sealed into: trial by trial, file by file.

Every trial of the directory must be sealed under its name, with the very files that lie there;
every trial that is sealed of the experiment must be there. Files that the job itself has are not
compared: they go on changing after its trials are sealed.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from proctor.digest import sha256_file
from proctor.ledger.entry import TrialEntry
from proctor.ledger.keeping import AROUND
from proctor.ledger.ledger import Ledger
from proctor.ledger.submission import list_files
from proctor.ledger.withheld import find_unnamed
from proctor.report.attempt import Attempt
from proctor.report.policy.from_jobs import UNSIGNED
from proctor.report.policy.submission import SealedIn, Submission
from proctor.report.sealed import load_position
from proctor.sentence import count_of

_SHOWN = 3


def hold_against(submission: Submission, ledger: Ledger, sealed: SealedIn) -> Submission:
    """The same submission with what the ledger says of it.

    Raises:
        DamageError: the log does not give what its checkpoint says.
    """
    differences = tuple(_find_differences(submission, ledger))
    return replace(
        submission,
        sealed=replace(sealed, differences=differences, unnamed=tuple(find_unnamed(ledger))),
        unchecked=[each for each in submission.unchecked if each != UNSIGNED],
    )


def _find_differences(submission: Submission, ledger: Ledger) -> Iterator[tuple[str, str]]:
    handed_in = {trial.name: trial.attempt for trial in submission.trials}
    experiments = dict.fromkeys(attempt.experiment for attempt in handed_in.values())
    known = {
        attempt.name: attempt
        for experiment in experiments
        for attempt in load_position(ledger, experiment=experiment).attempts
    }
    for name, attempt in handed_in.items():
        if name not in known:
            yield name, "is not in the ledger"
        elif message := _compare(attempt, known[name], ledger):
            yield name, message
    for name, attempt in known.items():
        if name not in handed_in:
            yield name, f"is sealed, with {_show(attempt)}, and not handed in"


def _show(attempt: Attempt) -> str:
    if attempt.status == "withheld":
        return "its bytes withheld"
    return "no reward" if attempt.reward is None else f"reward {attempt.reward:g}"


def _compare(attempt: Attempt, sealed: Attempt, ledger: Ledger) -> str | None:
    entry = ledger.entry(sealed.seq or 0)
    if not isinstance(entry, TrialEntry):
        return None  # what was withheld cannot be compared; the check of records says so
    kept = {file.path: file.sha256 for file in entry.evidence if not file.path.startswith(AROUND)}
    place = Path(attempt.place or "")
    try:
        there = {name: sha256_file(place / name) for name in list_files(str(place))[0]}
    except OSError as error:
        return f"cannot be compared: {error.filename}: {error.strerror}"
    changed = sorted(
        name for name in kept.keys() | there.keys() if kept.get(name) != there.get(name)
    )
    if not changed:
        return None
    shown = ", ".join(changed[:_SHOWN])
    return f"{count_of(len(changed), 'file')} not as sealed: {shown}"
