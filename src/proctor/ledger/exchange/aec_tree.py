"""Exports sealed trials in the layout of aec-bench: one file for each record, evidence beside it.

    EXPERIMENT/TRIAL.json
    EXPERIMENT/_artifacts/TRIAL/…
    jobs/EXPERIMENT/TRIAL/…          traces

aec-bench looks for a record's trace below the directory that it runs in, or takes the record's path
from the part `jobs` on; it reads trajectories and conversations, but not ATIF. So the record of a
trial that was not imported from aec-bench names a copy of its trace under `jobs`, converted if it
is ATIF. `find_own_path` gives the name in the trial, with which the record is imported again.

A record that was imported from a second-generation tree is exported as its two original files.
Records that aec-bench cannot read, such as those with a null reward, are left out and reported.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from proctor.digest import sha256_hex
from proctor.errors import LedgerError
from proctor.ledger.artifacts import unpacked
from proctor.ledger.entry import TrialEntry
from proctor.ledger.exchange.copying import read_checked_row, write_below
from proctor.ledger.keeping import check_evidence_path
from proctor.ledger.reader import LedgerReader
from proctor.ledger.withhold import list_withheld
from proctor.record.model import TrialRecord
from proctor.record.read import parse_record, render_record
from proctor.record.rules import find_foreign
from proctor.traces.convert import load_entries, render_as_trajectory
from proctor.traces.entry import OUTPUT_FILE, TraceKind

ORIGINAL = "_generation2"
"""Where the evidence has the two files of a second-generation record."""
SOURCE = "aec-bench"
"""The kind of source of records that were imported from such a tree."""
_CONVERTED = ".jsonl"
"""Added to the name of a file that was converted."""


@dataclass(slots=True)
class Tree:
    """The result of an export."""

    written: int = 0
    """Records that are in the tree now."""
    refused: list[str] = field(default_factory=list)
    """A message for every record that was left out."""


def write_tree(ledger: LedgerReader, places: Iterable[int], target: Path) -> Tree:
    """Write the trials at these positions below a directory; existing files are not replaced.

    Raises:
        LedgerError: a file exists with other bytes, or cannot be written.
        DamageError: the ledger is damaged.
    """
    tree = Tree()
    for seq in places:
        entry = ledger.entry(seq)
        if not isinstance(entry, TrialEntry):
            tree.refused.append(f"entry {seq}: its bytes were withheld")
            continue
        try:
            _write_trial(ledger, entry, target, tree)
        except OSError as error:
            raise LedgerError(f"{target}: cannot be written: {error}") from error
    return tree


def _write_trial(ledger: LedgerReader, entry: TrialEntry, target: Path, tree: Tree) -> None:
    row = read_checked_row(entry, ledger.where)
    original = {file.path: file for file in entry.evidence if file.path.startswith(f"{ORIGINAL}/")}
    loaded = parse_record(bytes(entry.record), row.trial_id, salvage=True)
    problems = [note.message for note in find_foreign(loaded.record) if note.is_problem]
    name = row.name
    if problems and not original:
        tree.refused.append(f"{name}: {'; '.join(problems)}")
        return
    gone = [file.path for file in list_withheld(ledger, entry.evidence)]
    tree.refused += [f"{name}: evidence {path!r} is withheld" for path in gone]
    if original and not original.keys().isdisjoint(gone):
        return
    for file in entry.evidence:
        check_evidence_path(file.path, f"{ledger.where}: entry {entry.seq}")
    for file in entry.evidence:
        if file.path in gone:
            continue
        place = f"_artifacts/{row.trial_id}/{file.path}"
        if file.path in original:
            place = file.path.removeprefix(f"{ORIGINAL}/")
        copy = partial(ledger.artifacts.copy_sealed, file.sha256, file.size)
        write_below(target, f"{row.experiment_id}/{place}", file.sha256, copy)
    if not original:
        record = _with_traces(ledger, entry, loaded.record, target, gone)
        data = render_record(record, loaded.kept)
        write_below(target, f"{name}.json", sha256_hex(data), lambda file: file.write(data))
    tree.written += 1


def _with_traces(
    ledger: LedgerReader,
    entry: TrialEntry,
    record: TrialRecord,
    target: Path,
    gone: Collection[str],
) -> TrialRecord:
    """Copy the traces that a record names to where aec-bench finds them; the record names these."""
    if entry.source is not None and entry.source.kind == SOURCE:
        return record
    files = {file.path: file for file in entry.evidence if file.path not in gone}
    outputs, place = record.outputs, _place_of(record)
    named: dict[str, str] = {}
    if (file := files.get(outputs.conversation_path or "")) is not None:
        named["conversation_path"] = place + file.path
        copy = partial(ledger.artifacts.copy_sealed, file.sha256, file.size)
        write_below(target, place + file.path, file.sha256, copy)
    file = files.get(outputs.trajectory_path or "")
    # What a command printed is not a trajectory: aec-bench would count its lines as messages.
    if file is not None and not file.path.endswith(OUTPUT_FILE):
        is_lines = file.path.endswith(".jsonl")
        path = place + file.path + ("" if is_lines else _CONVERTED)
        kind = TraceKind.TRAJECTORY if is_lines else TraceKind.ATIF
        with unpacked(ledger.artifacts, file) as unpacked_path:
            data, _ = render_as_trajectory(load_entries(unpacked_path, kind, salvage=True))
        write_below(target, path, sha256_hex(data), lambda made: made.write(data))
        named["trajectory_path"] = path
    return record.model_copy(update={"outputs": outputs.model_copy(update=named)})


def _place_of(record: TrialRecord) -> str:
    return f"jobs/{record.experiment_id}/{record.trial_id}/"


def find_own_path(record: TrialRecord, path: str | None, files: Collection[str]) -> str | None:
    """The path in the trial of a trace that an exported record names; other paths as they are."""
    own = (path or "").removeprefix(_place_of(record))
    if path is None or own == path:
        return path
    return next((each for each in (own, own.removesuffix(_CONVERTED)) if each in files), path)
