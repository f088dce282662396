"""What killed runs left behind, reaped beside a job from its start.

A trial that is run again waits for it, because what its killed environment holds belongs to the
attempt that is about to be moved; no other trial does. What is not done when a job is interrupted
is left to the next run.
"""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress

from proctor.environments.kinds import reap_for
from proctor.harbor.configs import EnvironmentConfig
from proctor.sentence import reason_of


class Reaping:
    """One reaping, in a thread of its own that ends with the process at the latest."""

    def __init__(self, environment: EnvironmentConfig, say: Callable[[str], None]) -> None:
        """Begin; `say` is told what was left where it is, once somebody waits for the end."""
        self._environment = environment
        self._say = say
        self._loop = asyncio.get_running_loop()
        self._ended = asyncio.Event()
        self._kept: list[str] = []
        # Not one of the executor's: the loop waits for those when it ends, also after Ctrl-C.
        threading.Thread(target=self._reap, name="reaping", daemon=True).start()

    async def wait(self) -> None:
        """Wait until it is over; what it could not remove is said once."""
        await self._ended.wait()
        kept, self._kept = self._kept, []
        for sentence in kept:
            self._say(sentence)

    def _reap(self) -> None:
        try:
            kept = reap_for(self._environment).kept
        except OSError as error:
            kept = [f"what killed runs left could not be removed: {reason_of(error)}"]
        # The loop may have gone meanwhile: then nobody waits.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._end, kept)

    def _end(self, kept: list[str]) -> None:
        self._kept = kept
        self._ended.set()
