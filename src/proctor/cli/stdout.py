"""Standard streams, and what is done when stdout cannot be written. It shapes no text."""

import errno
import os
import stat
import sys

import click

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


def send_bytes(data: bytes) -> None:
    """Bytes exactly as they are, otherwise likewise.

    Raises:
        InputError: stdout cannot be written.
    """
    try:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except OSError as error:
        _give_up(error)


def _give_up(error: OSError) -> None:
    is_gone = isinstance(error, BrokenPipeError) or _is_closed_terminal(error)
    discard_stdout()
    if not is_gone:
        raise InputError(render_failure(error)) from error


def _is_closed_terminal(error: OSError) -> bool:
    """Whether this is what a terminal says that was closed; a disk says it of a defect."""
    return error.errno == errno.EIO and stat.S_ISCHR(os.fstat(sys.stdout.fileno()).st_mode)


def discard_stdout() -> None:
    """Send all that follows nowhere; what is still in the buffer would fail again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


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
