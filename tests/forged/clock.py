"""Times of a trial, moved: in its result and its record, or in its trace."""

import re
from datetime import datetime, timedelta
from pathlib import Path

_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}\.[0-9]{3,6}")


def shift_times(trial: Path, by: timedelta) -> None:
    """Every time in what a trial says of itself; its trace is left."""
    for name in ("result.json", "record.json"):
        _shift(trial / name, by)


def shift_trace(trial: Path, by: timedelta) -> None:
    """Every time in a trial's trace."""
    _shift(trial / "agent" / "trajectory.jsonl", by)


def _shift(path: Path, by: timedelta) -> None:
    path.write_text(_TIME.sub(lambda found: _moved(found[0], by), path.read_text()))


def _moved(text: str, by: timedelta) -> str:
    digits = len(text.rpartition(".")[2])
    moved = datetime.fromisoformat(text) + by
    precision = {3: "milliseconds", 6: "microseconds"}[digits]
    return moved.isoformat(timespec=precision)
