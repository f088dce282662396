"""Exports sealed trials in the layout of aec-bench: one file for each record, evidence beside it.

    EXPERIMENT/TRIAL.json
    EXPERIMENT/_artifacts/TRIAL/…

A record that was imported from a second-generation tree is exported as its two original files.
Records that aec-bench cannot read, such as those with a null reward, are left out and reported.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from proctor.digest import sha256_hex
from proctor.errors import LedgerError
from proctor.ledger.entry import TrialEntry
from proctor.ledger.exchange.copying import read_checked_row, write_below
from proctor.ledger.keeping import check_evidence_path
from proctor.ledger.reader import LedgerReader
from proctor.ledger.withhold import list_withheld
from proctor.record.read import parse_record, render_record
from proctor.record.rules import find_foreign

ORIGINAL = "_generation2"
"""Where the evidence has the two files of a second-generation record."""


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
        data = render_record(loaded.record, loaded.kept)
        write_below(target, f"{name}.json", sha256_hex(data), lambda file: file.write(data))
    tree.written += 1
