"""How agents went about it, from their traces: each trial summed up, and many as one.

What is counted is decided in `traces`; a trial without a trace is in no mean of a trace.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from proctor.exchange.traced_files import find_in_files
from proctor.ledger.query import find_trial
from proctor.ledger.reader import LedgerReader
from proctor.ledger.row import TrialRow
from proctor.ledger.traced_trials import trace_row
from proctor.traces.experiment import ExperimentSummary, summarise_experiment
from proctor.traces.label_rules import RULES_VERSION
from proctor.traces.parallel import map_paths
from proctor.traces.traced_trial import TracedTrial
from proctor.traces.trial_summary import TrialSummary, summarise_traced

CLASSIFIED_BY: Final = f"rules {RULES_VERSION}"
"""What the labels come from."""
_MANY: Final = 64
"""Trials from which on more than one process is worth its start."""

type Watch = Callable[[str, int, int], None]
"""Told what is done, how much of it, and of how much."""


@dataclass(frozen=True, slots=True)
class Behaviour:
    """Trials by what they did."""

    trials: dict[str, TrialSummary]
    """By EXPERIMENT/TRIAL."""

    def together(self, attempts: Sequence[TrialRow]) -> ExperimentSummary:
        """Some of them as one."""
        return summarise_experiment([self.trials[each.name] for each in attempts])


def summarise_attempts(
    attempts: Sequence[TrialRow],
    ledger: LedgerReader | None,
    watch: Watch,
    *,
    is_alone: bool = False,
) -> Behaviour:
    """Every attempt's traces, read and summed up; by one process where other threads are.

    Raises:
        DamageError: the log does not give what its checkpoint says.
    """
    found: dict[str, TrialSummary] = {}
    for attempt, summary in zip(
        attempts, _summaries(attempts, ledger, is_alone=is_alone), strict=True
    ):
        found[attempt.name] = summary
        watch("traces read", len(found), len(attempts))
    return Behaviour(found)


def _summaries(
    attempts: Sequence[TrialRow], ledger: LedgerReader | None, *, is_alone: bool
) -> Iterator[TrialSummary]:
    places = [each.place for each in attempts if each.place is not None]
    if len(places) == len(attempts):
        is_worth_it = len(places) >= _MANY and not is_alone
        processes = len(os.sched_getaffinity(0)) if is_worth_it else 1
        yield from map_paths(summarise_place, places, processes)
        return
    for attempt in attempts:
        yield summarise_traced(trace_attempt(attempt, ledger), labelled=True)


def summarise_place(place: str) -> TrialSummary:
    """The trial in a directory, summed up."""
    return summarise_traced(next(iter(find_in_files(place))), labelled=True)


def trace_attempt(attempt: TrialRow, ledger: LedgerReader | None) -> TracedTrial:
    """An attempt with its files, wherever it lies.

    Raises:
        InputError: it is not there any more.
        DamageError: the ledger is damaged.
    """
    if ledger is None or attempt.place is not None:
        return next(iter(find_in_files(attempt.place or "")))
    return trace_row(ledger, find_trial(ledger, attempt.name))
