"""What agents did, from their traces: summaries of trials, and of many trials together.

What is counted is decided in `traces`; trials without a trace are left out of means over traces.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from proctor.exchange.traced_files import find_in_files
from proctor.ledger.query import find_trial
from proctor.ledger.reader import LedgerReader
from proctor.ledger.row import TrialRow
from proctor.ledger.traced_trials import trace_row
from proctor.traces.label_rules import RULES_VERSION
from proctor.traces.parallel import count_processors, map_paths
from proctor.traces.traced_trial import TracedTrial
from proctor.traces.trial_summary import (
    ExperimentSummary,
    TrialSummary,
    summarise_experiment,
    summarise_traced,
)

CLASSIFIED_BY: Final = f"rules {RULES_VERSION}"
"""The classifier of the labels."""
# Trials from which on starting several processes pays off.
_MANY: Final = 64

type Watch = Callable[[str, int, int], None]
"""Called with what is done, the amount done, and the total."""


@dataclass(frozen=True, slots=True)
class Behaviour:
    """Summaries of trials."""

    trials: dict[str, TrialSummary]
    """By EXPERIMENT/TRIAL."""

    def together(self, rows: Sequence[TrialRow]) -> ExperimentSummary:
        """Summarise some of the trials together."""
        return summarise_experiment([self.trials[each.name] for each in rows])


def summarise_trials(
    rows: Sequence[TrialRow],
    ledger: LedgerReader | None,
    watch: Watch,
    *,
    is_alone: bool = False,
) -> Behaviour:
    """Read and summarise the traces of trials; `is_alone`: in this process only."""
    found: dict[str, TrialSummary] = {}
    for row, summary in zip(rows, _summaries(rows, ledger, is_alone=is_alone), strict=True):
        found[row.name] = summary
        watch("traces read", len(found), len(rows))
    return Behaviour(found)


def _summaries(
    rows: Sequence[TrialRow], ledger: LedgerReader | None, *, is_alone: bool
) -> Iterator[TrialSummary]:
    places = [each.place for each in rows if each.place is not None]
    if len(places) == len(rows):
        is_worth_it = len(places) >= _MANY and not is_alone
        processes = count_processors() if is_worth_it else 1
        yield from map_paths(summarise_place, places, processes)
        return
    for row in rows:
        yield summarise_traced(trace_trial(row, ledger), labelled=True)


def summarise_place(place: str) -> TrialSummary:
    """Summarise the trial in a directory."""
    return summarise_traced(_trace_place(place), labelled=True)


def _trace_place(place: str) -> TracedTrial:
    # Kept attempts come before the trial itself.
    *_, trial = find_in_files(place)
    return trial


def trace_trial(row: TrialRow, ledger: LedgerReader | None) -> TracedTrial:
    """A trial with its trace files, from its directory or the ledger."""
    if ledger is None or row.place is not None:
        return _trace_place(row.place or "")
    return trace_row(ledger, find_trial(ledger, row.name))
