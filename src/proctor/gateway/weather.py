"""How a provider's trouble is waited out: one pace for all trials of a job.

A provider that limits requests gets fewer at a time, and none until it is ready: half as many as
were under way, then one more for each that succeeds. So fifty trials do not fail each other.
"""

import asyncio
import math
import random
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

RETRIES: Final = 6
"""Retries of one request."""
_MOST_AT_ONCE: Final = 1000
_BUSY: Final = frozenset({429, 503, 529})
_PASSING: Final = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 520, 522, 524, 529})
# The account is used up: waiting does not help.
_EXHAUSTED: Final = (b"insufficient_quota", b"billing_hard_limit", b"credit balance is too low")


@dataclass(slots=True)
class Turn:
    """A request that is under way."""

    weather: "Weather"
    began: float
    is_over: bool = False

    def end(self) -> None:
        """Let another request have this turn; a second call does nothing."""
        if not self.is_over:
            self.is_over = True
            self.weather.n_under_way -= 1
            self.weather.wake()


@dataclass(slots=True)
class Weather:
    """The state of one provider, shared by all requests to it. Used from one event loop."""

    chance: Callable[[], float] = random.random
    """Random number from 0 to 1."""
    n_under_way: int = 0
    _most: float = _MOST_AT_ONCE
    _ready_at: float = 0.0
    _slowed_at: float = -math.inf
    """When the number of requests at a time was last reduced."""
    _waiting: deque[asyncio.Future[None]] = field(default_factory=deque)
    """Requests that wait for a turn, the first one first."""

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[Turn]:
        """Wait until a request may be sent; it is under way inside the context."""
        loop = asyncio.get_running_loop()
        await self._take_place()
        turn = Turn(self, loop.time())
        try:
            # Others wait behind this one: a little apart, so that not all come at once.
            while (wait := self._ready_at - loop.time()) > 0:
                await asyncio.sleep(wait * (1 + 0.1 * self.chance()))
            turn.began = loop.time()
            yield turn
        finally:
            turn.end()

    async def _take_place(self) -> None:
        """Count one request more, when there is room for it; first come, first served."""
        if not self._waiting and self.n_under_way < self._room:
            self.n_under_way += 1
            return
        waiting = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        try:
            # The request that wakes it has counted it.
            await waiting
        except asyncio.CancelledError:
            if not waiting.cancelled():
                # It was woken and cancelled at once.
                self.n_under_way -= 1
            elif waiting in self._waiting:
                self._waiting.remove(waiting)
            self.wake()
            raise

    def wake(self) -> None:
        """Give free places to those that wait longest."""
        while self._waiting and self.n_under_way < self._room:
            waiting = self._waiting.popleft()
            if not waiting.done():
                self.n_under_way += 1
                waiting.set_result(None)

    @property
    def _room(self) -> int:
        return max(1, int(self._most))

    def note_success(self) -> None:
        """Let one more request be under way at a time."""
        self._most = min(self._most + 1, _MOST_AT_ONCE)
        self.wake()

    def note_failure(self, status: int, wait: float, turn: Turn) -> None:
        """Slow down if the provider is busy."""
        if status not in _BUSY:
            return
        now = asyncio.get_running_loop().time()
        self._ready_at = max(self._ready_at, now + wait)
        # One burst of failures halves once: those sent before could not know.
        if turn.began > self._slowed_at:
            self._most = max(1.0, min(self._most, self.n_under_way) / 2)
            self._slowed_at = now


def is_passing(status: int, body: bytes) -> bool:
    """Whether the same request may succeed later."""
    return status in _PASSING and not any(text in body for text in _EXHAUSTED)
