"""What every export uses: the selected trials, how they are read, new files, and the loss report.

Reading salvages: what cannot be read of a trace becomes a loss. Withheld evidence is named only;
evidence that is missing without having been withheld is damage. Nothing that exists is replaced.

Each line of a loss report is one field of one trial that the format has no place for, or gives back
differently. Losses are found by reading the written bytes again and comparing, never from a list.
Paths begin with `record`, with the name of a field of the sealed entry, or with `entries`, which
are those of the trial's trace, counted from 0.
"""

import contextlib
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import msgspec

from proctor.errors import InputError, LedgerError, MissingArtifactError
from proctor.files import sync_directory, sync_file
from proctor.ledger.entry import TrialEntry
from proctor.ledger.reader import LedgerReader
from proctor.ledger.row import TrialRow
from proctor.ledger.traced_trials import trace_row
from proctor.ledger.withhold import find_withholdings
from proctor.record.ids import check_id
from proctor.record.model import TrialRecord
from proctor.record.read import parse_record
from proctor.traces.convert import load_entries
from proctor.traces.entry import Entry, Object
from proctor.traces.loss import Loss
from proctor.traces.traced_trial import FoundTrace, TracedTrial, opened_traces


@dataclass(frozen=True, slots=True)
class Selection:
    """The sealed trials to export."""

    ledger: LedgerReader
    rows: list[TrialRow]
    """In the order they were sealed."""
    is_all: bool
    """Whether no filter was given."""
    watch: Callable[[int], None] = lambda _done: None
    """Called with how many of the trials are done."""


class Exported(msgspec.Struct, frozen=True, kw_only=True):
    """What was taken out."""

    output: str
    trials: int
    entries: int | None = None
    """Of the whole ledger; given for a bundle only."""
    left_out: int | None = None
    """Trials of which the bundle has the record, and not the evidence."""
    evidence: int | None = None
    """Files of evidence in the bundle."""
    jobs: int | None = None
    """Directories of harbor's jobs."""
    refused: list[str] = []
    """A sentence for each trial, or part of one, that was left out."""
    losses: int | None = None
    """Fields that the form could not keep; null where that is not looked for."""
    loss_report: str | None = None
    """The file that names them all."""


def check_some(written: int, left_out: Sequence[str]) -> None:
    """Refuse an export in which nothing is left.

    Raises:
        InputError: every trial was left out.
    """
    if not written:
        raise InputError(f"none of these trials can be exported so: {left_out[0]}")


type Exporter = Callable[[Selection, Path], Exported]
"""Writes the trials to a path where nothing is."""


type Scalar = str | int | float | bool


def find_at(value: Object, path: str) -> object:
    """The value at a path; None where there is none."""
    found: object = value
    for key in path.split("."):
        found = found.get(key) if isinstance(found, dict) else None
    return found


def find_scalar(value: Object, path: str) -> Scalar | None:
    """The same, where it is neither an object nor an array."""
    found = find_at(value, path)
    return found if isinstance(found, str | int | float | bool) else None


def put_at(value: Object, path: str, item: object) -> None:
    """Put something at a path, and make what leads there."""
    *way, last = path.split(".")
    for key in way:
        value = value.setdefault(key, {})
    value[last] = item


def pick(document: Object, names: Mapping[str, str]) -> dict[str, Scalar | None]:
    """The scalars at some paths, by their names in another form."""
    return {name: find_scalar(document, path) for path, name in names.items()}


