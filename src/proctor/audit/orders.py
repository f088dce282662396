"""Could another order of the trials explain a published number?

No file records the order in which harbor added trials up, and where a job was resumed or retried,
or a task has several attempts, it cannot be told for certain. Sums of odd floats then may differ
in their last bits, while sums of zeros and ones never do. So numbers are computed again in other
orders: what lies among the results is merely so, what does not was edited.
"""

import math
import random
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from proctor.audit.scoring import Scoring, score_jobs
from proctor.harbor.job import Job
from proctor.harbor.render import render_json
from proctor.harbor.trial import FoundTrial

_SHUFFLES = 40
_ROOM = 4.0
"""How far beyond the orders that were tried another may lie, in widths of what they gave."""


class Orders:
    """What the trials of a job come to when they are added up in other orders."""

    def __init__(self, scoring: Scoring) -> None:
        self.scoring = scoring
        self._others: list[Scoring] | None = None

    @property
    def open(self) -> bool:
        """Whether the order that was taken may not be the one that harbor took."""
        (job,) = self.scoring.jobs
        retried = job.published is not None and job.published.count("n_retries") > 0
        return self.scoring.live or retried or not job.ordered.certain

    def others(self) -> list[Scoring]:
        """The job scored in other orders; the same ones every time."""
        if self._others is None:
            (job,) = self.scoring.jobs
            profile = self.scoring.profile
            self._others = [score_jobs([other], profile, add_up=False) for other in _reorder(job)]
        return self._others


def _reorder(job: Job) -> Iterator[Job]:
    trials = list(job.trials)
    yield _ordered(job, trials[::-1])
    shuffle = random.Random(len(trials)).shuffle  # noqa: S311 - a seed, so that audits repeat
    for _ in range(_SHUFFLES):
        shuffle(trials)
        yield _ordered(job, list(trials))


def _ordered(job: Job, trials: list[FoundTrial]) -> Job:
    return replace(job, ordered=replace(job.ordered, trials=trials))


def lies_among(found: object, others: Sequence[object]) -> bool:
    """Whether a value is one of the others, or about as close to them as they to each other."""
    if not others:
        return False
    if render_json(found) in {render_json(other) for other in others}:
        return True
    if isinstance(found, dict):
        alike = [item for item in others if isinstance(item, dict) and item.keys() == found.keys()]
        return len(alike) == len(others) and all(
            lies_among(value, [item[key] for item in alike]) for key, value in found.items()
        )
    values = [value for value in others if isinstance(value, float)]
    if not isinstance(found, float) or len(values) < len(others):
        return False
    low, high = min(values), max(values)
    room = _ROOM * (high - low)
    return 0 < room < math.inf and low - room <= found <= high + room
