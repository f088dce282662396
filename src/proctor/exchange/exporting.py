"""Shared by all exports: the selected trials, reading them, new files, and the loss report.

Traces are read leniently: what cannot be read becomes a loss. Withheld evidence is only reported;
evidence that is missing without having been withheld is damage. Existing files are never replaced.

Each line of a loss report is one field of one trial that the format does not keep, or changes.
Losses are found by reading the written bytes back and comparing, not from a list. Paths begin with
`record`, with the name of a field of the sealed entry, or with `entries`, the entries of the
trial's trace, counted from 0.
"""

import contextlib
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import msgspec

from proctor.errors import InputError, LedgerError, MissingArtifactError
from proctor.files import sync_directory, sync_file
from proctor.ledger.counting import NOT_COUNTED, SHOWN
from proctor.ledger.entry import TrialEntry
from proctor.ledger.reader import LedgerReader
from proctor.ledger.row import TrialRow
from proctor.ledger.traced_trials import trace_row
from proctor.ledger.withhold import list_withholdings
from proctor.record.ids import check_id
from proctor.record.model import TrialRecord
from proctor.record.read import parse_record
from proctor.sentence import reason_of
from proctor.traces.convert import load_entries
from proctor.traces.entry import Entry, Object
from proctor.traces.loss import Loss
from proctor.traces.traced_trial import FoundTrace, TracedTrial, opened_traces


@dataclass(frozen=True, slots=True)
class Selection:
    """The sealed trials to export."""

    ledger: LedgerReader
    rows: list[TrialRow]
    """In the order in which they were sealed."""
    is_all: bool
    """Whether no filter was given."""
    watch: Callable[[int], None] = lambda _done: None
    """Called with the number of trials done so far."""


