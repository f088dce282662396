"""Excuses: evidence that is missing may be, where an entry says so of the very trial that names it.

Another trial may name the same bytes; for that one they still have to be there.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

from proctor.errors import DamageError
from proctor.ledger.entry import TrialEntry, WithholdEntry, decode_line
from proctor.ledger.row import read_row
from proctor.ledger.segments import read_line
from proctor.ledger.verification.found import FoundLog

type Excuse = tuple[str, str, str]
"""Experiment, trial and SHA-256 of something that was taken out."""


def excuses_of(withholdings: Iterable[WithholdEntry]) -> set[Excuse]:
    """What entries say was taken out of which trials."""
    return {
        (entry.subject.experiment_id, entry.subject.trial_id, sha256)
        for entry in withholdings
        if entry.subject is not None
        for sha256 in entry.artifacts
    }


def find_unexcused(
    directory: Path, found: FoundLog, missing: set[str], excuses: set[Excuse]
) -> Iterator[tuple[int, str]]:
    """The lines that name something missing, and are of a trial that nothing excuses."""
    for line, sha256 in found.evidence.naming(missing):
        where, length = found.place_of(line)
        try:
            entry = decode_line(read_line(directory / "entries", where, length), "the line")
        except DamageError:
            entry = None
        row = read_row(entry) if isinstance(entry, TrialEntry) else None
        if row is None or (row.experiment_id, row.trial_id, sha256) not in excuses:
            yield line, sha256
