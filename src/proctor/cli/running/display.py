"""Output while a job runs: a drawing on a terminal, lines elsewhere, or nothing."""

import contextlib
import os
import sys
from collections.abc import Iterator
from importlib import import_module

from proctor.cli.running.watching import (
    Progress,
    render_ended,
    render_planned,
    render_waiting,
)
from proctor.cli.stdout import print_stderr
from proctor.harbor.stats import JobStats
from proctor.harbor.trial_result import TrialResult
from proctor.job.options import exit_at_once
from proctor.job.watch import Watch
from proctor.sentence import printable


class Silent(Watch):
    """Prints only what the user must know."""

    def said(self, sentence: str) -> None:
        """See Watch."""
        say(sentence)


class Lines(Silent):
    """Prints a line on stderr for each ended trial, and optionally for each phase."""

    def __init__(self, *, phases: bool = False) -> None:
        self._progress = Progress()
        self._phases = phases

    def job_planned(self, n_total: int, n_kept: int) -> None:
        """See Watch."""
        self._progress.n_total, self._progress.n_kept = n_total, n_kept
        say(render_planned(n_total, n_kept))

    def trial_started(self, trial: str, task: str, attempt: int) -> None:
        """See Watch."""
        self._progress.start(trial, attempt)

    def phase_began(self, trial: str, phase: str) -> None:
        """See Watch."""
        if self._phases:
            say(f"{trial}: {phase}")

    def trial_ended(self, trial: str, result: TrialResult, stats: JobStats) -> None:
        """See Watch."""
        self._progress.end(trial, stats)
        say(render_ended(self._progress, trial, result))

    def trial_retried(
        self, trial: str, attempt: int, result: TrialResult, delay_sec: float
    ) -> None:
        """See Watch."""
        self._progress.retry(trial)
        say(render_waiting(trial, attempt, result, delay_sec))


def say(sentence: str) -> None:
    """Print one line on stderr; if that fails, the job continues."""
    print_stderr(printable(sentence))


def leave_at_once() -> None:
    """End the process at once, but show the terminal's cursor again."""
    if sys.stderr is not None and os.isatty(2):
        os.write(2, b"\x1b[?25h\r\n")
    exit_at_once()


@contextlib.contextmanager
def watching(title: str, *, quiet: bool, debug: bool = False) -> Iterator[Watch]:
    """The output of a job; meanwhile, agents' output on stdout goes to stderr."""
    with contextlib.redirect_stdout(sys.stderr):
        if debug:
            yield Lines(phases=True)
        elif quiet:
            yield Silent()
        elif sys.stderr and sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb":
            # Imported late: rich is slow to import, and most runs have no terminal.
            with import_module("proctor.cli.running.drawing").drawn(title) as watch:
                yield watch
        else:
            yield Lines()