def as_real(value: object) -> float | None:
    """A number as one of 64 bits; None for what is none, or larger than those can be."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


@contextlib.contextmanager
def new_directory(target: Path) -> Iterator[Path]:
    """A directory to write to; what is in it at the end appears under the name in one step.

    Raises:
        LedgerError: something is there, or it cannot be written.
    """
    check_absent(target)
    temporary = _beside(target)
    try:
        temporary.mkdir()
        yield temporary
        _sync_below(temporary)
        # An empty directory would be replaced without a word.
        check_absent(target)
        temporary.rename(target)
        sync_directory(target.parent)
    except OSError as error:
        raise LedgerError(f"{target}: cannot be written: {error}") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


@contextlib.contextmanager
def new_file(target: Path) -> Iterator[BinaryIO]:
    """A file to write to; its bytes appear under the name in one step.

    Raises:
        LedgerError: something is there, or it cannot be written.
    """
    check_absent(target)
    temporary = _beside(target)
    try:
        with temporary.open("x+b") as file:
            yield file
        sync_file(temporary)
        # A link, unlike a change of name, replaces nothing.
        os.link(temporary, target)
        sync_directory(target.parent)
    except FileExistsError as error:
        raise LedgerError(_taken(target)) from error
    except OSError as error:
        raise LedgerError(f"{target}: cannot be written: {error}") from error
    finally:
        temporary.unlink(missing_ok=True)


def check_absent(target: Path) -> None:
    """Refuse a path where something is.

    Raises:
        LedgerError: there is.
    """
    if os.path.lexists(target):
        raise LedgerError(_taken(target))


def _taken(target: Path) -> str:
    return f"{target}: there is something already; an export replaces nothing"


def _beside(target: Path) -> Path:
    return target.with_name(f".{target.name[:80]}.{os.urandom(4).hex()}.tmp")


def _sync_below(directory: Path) -> None:
    for folder, _, names in os.walk(directory):
        for name in names:
            sync_file(Path(folder, name))
        sync_directory(folder)


NAME = "losses.jsonl"
"""The loss report in a directory; beside a file it has the file's name before it."""


class TrialLoss(msgspec.Struct, frozen=True, omit_defaults=True):
    """One field of one trial that did not survive."""

    trial: str
    """EXPERIMENT/TRIAL."""
    path: str
    """Its path, as in `record.task.task_revision`."""
    value_summary: str
    """The beginning of the value, as JSON."""
    why: str
    """A sentence for a person."""
    part: str = ""
    """The step of a trial of several."""


def report_path(target: Path) -> Path:
    """Where the loss report of a single file is."""
    return target.with_name(f"{target.name}.{NAME}")


class Report:
    """What has come to be known of an export so far."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.trials = 0
        """Trials that are in it."""
        self.losses = 0
        """Fields that did not survive."""
        self.left_out: list[str] = []
        """A sentence for each trial, or part of one, that is not in it."""

    def lose(self, trial: str, losses: Iterable[Loss], part: str = "") -> None:
        """Write down what was lost of a trial."""
        for loss in losses:
            line = TrialLoss(trial, loss.path, loss.value_summary, loss.why, part)
            self._file.write(msgspec.json.encode(line) + b"\n")
            self.losses += 1

    def leave_out(self, sentence: str) -> None:
        """Write down what is not in the export at all."""
        self.left_out.append(sentence)

    def exported(self, target: Path, report: Path) -> Exported:
        """The account of it."""
        return Exported(
            output=str(target),
            trials=self.trials,
            refused=self.left_out,
            losses=self.losses,
            loss_report=str(report),
        )


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

    def document(self) -> Object:
        """All that is sealed: what a loss report holds the export against."""
        return render_entry(self.entry)


def render_entry(entry: TrialEntry) -> Object:
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


def read_trials(selection: Selection, report: Report) -> Iterator[SealedTrial]:
    """The selected trials in their order; withheld ones are left out and reported.

    Raises:
        RecordError: an id is no name that may become part of a path.
        DamageError: the ledger does not hold what it should.
        InputError: nothing is left.
    """
    for done, row in enumerate(selection.rows):
        selection.watch(done)
        entry = selection.ledger.entry(row.seq)
        name = row.name
        if not isinstance(entry, TrialEntry):
            report.leave_out(f"{name}: withheld; `proctor show {row.seq}` says why")
            continue
        check_id(row.trial_id, "trial_id")
        check_id(row.experiment_id, "experiment_id")
        record = parse_record(bytes(entry.record), name, salvage=True).record
        yield SealedTrial(row, entry, record, trace_row(selection.ledger, row))
    selection.watch(len(selection.rows))
    check_some(report.trials, report.left_out)


def withheld_of(ledger: LedgerReader) -> frozenset[str]:
    """Digests of all evidence that was taken out of a ledger."""
    return frozenset(sha256 for each in find_withholdings(ledger) for sha256 in each.artifacts)


def say_withheld(trial: SealedTrial, withheld: frozenset[str], report: Report) -> None:
    """Name the evidence of a trial that is not there any more.

    Raises:
        MissingArtifactError: it is not there and was not withheld.
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
