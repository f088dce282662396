"""Shows long texts in a pager on a terminal; otherwise prints them.

Uses $PAGER, else `less`, with LESS=FRX unless it is set: short texts are not paged and stay on the
screen. If the pager is missing or fails, the text is printed. Leaving it early is not an error.
"""

import contextlib
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator

from proctor.cli.stdout import send_lines

type Lines = Callable[[], Iterable[str]]
"""Makes the lines; called again if the pager fails."""
_USUAL = "less"
_OPTIONS = "FRX"


def page(lines: Lines, *, is_wanted: bool = True) -> None:
    """Print lines, through a pager on a terminal."""
    if not (is_wanted and _is_attended() and _page(lines)):
        send_lines(lines())


def _is_attended() -> bool:
    """Whether there is a terminal for input and output."""
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout))


def _page(lines: Lines) -> bool:
    """Send the lines to the pager; False if it could not show them."""
    try:
        command = shlex.split(os.environ.get("PAGER") or _USUAL)
    except ValueError:
        return False
    # Many tools set PAGER=cat to disable paging.
    if not command or command == ["cat"]:
        return False
    end, ours = os.pipe()
    try:
        with os.fdopen(end, "rb") as theirs:
            pager = subprocess.Popen(command, stdin=theirs, env={"LESS": _OPTIONS, **os.environ})
    except (OSError, ValueError):
        os.close(ours)
        return False
    try:
        _feed(ours, lines())
    finally:
        with _left_to_the_pager():
            pager.wait()
    return pager.returncode == 0


def _feed(end: int, lines: Iterable[str]) -> None:
    with contextlib.suppress(BrokenPipeError), os.fdopen(end, "wb") as pipe:
        for line in lines:
            pipe.write(f"{line}\n".encode(errors="backslashreplace"))


@contextlib.contextmanager
def _left_to_the_pager() -> Iterator[None]:
    """Ignore Ctrl-C, which is a key of the pager."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
