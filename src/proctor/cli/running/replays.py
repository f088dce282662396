"""Counts and prints how the trials of a job were answered from a recording (--replay-model)."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from proctor.sentence import count_of
from proctor.trial.models import find_first_difference, load_replay_uses
from proctor.trial.paths import TrialPaths


class Replays(msgspec.Struct, frozen=True, kw_only=True):
    """How the requests of a job's agents were answered."""

    source: str
    """The trial or job with the recorded answers."""
    trials: int = 0
    """Trials that were answered from it."""
    asked: int = 0
    """Requests to models."""
    replayed: int = 0
    """Those answered from the recording."""
    differing: int = 0
    """Trials with a request that differs, or with recorded requests that were not repeated."""
    first: str | None = None
    """The first of these, and how it differs."""


def count_replays(source: Path, directory: Path, trials: Iterable[str]) -> Replays:
    """Count the answered requests of trials, from their results."""
    counts = Replays(source=str(source))
    for trial in trials:
        uses = load_replay_uses(str(TrialPaths(directory / trial).result_path))
        if not uses:
            continue
        difference = find_first_difference(uses)
        counts = Replays(
            source=counts.source,
            trials=counts.trials + 1,
            asked=counts.asked + sum(use.n_asked for use in uses),
            replayed=counts.replayed + sum(use.n_replayed for use in uses),
            differing=counts.differing + (difference is not None),
            first=counts.first or (difference and f"{trial}: {difference}"),
        )
    return counts


def render_replays(replays: Replays | None) -> Iterator[str]:
    """Render the counts, and the first difference."""
    if replays is None:
        return
    requests = f"{replays.replayed:,} of {count_of(replays.asked, 'request')}"
    yield f"model answers: {requests} answered from {replays.source}"
    if replays.first is not None:
        of = f"{replays.differing:,} of {count_of(replays.trials, 'trial')}"
        yield f"  {of} differ from the recording; first {replays.first}"
