"""A progress bar on stderr after one second; silent without a terminal."""

import sys
import time
from collections.abc import Callable
from functools import partial

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
        end = "\r\x1b[K" if done >= total else ""
        click.echo(f"\r{bar} {printable(what)} {done:,} of {total:,}{end}", nl=False, err=True)

    return show


def reading_progress(what: str) -> Callable[[int, int], None]:
    """The same for one thing, called with the amount done and the total."""
    return partial(make_progress(), what)
