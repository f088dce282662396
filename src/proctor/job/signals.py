"""Ctrl-C: once finishes the record-keeping, twice stops. SIGTERM counts as Ctrl-C.

So does the first SIGHUP, by which a terminal that is closed says so: often more than once, and that
is nobody's impatience. Whoever started the program deaf to it (nohup) has it go on.
"""

import asyncio
import contextlib
import signal
import threading
from collections.abc import Callable, Iterator

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupt:
    """Whether the person wants the job to stop, and who is to be told."""

    def __init__(self, on_first: Callable[[], None], at_once: Callable[[], None]) -> None:
        self.is_wanted = False
        """A signal came."""
        self._on_first = on_first
        self._at_once = at_once

    def come(self, number: int) -> None:
        """A signal came."""
        if not self.is_wanted:
            self.is_wanted = True
            self._on_first()
        elif number != signal.SIGHUP:
            self._at_once()


@contextlib.contextmanager
def heeding(interrupt: Interrupt) -> Iterator[None]:
    """Signals go to the interrupt while this lasts; outside the main thread none can be had."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    earlier = {number: signal.getsignal(number) for number in _SIGNALS}
    if earlier[signal.SIGHUP] is signal.SIG_IGN:
        del earlier[signal.SIGHUP]
    for number in earlier:
        loop.add_signal_handler(number, interrupt.come, number)
    try:
        yield
    finally:
        for number, handler in earlier.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler or signal.SIG_DFL)
