"""The trials that a command about traces selects: by path, by name, or by filter."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from proctor.cli.ledger.options import choose_directory, open_ledger
from proctor.errors import InputError
from proctor.exchange.traced_files import find_in_files
from proctor.ledger.log import is_ledger
from proctor.ledger.traced_trials import trace_named, trace_sealed
from proctor.ledger.trial_index import TrialFilter
from proctor.traces.traced_trial import TracedTrial


@contextmanager
def traced_trials(
    things: tuple[str, ...], directory: str | None, wanted: TrialFilter
) -> Iterator[Iterator[TracedTrial]]:
    """The selected trials, one after the other; the ledger stays open while they are read.

    Raises:
        InputError: a thing is neither; there is no ledger where one is needed.
    """
    in_files = [thing for thing in things if directory is None and os.path.lexists(thing)]
    if things and len(in_files) == len(things):
        if wanted != TrialFilter():
            raise InputError(f"{things[0]}: a path; filters apply only to sealed trials")
        yield (trial for thing in things for trial in find_in_files(thing))
        return
    _check_ledger(things, directory)
    with open_ledger(directory) as ledger:
        if not things:
            yield trace_sealed(ledger, wanted)
            return
        if wanted != TrialFilter():
            raise InputError(f"{things[0]}: a name; filters apply only if nothing is named")
        yield (
            trial
            for thing in things
            for trial in (find_in_files(thing) if thing in in_files else trace_named(ledger, thing))
        )


def _check_ledger(things: tuple[str, ...], directory: str | None) -> None:
    """Check that a ledger exists if a name is not a path."""
    place = choose_directory(directory)
    if things and directory is None and not is_ledger(place):
        missing = next(thing for thing in things if not os.path.lexists(thing))
        raise InputError(
            f"{missing}: there is no such file, and no ledger at {place} that could contain it; "
            "--ledger or PROCTOR_LEDGER names one"
        )
