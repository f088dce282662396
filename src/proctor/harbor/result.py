"""A job's result.json, whole, with harbor's exact bytes. Nothing here writes it."""

from datetime import datetime

import msgspec

from proctor.harbor.render import render_json, render_time
from proctor.harbor.stats import JobStats, stats_document

_INDENT = 4


class JobResult(msgspec.Struct, frozen=True):
    """What a job says of itself, in harbor's field order."""

    id: str
    """The job's UUID."""
    started_at: datetime
    """Local time, without a zone."""
    updated_at: datetime | None
    """UTC while the job runs; local time without a zone at its start and end."""
    finished_at: datetime | None
    """Local time, without a zone; None until the job ran to its end."""
    n_total_trials: int
    """Trials that were planned."""
    stats: JobStats


def render_result(result: JobResult) -> str:
    """The text of result.json; it has no final newline."""
    document = {
        "id": result.id,
        "started_at": render_time(result.started_at),
        "updated_at": render_time(result.updated_at) if result.updated_at else None,
        "finished_at": render_time(result.finished_at) if result.finished_at else None,
        "n_total_trials": result.n_total_trials,
        "stats": stats_document(result.stats),
    }
    return render_json(document, _INDENT)
