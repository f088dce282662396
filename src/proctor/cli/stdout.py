"""Standard output, and what is done when it cannot be written. It shapes no text."""

import os
import sys

import click

from proctor.errors import InputError


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
    discard_stdout()
    if not isinstance(error, BrokenPipeError):
        raise InputError(render_failure(error)) from error


def discard_stdout() -> None:
    """Send all that follows nowhere; what is still in the buffer would fail again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def render_failure(error: OSError) -> str:
    """Why stdout cannot be written."""
    return f"standard output: cannot be written: {error.strerror}"
