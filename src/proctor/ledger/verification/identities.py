"""Identities: no two entries of a log are the same trial, withheld ones included.

A trial that was withheld keeps its name: the entry that says so names it. Where its line is there
after all, it has to be that trial. Where trials are not decoded nothing is looked at, nor in a log
that differs from what was signed: that is told already.
"""

from proctor.errors import DamageError
from proctor.ledger.admission import render_duplicate, render_misnamed
from proctor.ledger.entry import Subject, TrialEntry, decode_line
from proctor.ledger.row import read_row
from proctor.ledger.segments import read_line
from proctor.ledger.verification.damage import DamageKind
from proctor.ledger.verification.steps import Check, Scope


def check_identities(check: Check, scope: Scope) -> None:
    """Name every trial that two entries are, and every entry that is said to be two trials."""
    if check.is_fast or not scope.is_same:
        return
    withheld = _name_withheld(check, scope)
    evidence = scope.found.evidence
    evidence.identify(
        (line, subject.experiment_id, subject.trial_id) for line, subject in withheld.items()
    )
    for first, last, experiment_id, trial_id in evidence.duplicates(scope.size):
        message = render_duplicate(first, last, experiment_id, trial_id)
        where = scope.found.where(last)
        check.findings.add(DamageKind.DUPLICATE_TRIAL, where, message, last)


def _name_withheld(check: Check, scope: Scope) -> dict[int, Subject]:
    """The trials whose lines were taken out, by what entries say of them."""
    withheld: dict[int, Subject] = {}
    for seq, entry in scope.entries(scope.found.withholdings):
        if entry.subject is None or entry.entry is None:
            continue
        found: Subject | None
        if entry.entry in scope.found.withheld:
            found = withheld.setdefault(entry.entry, entry.subject)
        else:
            found = _read_subject(check, scope, entry.entry)
        if found != entry.subject:
            message = render_misnamed(seq, entry.entry, entry.subject, found)
            where = scope.found.where(seq)
            check.findings.add(DamageKind.DUPLICATE_TRIAL, where, message, seq)
    return withheld


def _read_subject(check: Check, scope: Scope, line: int) -> Subject | None:
    """The trial in a line that is there; None where it is none."""
    place, length = scope.found.place_of(line)
    try:
        entry = decode_line(read_line(check.entries, place, length), f"entry {line}")
        return read_row(entry).subject if isinstance(entry, TrialEntry) else None
    except DamageError:
        return None
