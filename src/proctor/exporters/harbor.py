"""Sealed trials as harbor's jobs; see `proctor.ledger.exchange.harbor_jobs` for what comes back."""

from pathlib import Path

from proctor.exporters.chosen import Chosen, Exported, check_some
from proctor.ledger.exchange.harbor_jobs import write_jobs
from proctor.ledger.trial_sealing import find_reruns


def export_trials(chosen: Chosen, target: Path) -> Exported:
    """Write the jobs below a directory; nothing there is replaced.

    Raises:
        InputError: none of them can be exported so.
        LedgerError: something is at that path, or it cannot be written.
        DamageError: the ledger does not hold what it should.
    """
    rows = {f"{row.experiment_id}/{row.trial_id}": row for row in chosen.rows}
    reruns = find_reruns({name: row.status for name, row in rows.items()})
    names = {rows[run].seq: rows[base].trial_id for base, runs in reruns.items() for run in runs}
    made = write_jobs(chosen.ledger, [row.seq for row in chosen.rows], target, names)
    check_some(made.written, made.refused)
    return Exported(output=str(target), trials=made.written, jobs=made.jobs, refused=made.refused)
