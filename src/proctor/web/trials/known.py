"""Everything known about one trial, sealed or in a job's directory, for its pages.

    with opened_trial(subject, "nightly", "fix-bug__a1B2c3D") as known: …

A trial in a job is described by the entry that sealing it would make, without sealing it. What
cannot be read is described in `problem`, and the rest is still available.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from proctor.errors import DamageError, InputError
from proctor.exchange.harbor_trial import RecordRequest, make_record
from proctor.ledger.counting import ATTEMPT
from proctor.ledger.entry import TrialEntry, Withheld, decode_line
from proctor.ledger.reader import LedgerReader
from proctor.ledger.review import Remark, list_remarks
from proctor.ledger.row import TrialRow
from proctor.ledger.sealing import Submission
from proctor.ledger.submission import (
    ATTEMPTS,
    TrialContext,
    has_record,
    list_attempts,
    submit_record,
    submit_trial,
)
from proctor.ledger.traced_trials import trace_entry
from proctor.ledger.tree import leaf_hash
from proctor.ledger.trial_index import TrialFilter
from proctor.record.ids import make_id
from proctor.record.read import parse_record, render_record
from proctor.report.in_jobs import entry_of
from proctor.traces.traced_trial import TracedTrial
from proctor.web.subject import Subject, find_row
from proctor.web.trials.evidence import Directory, KnownFile, list_directory, list_sealed
from proctor.web.trials.remembered import SUBMISSIONS, key_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """One trial, and access to its files."""

    experiment: str
    trial: str
    traced: TracedTrial
    files: tuple[KnownFile, ...] = ()
    entry: TrialEntry | None = None
    """The entry as sealed, or as it would be; None if withheld or unreadable."""
    ledger: LedgerReader | None = None
    """None in a job."""
    is_sound: bool = True
    """Whether the ledger has no known damage."""
    row: TrialRow | None = None
    """None in a job."""
    leaf: str | None = None
    """Hash of its line in the tree."""
    remarks: tuple[Remark, ...] = ()
    """Later entries about it."""
    related: tuple[str, ...] = ()
    """Other attempts and reruns of the same trial."""
    problems: tuple[str, ...] = ()
    """Problems with it, one sentence each."""
    damage: str | None = None
    """Why its line is not what was sealed."""

    @property
    def is_withheld(self) -> bool:
        """Whether its record was withheld from the ledger."""
        return self.row is not None and self.entry is None and self.damage is None

    def find_file(self, path: str) -> KnownFile | None:
        """The file of that name, if the trial lists it."""
        return next((file for file in self.files if file.path == path), None)


@contextlib.contextmanager
def opened_trial(
    subject: Subject, experiment: str, trial: str, *, files_only: bool = False
) -> Iterator[Known]:
    """Open one trial; its files are readable inside the context.

    `files_only` skips the record of a trial in a job, which would read its whole trace.
    """
    with subject.opened() as ledger:
        if ledger is not None:
            is_sound = subject.damage() is None
            row = find_row(ledger, experiment, trial)
            yield replace(_know_sealed(ledger, row), is_sound=is_sound)
        else:
            place = subject.trial_directory(experiment, trial)
            known = _know_in_job(place, experiment, trial)
            yield known if files_only else _with_record(known, place)


def load_known(row: TrialRow, ledger: LedgerReader | None) -> Known:
    """Load the trial of a row, sealed or in a directory."""
    if ledger is not None and row.place is None:
        return _know_sealed(ledger, row)
    place = Path(row.place or "")
    return _with_record(_know_in_job(place, row.experiment_id, row.trial_id), place)


def _know_sealed(ledger: LedgerReader, row: TrialRow) -> Known:
    line = ledger.index.entry(row.seq)
    bare = Known(
        experiment=row.experiment_id,
        trial=row.trial_id,
        traced=_trace_nothing(row.name, row.seq),
        ledger=ledger,
        row=row,
        leaf=line.leaf.hex() if line else None,
        remarks=tuple(list_remarks(ledger, row.record)),
        related=_find_related(ledger, row.experiment_id, row.trial_id),
    )
    try:
        entry = _read_sealed(ledger, row.seq, bare.leaf)
        if entry is None:
            return bare
        traced = trace_entry(ledger.artifacts, entry)
    except (DamageError, InputError) as error:
        return replace(bare, damage=str(error))
    return replace(bare, traced=traced, entry=entry, files=list_sealed(ledger, entry))


def _read_sealed(ledger: LedgerReader, seq: int, leaf: str | None) -> TrialEntry | None:
    """The entry, verified byte for byte; None if it was withheld."""
    line = ledger.line(seq)
    where = f"{ledger.where}: entry {seq}"
    entry = decode_line(line, where)
    if isinstance(entry, Withheld):
        return None
    if leaf_hash(line).hex() != leaf or not isinstance(entry, TrialEntry):
        raise DamageError(f"{where}: its line is not the one that was sealed")
    return entry


def _trace_nothing(name: str, seq: int | None) -> TracedTrial:
    nothing = Directory(Path(), frozenset())
    return TracedTrial(name=name, files=(), open_file=nothing.open, seq=seq)


def _find_related(ledger: LedgerReader, experiment: str, trial: str) -> tuple[str, ...]:
    """The trial itself, its kept attempts and its reruns, starting from any of them."""
    base = _base_of(trial)
    own = ledger.index.trials(TrialFilter(experiment=experiment, trial=base))
    others = TrialFilter(experiment=experiment, trial_prefix=f"{base}.", first=100)
    found = sorted([*own, *ledger.index.trials(others)], key=lambda row: row.seq)
    names = (row.trial_id for row in found)
    return tuple(name for name in names if _base_of(name) == base and name != trial)


def _base_of(trial: str) -> str:
    for mark in (ATTEMPT, ".rerun-"):
        base, found, number = trial.rpartition(mark)
        if found and number.isdecimal():
            return base
    return trial


def _know_in_job(place: Path, experiment: str, trial: str) -> Known:
    files, refused = list_directory(place)
    opened = Directory(place, frozenset(file.path for file in files))
    traced = TracedTrial(
        name=str(place), files=tuple(file.path for file in files), open_file=opened.open
    )
    return Known(
        experiment=experiment,
        trial=trial,
        traced=traced,
        files=files,
        related=_find_related_places(place, trial),
        problems=refused,
    )


def _with_record(known: Known, place: Path) -> Known:
    """Add what would be sealed of it; if that fails, the reason."""
    try:
        key = key_of(str(place), known.files)
        submission = SUBMISSIONS.find_or_make(key, lambda: _submit(place, known.experiment))
        record = parse_record(submission.record, str(place), salvage=True).record
    except InputError as error:
        return replace(known, problems=(*known.problems, str(error)))
    traced = replace(
        known.traced,
        record=record,
        reason_code=submission.reason_code,
        findings=submission.findings,
    )
    return replace(known, traced=traced, entry=entry_of(submission))


def _find_related_places(place: Path, trial: str) -> tuple[str, ...]:
    base, mark, _ = trial.rpartition(ATTEMPT)
    is_kept = bool(mark) and place.parent.name == ATTEMPTS
    whole = place.parent.parent if is_kept else place
    name = base if is_kept else trial
    try:
        kept = [f"{name}{ATTEMPT}{each.name}" for each in list_attempts(whole)]
    except InputError:
        return ()
    return tuple(each for each in [*kept, name] if each != trial)


def _submit(place: Path, experiment: str) -> Submission:
    if has_record(place):
        return submit_trial(place)
    record, basis = make_record(RecordRequest(trial=str(place), experiment=make_id(experiment)))
    return submit_record(render_record(record), place, TrialContext(cost_basis=basis.kind))
