"""What the model calls of trials without a result have cost so far.

Read from the trace that the model gateway writes, each line once: a file is read on from where the
last reading ended. Trials whose agent uses no gateway have no such trace, and no cost before they
end.
"""

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from proctor.contained import list_below, open_below
from proctor.traces.entry import MODEL_TRACE

# Most bytes of a file that one reading takes; the next one goes on.
_AT_ONCE = 1 << 23


class _Metrics(msgspec.Struct):
    cost_usd: float | None = None


class _Carried(msgspec.Struct):
    metrics: _Metrics | None = None


class _Metadata(msgspec.Struct):
    atif: _Carried | None = None


class _Line(msgspec.Struct):
    """The part of a trace's entry that counts here; see HeadCarry."""

    metadata: _Metadata | None = None


_DECODE = msgspec.json.Decoder(_Line).decode


@dataclass(slots=True)
class _Reading:
    """A file as far as it was read."""

    n_bytes: int = 0
    usd: float | None = None
    """Sum of the known costs; None if there are none."""


class LiveCosts:
    """The costs of a job's trials without a result."""

    def __init__(self) -> None:
        self._readings: dict[tuple[str, int], _Reading] = {}
        """By trial and inode: the file of a step is moved when the step ends."""

    def find(self, trials: Sequence[str]) -> dict[str, float]:
        """Return the known costs so far, by the trials' directories; forgets all other trials."""
        running = set(trials)
        self._readings = {key: kept for key, kept in self._readings.items() if key[0] in running}
        found = {trial: self._sum(trial) for trial in trials}
        return {trial: usd for trial, usd in found.items() if usd is not None}

    def _sum(self, trial: str) -> float | None:
        places = ["agent"]
        with contextlib.suppress(OSError):
            places += [f"steps/{name}/agent" for name in list_below(trial, "steps")]
        found = [self._read(trial, f"{place}/{MODEL_TRACE}") for place in places]
        known = [usd for usd in found if usd is not None]
        return sum(known) if known else None

    def _read(self, trial: str, path: str) -> float | None:
        with contextlib.suppress(OSError), open_below(trial, path) as file:
            facts = os.fstat(file.fileno())
            key = trial, facts.st_ino
            reading = self._readings.setdefault(key, _Reading())
            if facts.st_size < reading.n_bytes:
                reading = self._readings[key] = _Reading()
            if facts.st_size > reading.n_bytes:
                file.seek(reading.n_bytes)
                _add(reading, file.read(_AT_ONCE))
            return reading.usd
        return None


def _add(reading: _Reading, data: bytes) -> None:
    end = data.rfind(b"\n") + 1
    if not end and len(data) == _AT_ONCE:
        # Part of one very long line, of which nothing is known.
        end = len(data)
    reading.n_bytes += end
    for line in data[:end].splitlines():
        if (usd := _find_cost(line)) is not None:
            reading.usd = (reading.usd or 0.0) + usd


def _find_cost(line: bytes) -> float | None:
    with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        metadata = _DECODE(line).metadata
        carried = metadata.atif if metadata else None
        if carried is not None and carried.metrics is not None:
            return carried.metrics.cost_usd
    return None
