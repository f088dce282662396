"""Exports that keep every file: a bundle, harbor's job directories, aec-bench's records.

`proctor.ledger.exchange` describes the contents of each.
"""

from pathlib import Path

from proctor.exchange.exporting import Exported, Selection, check_some
from proctor.ledger.entry import EvidenceFile, TrialEntry
from proctor.ledger.exchange.aec_tree import write_tree
from proctor.ledger.exchange.bundle import write_bundle
from proctor.ledger.exchange.harbor_jobs import write_jobs
from proctor.ledger.trial_sealing import group_reruns
from proctor.ledger.withhold import list_withheld


def export_bundle(selection: Selection, target: Path) -> Exported:
    """Write a bundle of everything, or of the selected trials and all other entries."""
    places = None if selection.is_all else {row.seq for row in selection.rows}
    _check_evidence(selection)
    made = write_bundle(selection.ledger, target, places)
    return Exported(
        output=str(target),
        trials=made.trials,
        entries=made.size,
        left_out=made.left_out,
        evidence=made.artifacts,
    )


def _check_evidence(selection: Selection) -> None:
    """Refuse to export if evidence is lost: a reader of the bundle would take it as withheld."""
    named: dict[str, EvidenceFile] = {}
    for row in selection.rows:
        entry = selection.ledger.entry(row.seq)
        if isinstance(entry, TrialEntry):
            named |= {file.sha256: file for file in entry.evidence}
    list_withheld(selection.ledger, named.values())


def export_jobs(selection: Selection, target: Path) -> Exported:
    """Write the selected trials as harbor jobs below a directory; never replaces files."""
    rows = {row.name: row for row in selection.rows}
    reruns = group_reruns({name: row.status for name, row in rows.items()})
    names = {rows[run].seq: rows[base].trial_id for base, runs in reruns.items() for run in runs}
    made = write_jobs(selection.ledger, [row.seq for row in selection.rows], target, names)
    check_some(made.written, made.refused)
    return Exported(output=str(target), trials=made.written, jobs=made.jobs, refused=made.refused)


def export_records(selection: Selection, target: Path) -> Exported:
    """Write the selected trials as aec-bench records below a directory; never replaces files."""
    tree = write_tree(selection.ledger, [row.seq for row in selection.rows], target)
    check_some(tree.written, tree.refused)
    return Exported(output=str(target), trials=tree.written, refused=tree.refused)
