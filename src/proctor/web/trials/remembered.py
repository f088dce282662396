"""What took long to find out of a trial, for as long as its files are the same.

A long trace takes a second to be counted; whoever comes back to the page does not wait for it
again. Few are kept: the ones that were asked for last.
"""

import threading
from collections.abc import Callable, Hashable

from proctor.ledger.sealing import Submission
from proctor.traces.trial_summary import TrialSummary
from proctor.web.trials.evidence import KnownFile

_MOST = 64


class Remembered[Value]:
    """Values by what they are of."""

    def __init__(self, most: int = _MOST) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._values: dict[Hashable, Value] = {}

    def find(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """The value, made where it is not known; whatever making it raises is raised."""
        with self._lock:
            if key in self._values:
                self._values[key] = value = self._values.pop(key)
                return value
        # Made outside of the lock: others need not wait for it.
        value = make()
        with self._lock:
            self._values[key] = value
            while len(self._values) > self._most:
                del self._values[next(iter(self._values))]
        return value


SUMMARIES: Remembered[TrialSummary] = Remembered()
SUBMISSIONS: Remembered[Submission] = Remembered()


def key_of(where: str, files: tuple[KnownFile, ...]) -> Hashable:
    """What differs where anything of a trial's files does."""
    return where, tuple(
        (file.path, file.size, file.changed_ns, file.sha256, file.state) for file in files
    )
