"""Reports the progress of a fetch on stderr: on a terminal in one line that changes."""

import sys

import click

from proctor.cli.output import terminal_width
from proctor.cli.stdout import print_stderr
from proctor.job.fetching import Report
from proctor.sentence import printable

_NARROWEST = 20


def make_report() -> Report:
    """A function to be called with each message, and whether another replaces it soon."""
    is_screen = sys.stderr is not None and sys.stderr.isatty()

    def report(sentence: str, is_passing: bool) -> None:
        text = printable(sentence)
        if not is_screen:
            if not is_passing:
                print_stderr(text)
            return
        width = max((terminal_width() or 80) - 1, _NARROWEST)
        shown = f"\r\x1b[K{text[:width]}" if is_passing else f"\r\x1b[K{text}\n"
        click.echo(shown, nl=False, err=True)

    return report
