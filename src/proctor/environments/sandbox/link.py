"""The runner's asynchronous end of a channel, with numbered requests answered in any order."""

import asyncio
import socket
from collections.abc import Callable, Mapping, Sequence

from proctor.environments.sandbox.channel import Message, close_all, receive, send
from proctor.errors import SandboxError

type OnMessage = Callable[[Message, list[int]], None]


class Link:
    """One end of a channel, read by the event loop."""

    def __init__(
        self, channel: socket.socket, on_message: OnMessage, on_close: Callable[[], None]
    ) -> None:
        channel.setblocking(False)  # noqa: FBT003 - the name says it
        self._channel = channel
        self._loop = asyncio.get_running_loop()
        self._on_message = on_message
        self._on_close = on_close
        self._loop.add_reader(channel, self._read_one)

    @property
    def is_open(self) -> bool:
        """Whether it can still receive messages."""
        return self._channel.fileno() >= 0

    async def send(self, message: Mapping[str, object], files: Sequence[int] = ()) -> None:
        """Send a message; wait while the socket's buffer is full.

        Raises:
            SandboxError: the other end is closed.
        """
        while True:
            if self._channel.fileno() < 0:
                raise SandboxError("the sandbox is closed")
            try:
                send(self._channel, message, files)
            except BlockingIOError:
                await self._writable()
            except OSError as error:
                raise SandboxError(f"the sandbox's PID 1 is gone: {error.strerror}") from error
            else:
                return

    async def _writable(self) -> None:
        free: asyncio.Future[None] = self._loop.create_future()
        self._loop.add_writer(self._channel, _settle, free)
        try:
            await free
        finally:
            if self._channel.fileno() >= 0:
                self._loop.remove_writer(self._channel)

    def read(self) -> None:
        """Handle all pending messages; close the link at the end of the stream."""
        while self._channel.fileno() >= 0 and self._read_one():
            pass

    def _read_one(self) -> bool:
        """Handle one message; return False if there is none."""
        try:
            received = receive(self._channel)
        except BlockingIOError:
            return False
        except (OSError, ValueError):
            # The other end is broken: close the link.
            received = None
        if received is None:
            self.close()
        else:
            self._on_message(*received)
        return True

    def close(self) -> None:
        """Close it. Can be called twice."""
        if self._channel.fileno() < 0:
            return
        self._loop.remove_reader(self._channel)
        self._loop.remove_writer(self._channel)
        self._channel.close()
        self._on_close()


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class Questions:
    """Numbered requests that wait for their answers."""

    def __init__(self) -> None:
        self._waiting: dict[int, asyncio.Future[Message]] = {}
        self._n_asked = 0
        self._end: SandboxError | None = None

    def ask(self) -> tuple[int, asyncio.Future[Message]]:
        """Return a new number and a future for its answer.

        Raises:
            SandboxError: there will be no more answers.
        """
        if self._end is not None:
            raise type(self._end)(str(self._end))
        self._n_asked += 1
        answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._waiting[self._n_asked] = answer
        return self._n_asked, answer

    def answer(self, number: int, message: Message, files: list[int]) -> None:
        """Deliver an answer; one to an unknown number is dropped."""
        close_all(files)
        waiting = self._waiting.pop(number, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(message)

    def ask_again(self, number: int, answer: asyncio.Future[Message]) -> asyncio.Future[Message]:
        """Return a new future for a pending answer whose first future was cancelled."""
        if number not in self._waiting or not answer.cancelled():
            return answer
        again = self._waiting[number] = asyncio.get_running_loop().create_future()
        return again

    def forget(self, number: int) -> None:
        """Drop a request; its answer will be ignored."""
        self._waiting.pop(number, None)

    def end(self, reason: SandboxError) -> None:
        """Fail all pending and future requests with an error like `reason`."""
        self._end = self._end or reason
        waiting, self._waiting = self._waiting, {}
        for answer in waiting.values():
            if not answer.done():
                answer.set_exception(type(self._end)(str(self._end)))


async def settled[Value](future: asyncio.Future[Value]) -> None:
    """Wait until a future is done, even if cancelled meanwhile.

    Raises:
        CancelledError: it was; a timeout that ends in here would be lost otherwise.
    """
    is_cancelled = False
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError:
            is_cancelled = True
    # Retrieve the exception, or asyncio logs that it was never retrieved.
    if not future.cancelled():
        future.exception()
    if is_cancelled:
        raise asyncio.CancelledError
