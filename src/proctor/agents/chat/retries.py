"""Retries requests that failed temporarily; raises other failures.

The wait between two requests is `backoff`'s: it grows, or is what the endpoint asks for.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from proctor.agents.chat.endpoint import Endpoint
from proctor.agents.chat.refusals import Failed
from proctor.agents.chat.wire import Answer
from proctor.backoff import find_wait
from proctor.errors import ModelError
from proctor.sentence import count_of
from proctor.trial.clock import SYSTEM, Clock


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
