"""Runs a job with output while it runs and a report when it ends."""

import asyncio
import signal
import time
from collections.abc import Callable, Coroutine

import msgspec

from proctor.cli.running.display import watching
from proctor.cli.running.report import (
    make_report,
    print_report,
    print_report_json,
    print_result_line,
)
from proctor.job.options import JobOutcome
from proctor.job.watch import Watch

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
    report = make_report(outcome, time.monotonic() - began)
    if printing.as_json:
        print_report_json(report)
    else:
        print_report(report)
    if printing.result_line and not outcome.interrupted:
        # Not after an interruption: a partial job must not be taken for a complete one.
        print_result_line(outcome.result)
        return 0
    return report.exit_code
