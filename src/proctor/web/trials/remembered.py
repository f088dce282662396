"""Cache of values that are slow to compute from a trial, valid while its files are unchanged.

Counting a long trace takes a second; reopening the page does not repeat it. Only the most recently
used values are kept.
"""

import threading
from collections.abc import Callable, Hashable

from proctor.ledger.sealing import Submission
from proctor.traces.trial_summary import TrialSummary
from proctor.web.trials.evidence import KnownFile

_MOST = 64


class ValueCache[Value]:
    """A small LRU cache."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: dict[Hashable, Value] = {}

    def find(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """Return the cached value, or make it; exceptions of `make` are raised."""
        with self._lock:
            if key in self._values:
                self._values[key] = value = self._values.pop(key)
                return value
        # Outside the lock, so that other requests need not wait.
        value = make()
        with self._lock:
            self._values[key] = value
            while len(self._values) > _MOST:
                del self._values[next(iter(self._values))]
        return value


SUMMARIES: ValueCache[TrialSummary] = ValueCache()
SUBMISSIONS: ValueCache[Submission] = ValueCache()


def key_of(where: str, files: tuple[KnownFile, ...]) -> Hashable:
    """A key that changes whenever one of a trial's files does."""
    return where, tuple(
        (file.path, file.size, file.changed_ns, file.sha256, file.state) for file in files
    )
