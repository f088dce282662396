"""Sealed trials as aec-bench keeps them: one file a record, evidence in a directory beside it.

    EXPERIMENT/TRIAL.json
    EXPERIMENT/_artifacts/TRIAL/…

A record that came from a tree of the second generation goes back with its own two files. What
aec-bench could not read back, such as a reward that is null, is left out and told.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from proctor.errors import LedgerError
from proctor.files import read_small, write_new
from proctor.ledger.entry import EvidenceFile, TrialEntry
from proctor.ledger.head import read_head_of
from proctor.ledger.keeping import check_evidence_path
from proctor.ledger.ledger import Ledger
from proctor.ledger.withhold import find_withheld
from proctor.record.foreign import find_foreign
from proctor.record.ids import check_id
from proctor.record.read import parse_record
from proctor.record.write import render_record

ORIGINAL = "_generation2"
"""Where the evidence of a record of the second generation has its two files."""


@dataclass(slots=True)
class Tree:
    """What was written of a tree, and what was not."""

    written: int = 0
    """Records that are there now."""
    refused: list[str] = field(default_factory=list)
    """A sentence for every record that aec-bench could not hold."""


def write_tree(ledger: Ledger, places: Iterable[int], target: Path) -> Tree:
    """Write the trials at these places of the log below a directory; nothing there is replaced.

    Raises:
        LedgerError: a file is there with other bytes, or cannot be written.
        DamageError: the ledger does not hold what it should.
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


def _write_trial(ledger: Ledger, entry: TrialEntry, target: Path, tree: Tree) -> None:
    head = read_head_of(entry)
    # The one place where they become a path.
    check_id(head.trial_id, "trial_id")
    check_id(head.experiment_id, "experiment_id")
    experiment = target / head.experiment_id
    original = {file.path: file for file in entry.evidence if file.path.startswith(f"{ORIGINAL}/")}
    loaded = parse_record(bytes(entry.record), head.trial_id, salvage=True)
    problems = [note.message for note in find_foreign(loaded.record) if note.is_problem]
    name = f"{head.experiment_id}/{head.trial_id}"
    if problems and not original:
        tree.refused.append(f"{name}: {'; '.join(problems)}")
        return
    gone = [file.path for file in find_withheld(ledger, entry.evidence)]
    tree.refused += [f"{name}: evidence {path!r} is withheld" for path in gone]
    if original and not original.keys().isdisjoint(gone):
        return
    artifacts = experiment / "_artifacts" / head.trial_id
    for file in entry.evidence:
        check_evidence_path(file.path, f"{ledger.directory}: entry {entry.seq}")
    for file in entry.evidence:
        if file.path not in original and file.path not in gone:
            _write(artifacts / file.path, _load(ledger, file))
    for path, file in original.items():
        _write(experiment / path.removeprefix(f"{ORIGINAL}/"), _load(ledger, file))
    if not original:
        _write(experiment / f"{head.trial_id}.json", render_record(loaded.record, loaded.kept))
    tree.written += 1


def _load(ledger: Ledger, file: EvidenceFile) -> bytes:
    return ledger.artifacts.load(file.sha256, file.size)


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        write_new(path, data)
    except FileExistsError:
        if path.is_symlink() or not path.is_file() or read_small(str(path)) != data:
            raise LedgerError(
                f"{path}: there is something else already; an export replaces nothing"
            ) from None
