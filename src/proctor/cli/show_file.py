"""A trace, a record or a trial in files, for `proctor show`."""

import contextlib
import importlib
from pathlib import Path

from proctor.audit.things import TRACES, Thing, find_thing
from proctor.cli.options import check_apart, check_unused
from proctor.cli.show_trace import Source, describe_trace
from proctor.cli.showing import Showing, Wish, print_document, tell_if_empty
from proctor.errors import InputError
from proctor.sentence import count_of
from proctor.traces.entry import TraceKind

_NAMED = 3
_SIGNS = ("result.json", "config.json", "trial.log")


def show(thing: str, wish: Wish) -> None:
    """Print a trace, a record or a trial.

    Raises:
        InputError: it is none of them, or cannot be read.
        UsageError: an option means nothing for it.
    """
    kind = find_thing(thing)
    if kind in TRACES:
        check_unused("a trace", raw=wish.raw, part=wish.selection.part, changes=wish.changes)
        check_apart("full", "as_json")
        source = Source(TraceKind(str(kind)), thing, thing)
        if wish.as_json:
            view = wish.view()
            print_document(describe_trace(source, view))
            tell_if_empty(thing, view)
        else:
            Showing(thing, lambda: contextlib.nullcontext([source]), wish, is_lone=True).print()
    elif wish.changes and kind in (Thing.RECORD, Thing.TRIAL):
        wish.check_unchosen("--changes")
        check_apart("changes", "raw")
        check_apart("full", "as_json")
        importlib.import_module("proctor.cli.show_record").show_changes_of(thing, wish)
    elif kind is Thing.RECORD:
        wish.check_unused_for("a record")
        check_unused("a record", full=wish.full)
        check_apart("raw", "as_json")
        # Records and trials are slow to load, and a trace needs neither.
        importlib.import_module("proctor.cli.show_record").show_record(thing, wish)
    elif kind is Thing.TRIAL:
        check_unused("a trial that is not sealed", raw=wish.raw)
        check_apart("full", "as_json")
        importlib.import_module("proctor.cli.show_record").show_trial(thing, wish)
    else:
        expected = "expected a trace, a trial or a trial record"
        raise InputError(f"{thing}: a {kind}; {expected}{_inside(thing)}")


def _inside(directory: str) -> str:
    """Trials of a job, for somebody who named the job itself."""
    with contextlib.suppress(OSError):
        below = sorted(each for each in Path(directory).iterdir() if each.is_dir())
        trials = [each for each in below if any((each / name).is_file() for name in _SIGNS)]
        if trials:
            named = ", ".join(str(each) for each in trials[:_NAMED])
            return f", such as {named} ({count_of(len(trials), 'trial')} in all)"
    return ""
