"""Connects a command in a sandbox to the standard input and output of this process.

A command never gets our own files: with a terminal it could type for the user. It gets the other
ends of a new terminal if standard input is one, or else of two pipes, and threads copy.
"""

import asyncio
import fcntl
import os
import signal
import sys
import termios
import threading
import tty
from contextlib import suppress
from typing import Any, Self

from proctor.files import write_all

_STDIN, _STDOUT = 0, 1
_PIECE = 1 << 16
_WINDOW_SIZE = bytes(8)
# For the last output of the command, if something that it left running keeps the files open.
_PATIENCE_SEC = 1.0


class Relay:
    """A connection for one command; use it in an `async with` block."""

    def __init__(self) -> None:
        self.is_terminal = os.isatty(_STDIN)
        self._to_command, self._from_command = -1, -1
        # The command's ends: standard input, output.
        self._files: tuple[int, ...] = ()
        self._settings: list[Any] | None = None
        self._printing: threading.Thread | None = None

    @property
    def env(self) -> dict[str, str]:
        """Variables for the command: which terminal it has."""
        return {"TERM": os.environ.get("TERM", "dumb")} if self.is_terminal else {}

    def hand_over(self) -> tuple[int, int]:
        """Return the standard input and output for the command; the caller closes them."""
        (stdin, output), self._files = self._files, ()
        return stdin, output

    async def __aenter__(self) -> Self:
        """Begin to copy; a terminal is in raw mode meanwhile, so that Ctrl-C is typed inside."""
        if self.is_terminal:
            self._open_terminal()
        else:
            stdin, self._to_command = os.pipe2(os.O_CLOEXEC)
            self._from_command, output = os.pipe2(os.O_CLOEXEC)
            self._files = stdin, output
        self._printing = threading.Thread(target=self._print, name="printing", daemon=True)
        self._printing.start()
        # Never joined: it may wait for standard input for ever.
        threading.Thread(target=self._type, name="typing", daemon=True).start()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Print the last output, and leave the terminal as it was."""
        for fd in self._files:
            os.close(fd)
        if self._printing is not None:
            await asyncio.to_thread(self._printing.join, _PATIENCE_SEC)
        if self._settings is not None:
            asyncio.get_running_loop().remove_signal_handler(signal.SIGWINCH)
            termios.tcsetattr(_STDIN, termios.TCSADRAIN, self._settings)

    def _open_terminal(self) -> None:
        master, slave = os.openpty()
        self._to_command = self._from_command = master
        self._files = slave, os.dup(slave)
        self._resize()
        asyncio.get_running_loop().add_signal_handler(signal.SIGWINCH, self._resize)
        self._settings = termios.tcgetattr(_STDIN)
        # Draining, not flushing: what was typed meanwhile is for the command.
        tty.setraw(_STDIN, termios.TCSADRAIN)

    def _resize(self) -> None:
        """Give the command's terminal the size of ours; the kernel signals the command."""
        with suppress(OSError):
            size = fcntl.ioctl(_STDIN, termios.TIOCGWINSZ, _WINDOW_SIZE)
            fcntl.ioctl(self._to_command, termios.TIOCSWINSZ, size)

    def _type(self) -> None:
        with suppress(OSError):
            while data := os.read(_STDIN, _PIECE):
                write_all(self._to_command, data)
        if not self.is_terminal:
            # The end of our input is the end of the command's.
            os.close(self._to_command)

    def _print(self) -> None:
        # A terminal gives an error when its last user closed it, a pipe gives nothing.
        with suppress(OSError):
            while data := os.read(self._from_command, _PIECE):
                sys.stdout.flush()
                write_all(_STDOUT, data)
        # A reader of ours that has gone is noticed by the command.
        os.close(self._from_command)
