"""So many trials at once: a few workers that take the next one when they are free.

There is no task for a trial that has not begun, so that ten thousand of them cost nothing.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable


class Queue[T]:
    """Items that are worked on in order, at most so many at once."""

    def __init__(self, items: Iterable[T]) -> None:
        self._items = iter(items)
        self._workers: list[asyncio.Task[None]] = []
        self._is_stopped = False
        self._failure: BaseException | None = None

    async def work(self, run: Callable[[T], Awaitable[None]], n_workers: int) -> None:
        """Work on every item, or until `stop` is called; what runs then is cancelled.

        Raises:
            BaseException: what an item raised; no further one was begun, the running ones were
                cancelled.
        """
        self._workers = [asyncio.create_task(self._work(run)) for _ in range(n_workers)]
        try:
            await asyncio.wait(self._workers)
        except asyncio.CancelledError:
            self.stop()
            await asyncio.wait(self._workers)
            raise
        if self._failure is not None:
            raise self._failure

    def stop(self, failure: BaseException | None = None) -> None:
        """Begin nothing more and cancel what runs; `failure` is then raised by `work`."""
        self._failure = self._failure or failure
        self._is_stopped = True
        for worker in self._workers:
            worker.cancel()

    async def _work(self, run: Callable[[T], Awaitable[None]]) -> None:
        for item in self._items:
            # A trial may end without ever having waited: signals must get their turn.
            await asyncio.sleep(0)
            if self._is_stopped:
                return
            try:
                await run(item)
            except asyncio.CancelledError:
                return
            except Exception as error:  # noqa: BLE001 - raised by `work`, once all have ended
                self.stop(error)
                return
