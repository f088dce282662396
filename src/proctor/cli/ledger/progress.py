"""A progress bar on stderr after one second; silent without a terminal."""

import sys
import time
from collections.abc import Callable

import click

from proctor.sentence import printable

_SHOW_AFTER_SECONDS = 1.0
_BAR = 30


def make_progress() -> Callable[[str, int, int], None]:
    """A function that draws the bar, called with what is done, the amount done, and the total."""
    # A process that was started without streams has none.
    if sys.stderr is None or not sys.stderr.isatty():
        return lambda _what, _done, _total: None
    began = time.monotonic()

    def show(what: str, done: int, total: int) -> None:
        if time.monotonic() - began < _SHOW_AFTER_SECONDS:
            return
        filled = _BAR * done // total if total else _BAR
        bar = "█" * filled + "░" * (_BAR - filled)
        text = "\r\x1b[K" if done >= total else f"\r{bar} {printable(what)} {done:,} of {total:,}"
        click.echo(text, nl=False, err=True)

    return show
