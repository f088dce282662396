"""Sealed trials as a tree of records; see `proctor.ledger.exchange.aec_tree` for its shape."""

from pathlib import Path

from proctor.exporters.chosen import Chosen, Exported, check_some
from proctor.ledger.exchange.aec_tree import write_tree


def export_trials(chosen: Chosen, target: Path) -> Exported:
    """Write the trials below a directory; nothing there is replaced.

    Raises:
        InputError: none of them can be exported so.
        LedgerError: a file is there with other bytes, or cannot be written.
        DamageError: the ledger does not hold what it should.
    """
    tree = write_tree(chosen.ledger, [row.seq for row in chosen.rows], target)
    check_some(tree.written, tree.refused)
    return Exported(output=str(target), trials=tree.written, refused=tree.refused)
