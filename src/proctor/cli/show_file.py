"""`proctor show` of a trace, a record, a trial or a job in files."""

import contextlib
import importlib
from pathlib import Path

from proctor.audit.file_kind import TRACES, FileKind, find_file_kind
from proctor.cli.options import check_apart, check_unused
from proctor.cli.show_trace import Source, describe_trace
from proctor.cli.showing import Showing, ShowOptions, print_document, warn_if_empty
from proctor.errors import InputError
from proctor.harbor.documents import is_trial
from proctor.sentence import count_of
from proctor.traces.entry import TraceKind

_NAMED = 3
_SIGNS = ("lock.json", "job.log", "result.json", "config.json")


def show(thing: str, options: ShowOptions) -> None:
    """Print a trace, a record, a trial, or the trials of a job.

    Raises:
        InputError: it is none of them, or cannot be read.
        UsageError: an option cannot be used with it.
    """
    kind = find_file_kind(thing)
    if kind is not FileKind.JOB:
        check_unused(f"a {kind}", failed=options.failed)
    if kind in TRACES:
        _show_trace(thing, TraceKind(str(kind)), options)
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
    elif kind is FileKind.JOB:
        options.check_unused_for("a job")
        check_unused("a job", raw=options.raw, full=options.full, changes=options.changes)
        importlib.import_module("proctor.cli.show_job").show_job(thing, options)
    else:
        expected = "expected a trace, a trial, a trial record or a job"
        raise InputError(f"{thing}: a {kind}; {expected}{_inside(thing)}")


def _show_trace(path: str, kind: TraceKind, options: ShowOptions) -> None:
    check_unused("a trace", raw=options.raw, part=options.selection.part, changes=options.changes)
    check_apart("full", "as_json")
    source = Source(kind, path, path)
    if options.as_json:
        view = options.view()
        print_document(describe_trace(source, view))
        warn_if_empty(path, view)
    else:
        Showing(path, lambda: contextlib.nullcontext([source]), options, is_lone=True).print()


def _is_job(place: Path) -> bool:
    return any((place / name).is_file() for name in _SIGNS) and not is_trial(str(place))


def _inside(directory: str) -> str:
    """The jobs in a directory, for a message about it."""
    with contextlib.suppress(OSError):
        below = sorted(each for each in Path(directory).iterdir() if each.is_dir())
        jobs = [each for each in below if _is_job(each)]
        if jobs:
            named = ", ".join(str(each) for each in jobs[:_NAMED])
            return f", such as {named} ({count_of(len(jobs), 'job')} in all)"
    return ""
