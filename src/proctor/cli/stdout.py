"""Writes to the standard streams, and handles failures of stdout."""

import errno
import os
import stat
import sys
from collections.abc import Iterable
from typing import TextIO

import click

from proctor.errors import InputError
from proctor.sentence import printable

_LAST_STREAM = 2


def send(text: str) -> None:
    """Print lines without escaping."""
    try:
        click.echo(text)
    except OSError as error:
        _give_up(error)


def send_lines(lines: Iterable[str]) -> None:
    """Print lines without escaping; stops when the reader has closed the pipe."""
    for line in lines:
        try:
            click.echo(line)
        except OSError as error:
            _give_up(error)
            return


def send_bytes(data: bytes) -> None:
    """Print bytes as they are; on a terminal, control characters are escaped."""
    if sys.stdout.isatty():
        # Evidence is untrusted: escape sequences must not reach a terminal, but a pipe gets the
        # exact bytes.
        text = data.decode("utf-8", "backslashreplace")
        data = "\n".join(map(printable, text.split("\n"))).encode()
    try:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except OSError as error:
        _give_up(error)


class SentBytes:
    """Stdout as a stream that artifacts are copied to."""

    def write(self, data: bytes) -> int:
        """Print a chunk."""
        send_bytes(data)
        return len(data)


def print_stderr(text: str) -> None:
    """Print one line on stderr; if that fails, the exit code remains."""
    try:
        click.echo(text, err=True)
    except OSError:
        _discard(sys.stderr)


def leave_streams() -> None:
    """Close broken streams, which would otherwise fail at exit and change the exit code."""
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
    """Whether the error means a closed terminal; for a disk, the same errno means a defect."""
    return error.errno == errno.EIO and stat.S_ISCHR(os.fstat(sys.stdout.fileno()).st_mode)


def discard_stdout() -> None:
    """Discard all further output."""
    _discard(sys.stdout)


def _discard(stream: TextIO) -> None:
    # Replace the descriptor, not sys.stdout: buffered data that is flushed at exit must go nowhere
    # too.
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def keep_descriptors_free() -> None:
    """Prevent opened files from getting the numbers of closed standard streams."""
    # With a closed stdout, the next opened file would get descriptor 1, and output would be written
    # into it.
    while (fd := os.open(os.devnull, os.O_RDWR)) <= _LAST_STREAM:
        os.set_inheritable(fd, True)  # noqa: FBT003 - the name says it
    os.close(fd)


def render_failure(error: OSError) -> str:
    """A message for a failure of stdout."""
    return f"standard output: cannot be written: {error.strerror}"
