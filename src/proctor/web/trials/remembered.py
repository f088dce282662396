"""Caches of values that are slow to compute from a trial, valid while its files are unchanged.

Counting a long trace takes a second; reopening the page does not repeat it. Only the most recently
used values are kept.
"""

from collections.abc import Hashable

from proctor.ledger.sealing import Submission
from proctor.traces.trial_summary import TrialSummary
from proctor.web.lru import LruCache
from proctor.web.trials.evidence import KnownFile

_MOST = 64


SUMMARIES = LruCache[TrialSummary](_MOST)
SUBMISSIONS = LruCache[Submission](_MOST)


def key_of(where: str, files: tuple[KnownFile, ...]) -> Hashable:
    """A key that changes whenever one of a trial's files does."""
    return where, tuple(
        (file.path, file.size, file.changed_ns, file.sha256, file.state) for file in files
    )
