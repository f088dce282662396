"""Retries requests that failed temporarily; raises other failures.

The wait doubles from one second up to a minute, with random jitter between half of it and all of
it, so that many trials do not retry at the same moment. If the endpoint says how long to wait, that
is respected, up to five minutes.
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
"""Longest wait that an endpoint can ask for, in seconds."""


@dataclass(frozen=True, slots=True)
class Pace:
    """Sleep, randomness and clock of a loop, replaceable in tests."""

    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep
    chance: Callable[[], float] = random.random
    """Random number from 0 to 1."""
    clock: Clock = SYSTEM


@dataclass(frozen=True, slots=True)
class Asker:
    """Sends a request, with retries."""

    endpoint: Endpoint
    retries: int
    """Number of retries per request."""
    pace: Pace
    logger: logging.Logger

    async def ask(self, body: bytes, on_retry: Callable[[], None]) -> Answer:
        """Return the answer to a request; `on_retry` is called before each retry.

        Raises:
            ModelError: there was no answer; the message says how often it was tried.
        """
        n_tries = 0
        while True:
            answer = await self.endpoint.ask(body)
            n_tries += 1
            if isinstance(answer, Answer):
                return answer
            if not answer.is_passing or n_tries > self.retries:
                raise self._final(answer, n_tries)
            wait = find_wait(answer.retry_after, n_tries, self.pace.chance())
            self.logger.warning(
                "%s: %s; retrying in %.1f s (%d of %d)",
                self.endpoint.address.shown,
                answer.error,
                wait,
                n_tries,
                self.retries,
            )
            on_retry()
            await self.pace.sleep(wait)

    def _final(self, failed: Failed, n_tries: int) -> ModelError:
        often = f" (asked {count_of(n_tries, 'time')})" if n_tries > 1 else ""
        return type(failed.error)(f"{self.endpoint.address.shown}: {failed.error}{often}")


def find_wait(retry_after: float | None, n_tries: int, chance: float) -> float:
    """Return the seconds to wait after `n_tries`; `retry_after` is what the endpoint asks for."""
    if retry_after is not None:
        return min(retry_after, LONGEST_ASKED)
    # Bound the exponent first: `retries` may be any number, and 2.0 ** 2000 overflows.
    longest = min(FIRST_WAIT * 2.0 ** min(n_tries - 1, 16), LONGEST_WAIT)
    # At least half of it, so that a retry is never immediate.
    return longest * (0.5 + chance / 2)
