"""Sealed trials as harbor's jobs; see `proctor.ledger.exchange.harbor_jobs` for what comes back."""

from pathlib import Path

from proctor.exporters.chosen import Chosen, Exported, check_some
from proctor.ledger.exchange.harbor_jobs import write_jobs


def export_trials(chosen: Chosen, target: Path) -> Exported:
    """Write the jobs below a directory; nothing there is replaced.

    Raises:
        InputError: none of them can be exported so.
        LedgerError: something is at that path, or it cannot be written.
        DamageError: the ledger does not hold what it should.
    """
    made = write_jobs(chosen.ledger, [row.seq for row in chosen.rows], target)
    check_some(made.written, made.refused)
    return Exported(output=str(target), trials=made.written, jobs=made.jobs, refused=made.refused)
