"""Long texts in a pager where somebody sits before the screen; as they are everywhere else.

$PAGER, else `less`, with LESS=FRX unless it is set: what fits on the screen is not paged, and it
stays there. A pager that is missing or fails changes nothing but that the text is printed. One that
is left early has done its work.
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
"""Makes the lines, and makes them again for another way of printing them."""
_USUAL = "less"
_OPTIONS = "FRX"


def page(lines: Lines, *, is_wanted: bool = True) -> None:
    """Print lines, through a pager where that makes sense.

    Raises:
        InputError: stdout cannot be written.
    """
    if not (is_wanted and _is_attended() and _page(lines)):
        send_lines(lines())


def _is_attended() -> bool:
    """Whether there is a screen, and keys to turn pages with."""
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout))


def _page(lines: Lines) -> bool:
    """Give the lines to the pager; False when it could not show them."""
    try:
        command = shlex.split(os.environ.get("PAGER") or _USUAL)
    except ValueError:
        return False
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
    """Ctrl-C is a key of the pager's while it is all that is on the screen."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
