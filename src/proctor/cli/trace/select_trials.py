"""The trials that a command about traces selects: by path, by name, or by filter."""

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from proctor.cli.ledger.options import choose_directory, open_ledger
from proctor.errors import InputError
from proctor.exchange.traced_files import find_in_files
from proctor.ledger.counting import NOT_COUNTED
from proctor.ledger.log import is_ledger
from proctor.ledger.traced_trials import trace_named, trace_sealed
from proctor.ledger.trial_index import TrialFilter
from proctor.report.wording import render_counts
from proctor.traces.traced_trial import TracedTrial


@contextmanager
def traced_trials(
    things: tuple[str, ...], directory: str | None, wanted: TrialFilter, left_out: Counter[str]
) -> Iterator[Iterator[TracedTrial]]:
    """The selected trials, one after the other; the ledger stays open while they are read.

    Trials of a job, an experiment or a filter that do not count are only counted in `left_out`, by
    status; a trial that is named itself is never left out.

    Raises:
        InputError: a thing is neither; there is no ledger where one is needed.
    """
    in_files = [thing for thing in things if directory is None and os.path.lexists(thing)]
    if things and len(in_files) == len(things):
        if wanted != TrialFilter():
            raise InputError(f"{things[0]}: a path; filters apply only to sealed trials")
        found = (trial for thing in things for trial in find_in_files(thing))
        yield leave_out(found, left_out)
        return
    place = choose_directory(directory)
    if things and directory is None and not is_ledger(place):
        missing = next(thing for thing in things if not os.path.lexists(thing))
        raise InputError(
            f"{missing}: there is no such file, and no ledger at {place} that could contain it; "
            "--ledger or PROCTOR_LEDGER names one"
        )
    with open_ledger(directory) as ledger:
        if not things:
            yield leave_out(trace_sealed(ledger, wanted), left_out)
            return
        if wanted != TrialFilter():
            raise InputError(f"{things[0]}: a name; filters apply only if nothing is named")
        found = (
            trial
            for thing in things
            for trial in (find_in_files(thing) if thing in in_files else trace_named(ledger, thing))
        )
        yield leave_out(found, left_out)


def leave_out(trials: Iterable[TracedTrial], left_out: Counter[str]) -> Iterator[TracedTrial]:
    """The trials that count; others are counted by status."""
    for trial in trials:
        if trial.status in NOT_COUNTED:
            left_out[trial.status] += 1
        else:
            yield trial


def render_left_out(left_out: Mapping[str, int]) -> str:
    """A sentence about the trials that do not count, as in reports."""
    return f"not counted: {render_counts(left_out)}"
