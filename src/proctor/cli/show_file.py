"""`proctor show` of a trace, a record or a trial in files."""

import contextlib
import importlib
from pathlib import Path

from proctor.audit.file_kind import TRACES, FileKind, find_file_kind
from proctor.cli.options import check_apart, check_unused
from proctor.cli.show_trace import Source, describe_trace
from proctor.cli.showing import Showing, ShowOptions, print_document, warn_if_empty
from proctor.errors import InputError
from proctor.sentence import count_of
from proctor.traces.entry import TraceKind

_NAMED = 3
_SIGNS = ("result.json", "config.json", "trial.log")


def show(thing: str, options: ShowOptions) -> None:
    """Print a trace, a record or a trial.

    Raises:
        InputError: it is none of them, or cannot be read.
        UsageError: an option means nothing for it.
    """
    kind = find_file_kind(thing)
    if kind in TRACES:
        check_unused(
            "a trace", raw=options.raw, part=options.selection.part, changes=options.changes
        )
        check_apart("full", "as_json")
        source = Source(TraceKind(str(kind)), thing, thing)
        if options.as_json:
            view = options.view()
            print_document(describe_trace(source, view))
            warn_if_empty(thing, view)
        else:
            Showing(thing, lambda: contextlib.nullcontext([source]), options, is_lone=True).print()
    elif options.changes and kind in (FileKind.RECORD, FileKind.TRIAL):
        options.check_unchosen("--changes")
        check_apart("changes", "raw")
        check_apart("full", "as_json")
        importlib.import_module("proctor.cli.show_record").show_changes_of(thing, options)
    elif kind is FileKind.RECORD:
        options.check_unused_for("a record")
        check_unused("a record", full=options.full)
        check_apart("raw", "as_json")
        # Imported late: records and trials are slow to import, and a trace needs neither.
        importlib.import_module("proctor.cli.show_record").show_record(thing, options)
    elif kind is FileKind.TRIAL:
        check_unused("a trial that is not sealed", raw=options.raw)
        check_apart("full", "as_json")
        importlib.import_module("proctor.cli.show_record").show_trial(thing, options)
    else:
        expected = "expected a trace, a trial or a trial record"
        raise InputError(f"{thing}: a {kind}; {expected}{_inside(thing)}")


def _inside(directory: str) -> str:
    """The trials of a job, for a message about the job's directory."""
    with contextlib.suppress(OSError):
        below = sorted(each for each in Path(directory).iterdir() if each.is_dir())
        trials = [each for each in below if any((each / name).is_file() for name in _SIGNS)]
        if trials:
            named = ", ".join(str(each) for each in trials[:_NAMED])
            return f", such as {named} ({count_of(len(trials), 'trial')} in all)"
    return ""
