"""trial.log: what happened in a trial, for people, one message a line or more.

Each trial has loggers of its own, which go when it ends: ten thousand trials leave nothing behind
in the process. Secrets that the trial was given do not get into the file.
"""

import contextlib
import logging
import os
from collections.abc import Iterator
from typing import Protocol


class Cleaner(Protocol):
    """Takes secrets out of text."""

    def redact_text(self, text: str) -> str:
        """The text without secrets."""
        ...


class _CleanLines(logging.Formatter):
    """The bare message, without secrets."""

    def __init__(self, cleaner: Cleaner | None) -> None:
        super().__init__()
        self._cleaner = cleaner

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        return self._cleaner.redact_text(text) if self._cleaner else text


class _LogFile(logging.Handler):
    """A log that a full disk cuts short; the trial's result says what became of the trial.

    The file is opened for its first line, so that a trial with nothing to say costs nothing.
    """

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path
        self._fd: int | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line, or pass it over when it cannot be written."""
        try:
            line = f"{self.format(record)}\n".encode(errors="backslashreplace")
            if self._fd is None:
                flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
                self._fd = os.open(self._path, flags, 0o666)
            while line:
                line = line[os.write(self._fd, line) :]
        except Exception:  # noqa: BLE001 - what is logged may have no text; no line ends a trial
            return

    def close(self) -> None:
        """Write no more."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
        super().close()


@contextlib.contextmanager
def open_journal(path: str, cleaner: Cleaner | None) -> Iterator[logging.Logger]:
    """A logger that writes to trial.log from its first line on, and so do its children."""
    logger = logging.RootLogger(logging.DEBUG)
    logger.name = "trial"
    # A manager of its own keeps the loggers of this trial out of the list of all loggers.
    logger.manager = logging.Manager(logger)
    handler = _LogFile(path)
    handler.setFormatter(_CleanLines(cleaner))
    logger.addHandler(handler)
    try:
        yield logger
    finally:
        logger.removeHandler(handler)
        # A full disk refuses the last bytes.
        with contextlib.suppress(OSError):
            handler.close()
