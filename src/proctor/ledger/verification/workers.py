"""Workers: the same question about many things, in one process or several, answers in order.

Few answers are held at a time, however many questions there are. Nothing here knows ledgers.
"""

import ctypes
import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from types import TracebackType
from typing import Self

from proctor.errors import LedgerError

_ON_PARENTS_DEATH = 1
"""PR_SET_PDEATHSIG of prctl(2)."""
_AHEAD = 3
"""Questions per process that are asked before the first answer is taken."""


class Workers:
    """Processes that answer; with one, everything is answered here."""

    def __init__(self, processes: int) -> None:
        self._processes = processes
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> Self:
        if self._processes > 1:
            # Forked, because a fresh interpreter spends its first fifth of a second importing.
            forked = multiprocessing.get_context("fork")
            self._pool = ProcessPoolExecutor(
                self._processes, forked, end_with_parent, (os.getpid(),)
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)

    def map[Question, Answer](
        self, ask: Callable[[Question], Answer], questions: Iterable[Question]
    ) -> Iterator[Answer]:
        """The answer to each, in order; `ask` must be a module's function, and may raise.

        Raises:
            LedgerError: a process was ended from outside.
        """
        if self._pool is None:
            yield from map(ask, questions)
            return
        asked: deque[Future[Answer]] = deque()
        try:
            for question in questions:
                asked.append(self._pool.submit(ask, question))
                if len(asked) > _AHEAD * self._processes:
                    yield asked.popleft().result()
            while asked:
                yield asked.popleft().result()
        except BrokenProcessPool as error:
            raise LedgerError(
                "a process that helped was ended from outside, perhaps for want of memory; "
                "try again with one process"
            ) from error


def end_with_parent(parent: int) -> None:
    """Have the system end this process when its parent ends, however that comes about."""
    # An interrupt goes to the whole group; the parent is the one to act on it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(_ON_PARENTS_DEATH, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)
