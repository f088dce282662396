"""Sealed trials as an export reads them: the record, what is sealed with it, and its traces.

Reading is of the salvaging kind: what of a trace cannot be read becomes a loss. Of evidence that
was withheld only the name is left; evidence that is missing without a word is damage.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from proctor.errors import MissingArtifactError
from proctor.exporters.chosen import Chosen, check_some
from proctor.exporters.report import Report
from proctor.ledger.entry import TrialEntry
from proctor.ledger.ledger import Ledger
from proctor.ledger.query import TrialRow
from proctor.ledger.withhold import find_withholdings
from proctor.record.ids import check_id
from proctor.record.model import TrialRecord
from proctor.record.read import parse_record
from proctor.traced.sealed import trace_row
from proctor.traced.trial import FoundTrace, TracedTrial, opened_traces
from proctor.trajectory.convert import load_entries
from proctor.trajectory.entry import Entry, Object
from proctor.trajectory.loss import Loss

_NOT_SAID = frozenset({"at", "kind", "seq", "record"})


@dataclass(frozen=True, slots=True)
class SealedTrial:
    """One trial that is to be taken out."""

    row: TrialRow
    entry: TrialEntry
    record: TrialRecord
    """As far as a record of the first generation can hold it."""
    traced: TracedTrial

    @property
    def name(self) -> str:
        """EXPERIMENT/TRIAL; both are fit to be parts of a path."""
        return f"{self.row.experiment_id}/{self.row.trial_id}"

    def told(self) -> Object:
        """All that is sealed: what a loss report holds the export against."""
        return told_by(self.entry)


def told_by(entry: TrialEntry) -> Object:
    """The record as it is stored, and what is sealed beside it, as JSON."""
    said = {
        name: msgspec.to_builtins(value)
        for name in TrialEntry.__struct_fields__
        if name not in _NOT_SAID and (value := getattr(entry, name))
    }
    return {"record": msgspec.json.decode(entry.record), **said}


@dataclass(frozen=True, slots=True)
class ReadTrace:
    """One trace of a trial as entries."""

    part: str
    """The step of a trial of several; "" for the trial itself."""
    entries: list[Entry]
    losses: list[Loss]
    """What the entries do not say of the file."""


def read_trials(chosen: Chosen, report: Report) -> Iterator[SealedTrial]:
    """The chosen trials in their order; what was withheld is left out and said.

    Raises:
        RecordError: an id is no name that may become part of a path.
        DamageError: the ledger does not hold what it should.
        InputError: nothing is left.
    """
    for done, row in enumerate(chosen.rows):
        chosen.watch(done)
        entry = chosen.ledger.entry(row.seq)
        name = f"{row.experiment_id}/{row.trial_id}"
        if not isinstance(entry, TrialEntry):
            report.leave_out(f"{name}: withheld; `proctor show {row.seq}` says why")
            continue
        check_id(row.trial_id, "trial_id")
        check_id(row.experiment_id, "experiment_id")
        record = parse_record(bytes(entry.record), name, salvage=True).record
        yield SealedTrial(row, entry, record, trace_row(chosen.ledger, row))
    chosen.watch(len(chosen.rows))
    check_some(report.trials, report.left_out)


def withheld_of(ledger: Ledger) -> frozenset[str]:
    """Digests of all evidence that was taken out of a ledger."""
    return frozenset(sha256 for each in find_withholdings(ledger) for sha256 in each.artifacts)


def say_withheld(trial: SealedTrial, withheld: frozenset[str], report: Report) -> None:
    """Name the evidence of a trial that is not there any more.

    Raises:
        MissingArtifactError: it is not there, and nobody took it out.
    """
    there = set(trial.traced.files)
    for file in trial.entry.evidence:
        if file.path in there:
            continue
        if file.sha256 not in withheld:
            raise MissingArtifactError(
                f"{trial.name}: evidence {file.path!r}: artifact {file.sha256} is not there"
            )
        report.leave_out(f"{trial.name}: evidence {file.path!r} is withheld")


def read_traces(trial: SealedTrial) -> list[ReadTrace]:
    """The traces of a trial, whatever their kind, the steps in their order.

    Raises:
        DamageError: sealed evidence is altered.
    """
    with opened_traces(trial.traced) as found:
        return [read_trace(each) for each in found]


def read_trace(found: FoundTrace) -> ReadTrace:
    """An open trace as entries."""
    loaded = load_entries(found.path, found.kind, salvage=True)
    passed_over = [Loss(found.part or "trace", "", each) for each in found.passed_over]
    return ReadTrace(found.part, list(loaded.entries), [*passed_over, *loaded.losses])


@contextlib.contextmanager
def writable(trial: SealedTrial, report: Report) -> Iterator[None]:
    """Leave a trial out of whose values no JSON can be made, instead of ending the export."""
    try:
        yield
    except UNWRITABLE as error:
        say_unwritable(trial, error, report)


UNWRITABLE = (RecursionError, UnicodeEncodeError)
"""What is raised where no JSON can be made of a value."""


def say_unwritable(trial: SealedTrial, error: Exception, report: Report) -> None:
    """Name a trial that is left out for that."""
    what = "nested too deeply" if isinstance(error, RecursionError) else "half a character"
    report.leave_out(f"{trial.name}: cannot be written as JSON: {what} in its trace")
