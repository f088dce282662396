"""result.json while a job runs: rewritten at most once a second, and whole."""

import asyncio
from collections.abc import Callable

from proctor.errors import JobError

_SECONDS = 1.0
_SHARE = 20
"""Writing may take a twentieth of the time: a very large job writes less often."""


class ResultFile:
    """Writes when something changed, now or as soon as it may."""

    def __init__(self, write: Callable[[], None], on_failure: Callable[[JobError], None]) -> None:
        self._write = write
        self._on_failure = on_failure
        self._loop = asyncio.get_running_loop()
        self._next = self._loop.time()
        self._later: asyncio.TimerHandle | None = None

    def changed(self) -> None:
        """Something in it is not as it was."""
        if self._later is None:
            wait = self._next - self._loop.time()
            if wait <= 0:
                self._write_now()
            else:
                self._later = self._loop.call_later(wait, self._write_now)

    def close(self) -> None:
        """Write no more."""
        if self._later is not None:
            self._later.cancel()
        self._later = None

    def _write_now(self) -> None:
        self._later = None
        began = self._loop.time()
        try:
            self._write()
        except JobError as error:
            self._on_failure(error)
        ended = self._loop.time()
        self._next = ended + max(_SECONDS, _SHARE * (ended - began))
