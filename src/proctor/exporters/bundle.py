"""Sealed trials as a bundle; see `proctor.ledger.exchange.bundle` for what is in one."""

from pathlib import Path

from proctor.exporters.chosen import Chosen, Exported
from proctor.ledger.entry import EvidenceFile, TrialEntry
from proctor.ledger.exchange.bundle import write_bundle
from proctor.ledger.withhold import find_withheld


def export_trials(chosen: Chosen, target: Path) -> Exported:
    """Write a bundle: of everything, or of the chosen trials and what is no trial.

    Raises:
        LedgerError: something is at that path, or it cannot be written.
        DamageError: the ledger does not hold what it should.
    """
    places = None if chosen.is_all else {row.seq for row in chosen.rows}
    _check_evidence(chosen)
    made = write_bundle(chosen.ledger, target, places)
    return Exported(
        output=str(target),
        trials=made.trials,
        entries=made.size,
        left_out=made.left_out,
        evidence=made.artifacts,
    )


def _check_evidence(chosen: Chosen) -> None:
    """Refuse to pass on as withheld, which a bundle's reader would take it for, what is lost."""
    named: dict[str, EvidenceFile] = {}
    for row in chosen.rows:
        entry = chosen.ledger.entry(row.seq)
        if isinstance(entry, TrialEntry):
            named |= {file.sha256: file for file in entry.evidence}
    find_withheld(chosen.ledger, named.values())