class Exported(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an export."""

    output: str
    trials: int
    entries: int | None = None
    """Entries in the whole ledger; only for a bundle."""
    left_out: int | None = None
    """Trials whose record is in the bundle, but not their evidence."""
    evidence: int | None = None
    """Evidence files in the bundle."""
    jobs: int | None = None
    """Harbor job directories."""
    refused: list[str] = []
    """One sentence for each trial, or part of one, that was left out."""
    losses: int | None = None
    """Fields that the format could not keep; null if that was not checked."""
    loss_report: str | None = None
    """The file that lists them."""


def check_some(written: int, left_out: Sequence[str]) -> None:
    """Refuse an empty export.

    Raises:
        InputError: every trial was left out.
    """
    if not written:
        raise InputError(f"none of these trials can be exported in this format: {left_out[0]}")


type Exporter = Callable[[Selection, Path], Exported]
"""Writes the trials to a path that does not exist yet."""


def find_at(value: Object, path: str) -> object:
    """The value at a dotted path; None if there is none."""
    found: object = value
    for key in path.split("."):
        found = found.get(key) if isinstance(found, dict) else None
    return found


def put_at(value: Object, path: str, item: object) -> None:
    """Set the value at a dotted path, creating the objects on the way."""
    *way, last = path.split(".")
    for key in way:
        value = value.setdefault(key, {})
    value[last] = item


@contextlib.contextmanager
def new_directory(target: Path) -> Iterator[Path]:
    """Yield a directory to write to; it gets its name in one step at the end.

    Raises:
        LedgerError: the path exists, or cannot be written.
    """
    check_absent(target)
    temporary = _beside(target)
    try:
        temporary.mkdir()
        yield temporary
        _sync_below(temporary)
        # rename() would silently replace an empty directory.
        check_absent(target)
        temporary.rename(target)
        sync_directory(target.parent)
    except OSError as error:
        raise LedgerError(f"{target}: cannot be written: {reason_of(error)}") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


@contextlib.contextmanager
def new_file(target: Path) -> Iterator[BinaryIO]:
    """Yield a file to write to; it gets its name in one step at the end.

    Raises:
        LedgerError: the path exists, or cannot be written.
    """
    check_absent(target)
    temporary = _beside(target)
    try:
        with temporary.open("x+b") as file:
            yield file
        sync_file(temporary)
        # Unlike a rename, a link never replaces a file.
        os.link(temporary, target)
        sync_directory(target.parent)
    except FileExistsError as error:
        raise LedgerError(_taken(target)) from error
    except OSError as error:
        raise LedgerError(f"{target}: cannot be written: {reason_of(error)}") from error
    finally:
        temporary.unlink(missing_ok=True)


def check_absent(target: Path) -> None:
    """Refuse a path that exists.

    Raises:
        LedgerError: it exists.
    """
    if os.path.lexists(target):
        raise LedgerError(_taken(target))


def _taken(target: Path) -> str:
    return f"{target}: already exists; an export does not replace files"


def _beside(target: Path) -> Path:
    return target.with_name(f".{target.name[:80]}.{os.urandom(4).hex()}.tmp")


def _sync_below(directory: Path) -> None:
    for folder, _, names in os.walk(directory):
        for name in names:
            sync_file(Path(folder, name))
        sync_directory(folder)


NAME = "losses.jsonl"
"""Name of the loss report in a directory; next to a single file it is a suffix."""


class TrialLoss(msgspec.Struct, frozen=True, omit_defaults=True):
    """One field of one trial that was not kept."""

    trial: str
    """EXPERIMENT/TRIAL."""
    path: str
    """Its path, as in `record.task.task_revision`."""
    value_summary: str
    """The beginning of the value, as JSON."""
    why: str
    """A sentence for a person."""
    part: str = ""
    """The step of a multi-step trial."""


def report_path(target: Path) -> Path:
    """Path of the loss report of a single file."""
    return target.with_name(f"{target.name}.{NAME}")


class Report:
    """Counts and losses of an export so far."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.trials = 0
        """Exported trials."""
        self.losses = 0
        """Fields that were not kept."""
        self.left_out: list[str] = []
        """One sentence for each trial, or part of one, that was left out."""

    def lose(self, trial: str, losses: Iterable[Loss], part: str = "") -> None:
        """Record what was lost of a trial."""
        for loss in losses:
            line = TrialLoss(trial, loss.path, loss.value_summary, loss.why, part)
            self._file.write(msgspec.json.encode(line) + b"\n")
            self.losses += 1

    def leave_out(self, sentence: str) -> None:
        """Record that something is not in the export."""
        self.left_out.append(sentence)

    def exported(self, target: Path, report: Path) -> Exported:
        """The result of the export."""
        return Exported(
            output=str(target),
            trials=self.trials,
            refused=self.left_out,
            losses=self.losses,
            loss_report=str(report),
        )


_NOT_EXPORTED = frozenset({"at", "kind", "seq", "record"})


@dataclass(frozen=True, slots=True)
class SelectedTrial:
    """One trial to export."""

    row: TrialRow
    entry: TrialEntry
    record: TrialRecord
    """The record, as far as the first generation has fields for it."""
    traced: TracedTrial

    @property
    def name(self) -> str:
        """EXPERIMENT/TRIAL; both are valid parts of a path."""
        return self.row.name

    def document(self) -> Object:
        """Everything that is sealed; a loss report compares the export with it."""
        return render_entry(self.entry)


def render_entry(entry: TrialEntry) -> Object:
    """The stored record, and what is sealed next to it, as JSON."""
    said = {
        name: msgspec.to_builtins(value)
        for name in TrialEntry.__struct_fields__
        if name not in _NOT_EXPORTED and (value := getattr(entry, name))
    }
    return {"record": msgspec.json.decode(entry.record), **said}


@dataclass(frozen=True, slots=True)
class ReadTrace:
    """One trace of a trial as entries."""

    part: str
    """The step of a multi-step trial; "" for the trial itself."""
    entries: list[Entry]
    losses: list[Loss]
    """What the entries do not contain of the file."""


def read_trials(selection: Selection, report: Report) -> Iterator[SelectedTrial]:
    """Read the selected trials in order; withheld ones are left out and reported."""
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
        yield SelectedTrial(row, entry, record, trace_row(selection.ledger, row))
    selection.watch(len(selection.rows))
    check_some(report.trials, report.left_out)


def is_uncounted(trial: SelectedTrial, report: Report) -> bool:
    """Whether a trial does not count, which is reported: for formats that count all their trials.

    Such a format would otherwise have other numbers than boards and claims.
    """
    status = trial.row.status
    if status not in NOT_COUNTED:
        return False
    why = "another trial counts in its place"
    report.leave_out(f"{trial.name}: {SHOWN.get(status, status)}; {why}")
    return True


def list_withheld(ledger: LedgerReader) -> frozenset[str]:
    """Digests of all evidence that was withheld from a ledger."""
    return frozenset(sha256 for each in list_withholdings(ledger) for sha256 in each.artifacts)


def report_withheld(trial: SelectedTrial, withheld: frozenset[str], report: Report) -> None:
    """Report a trial's evidence that was withheld.

    Raises:
        MissingArtifactError: evidence is missing and was not withheld.
    """
    there = set(trial.traced.files)
    for file in trial.entry.evidence:
        if file.path in there:
            continue
        if file.sha256 not in withheld:
            raise MissingArtifactError(
                f"{trial.name}: evidence {file.path!r}: artifact {file.sha256} is missing"
            )
        report.leave_out(f"{trial.name}: evidence {file.path!r} is withheld")


def read_traces(trial: SelectedTrial) -> list[ReadTrace]:
    """Read the traces of a trial, of any kind, steps in order."""
    with opened_traces(trial.traced) as found:
        return [read_trace(each) for each in found]


def read_trace(found: FoundTrace) -> ReadTrace:
    """Read an open trace as entries."""
    loaded = load_entries(found.path, found.kind, salvage=True)
    passed_over = [Loss(found.part or "trace", "", each) for each in found.passed_over]
    return ReadTrace(found.part, list(loaded.entries), [*passed_over, *loaded.losses])


@contextlib.contextmanager
def writable(trial: SelectedTrial, report: Report) -> Iterator[None]:
    """Leave a trial out if its values cannot be encoded as JSON, instead of ending the export."""
    try:
        yield
    except (RecursionError, UnicodeEncodeError) as error:
        what = "nested too deeply" if isinstance(error, RecursionError) else "a lone surrogate"
        report.leave_out(f"{trial.name}: cannot be written as JSON: {what} in its trace")
