"""Runs a job with output while it runs and a report when it ends."""

import asyncio
import contextlib
import signal
import time
from collections.abc import Callable, Coroutine, Iterator

import click
import msgspec

from proctor.cli.running.display import watching
from proctor.cli.running.report import (
    make_report,
    print_failed_line,
    print_report,
    print_report_json,
    print_result_line,
)
from proctor.errors import ProctorError
from proctor.job.options import JobOutcome
from proctor.job.watch import Watch
from proctor.record.reasons import ReasonCode
from proctor.search.upkeep import update_in_background

type Run = Callable[[Watch], Coroutine[None, None, JobOutcome]]


class Printing(msgspec.Struct, frozen=True):
    """What to print."""

    quiet: bool
    as_json: bool
    result_line: bool
    debug: bool = False


def watch_job(run: Run, title: str, printing: Printing) -> int:
    """Run a job, show it, report it; returns the exit code."""
    began = time.monotonic()
    with watching(title, quiet=printing.quiet, debug=printing.debug) as watch:
        outcome = asyncio.run(run(watch))
    if outcome.interrupted:
        # A second Ctrl-C while cleaning up ends without a traceback.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    elif outcome.sealed is not None:
        update_in_background(outcome.sealed.directory)
    report = make_report(outcome, time.monotonic() - began)
    if printing.as_json:
        print_report_json(report)
    else:
        print_report(report)
    if printing.result_line and outcome.interrupted:
        # A partial job must not be taken for a complete one.
        print_failed_line(ReasonCode.HARBOR_CANCELLED_ERROR)
    elif printing.result_line:
        print_result_line(outcome.result)
        return 0
    return report.exit_code


@contextlib.contextmanager
def always_with_line(*, result_line: bool) -> Iterator[None]:
    """Print a result line also for a job that was refused or that ended in an error."""
    try:
        yield
    except (ProctorError, click.UsageError):
        if result_line:
            print_failed_line(ReasonCode.HARBOR_RESULT_MISSING)
        raise
