"""Which failures of an endpoint are tried again, and after how long. What fails for good is raised.

The waits double from a second on, up to a minute, each between half of that and all of it by
chance, so that many trials do not come back at once. Where the endpoint itself says how long to
wait, that is waited, up to five minutes.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from proctor.agents.chat.endpoint import Endpoint
from proctor.agents.chat.refusals import Failed
from proctor.agents.chat.wire import Answer
from proctor.errors import ModelError
from proctor.sentence import count_of
from proctor.trial.clock import SYSTEM, Clock

FIRST_WAIT: Final = 1.0
LONGEST_WAIT: Final = 60.0
LONGEST_ASKED: Final = 300.0
"""Seconds that are waited at most where the endpoint asks for it."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How time passes for a loop; tests bring their own."""

    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep
    chance: Callable[[], float] = random.random
    """From 0 to 1."""
    clock: Clock = SYSTEM


@dataclass(frozen=True, slots=True)
class Asker:
    """Asks an endpoint until it answers, or has failed too often."""

    endpoint: Endpoint
    retries: int
    """How often one request is tried again."""
    pace: Pace
    logger: logging.Logger

    async def ask(self, body: bytes, tell: Callable[[], None]) -> Answer:
        """The answer to a request; `tell` is called before each further try.

        Raises:
            ModelError: there was none; the sentence says how often it was tried.
        """
        n_tries = 0
        while True:
            came = await self.endpoint.ask(body)
            n_tries += 1
            if isinstance(came, Answer):
                return came
            if not came.is_passing or n_tries > self.retries:
                raise self._final(came, n_tries)
            wait = find_wait(came.retry_after, n_tries, self.pace.chance())
            self.logger.warning(
                "%s: %s; trying again in %.1f s (%d of %d)",
                self.endpoint.address.shown,
                came.error,
                wait,
                n_tries,
                self.retries,
            )
            tell()
            await self.pace.sleep(wait)

    def _final(self, failed: Failed, n_tries: int) -> ModelError:
        often = f" (asked {count_of(n_tries, 'time')})" if n_tries > 1 else ""
        return type(failed.error)(f"{self.endpoint.address.shown}: {failed.error}{often}")


def find_wait(retry_after: float | None, n_tries: int, chance: float) -> float:
    """Seconds to wait after so many tries; `retry_after` is what the endpoint asks for."""
    if retry_after is not None:
        return min(retry_after, LONGEST_ASKED)
    # The exponent is bounded first: retries may be any number.
    longest = min(FIRST_WAIT * 2.0 ** min(n_tries - 1, 16), LONGEST_WAIT)
    return longest * (0.5 + chance / 2)
