"""Standard streams, and what is done when stdout cannot be written. It shapes no text."""

import errno
import os
import stat
import sys
from collections.abc import Iterable
from typing import TextIO

import click

from proctor.cli.printable import printable
from proctor.errors import InputError

_LAST_STREAM = 2


def send(text: str) -> None:
    """Lines that may be sent as they are.

    A reader that has gone is in its right: the rest goes nowhere, and the exit code still tells.

    Raises:
        InputError: stdout cannot be written.
    """
    try:
        click.echo(text)
    except OSError as error:
        _give_up(error)


def send_lines(lines: Iterable[str]) -> None:
    """Lines that may be sent as they are; none is made any more once their reader has gone.

    Raises:
        InputError: stdout cannot be written.
    """
    for line in lines:
        try:
            click.echo(line)
        except OSError as error:
            _give_up(error)
            return


def send_bytes(data: bytes) -> None:
    """Bytes exactly as they are, otherwise likewise; a terminal gets no character it would obey.

    Raises:
        InputError: stdout cannot be written.
    """
    if sys.stdout.isatty():
        text = data.decode("utf-8", "backslashreplace")
        data = "\n".join(map(printable, text.split("\n"))).encode()
    try:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except OSError as error:
        _give_up(error)


class SentBytes:
    """Stdout as something that an artifact is copied to, piece by piece."""

    def write(self, data: bytes) -> int:
        """Send a piece."""
        send_bytes(data)
        return len(data)


def tell(text: str) -> None:
    """One line on stderr; where nobody can read it any more, the exit code still tells."""
    try:
        click.echo(text, err=True)
    except OSError:
        _discard(sys.stderr)


def leave_streams() -> None:
    """Let go of what nobody reads any more: at exit it would fail and change the exit code."""
    for stream in filter(None, (sys.stdout, sys.stderr)):
        try:
            stream.flush()
        except OSError:
            _discard(stream)


def _give_up(error: OSError) -> None:
    is_gone = isinstance(error, BrokenPipeError) or _is_closed_terminal(error)
    discard_stdout()
    if not is_gone:
        raise InputError(render_failure(error)) from error


def _is_closed_terminal(error: OSError) -> bool:
    """Whether this is what a terminal says that was closed; a disk says it of a defect."""
    return error.errno == errno.EIO and stat.S_ISCHR(os.fstat(sys.stdout.fileno()).st_mode)


def discard_stdout() -> None:
    """Send all that follows nowhere."""
    _discard(sys.stdout)


def _discard(stream: TextIO) -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def keep_descriptors_free() -> None:
    """See that no file gets the number of a standard stream that was closed.

    Every child would take it for the stream, and write into it.
    """
    while (fd := os.open(os.devnull, os.O_RDWR)) <= _LAST_STREAM:
        os.set_inheritable(fd, True)  # noqa: FBT003 - the name says it
    os.close(fd)


def render_failure(error: OSError) -> str:
    """Why stdout cannot be written."""
    return f"standard output: cannot be written: {error.strerror}"
