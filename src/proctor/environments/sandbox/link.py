"""The runner's asynchronous end of a channel, with numbered requests answered in any order."""

import asyncio
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from proctor.environments.sandbox.channel import Message, close_all, receive, send
from proctor.errors import SandboxDiedError, SandboxError

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
                free: asyncio.Future[None] = self._loop.create_future()
                self._loop.add_writer(self._channel, _settle, free)
                try:
                    await free
                finally:
                    if self._channel.fileno() >= 0:
                        self._loop.remove_writer(self._channel)
            except OSError as error:
                raise SandboxError(f"the sandbox's PID 1 is gone: {error.strerror}") from error
            else:
                return

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


# Routes the runner's requests to PID 1 of a sandbox, or directly to the worker of a room
#
# A direct connection to a worker saves PID 1 from forwarding requests. A worker does one operation
# at a time; further requests go to PID 1, which gives them to another process. When a worker dies,
# its connection closes and its operation fails; later requests go to PID 1.


# Operations that only PID 1 can do.
_ONLY_INIT = frozenset({"run", "open_room", "list_processes", "pause", "resume"})


@dataclass(frozen=True, slots=True)
class Ends:
    """The runner's ends of the connections to a new sandbox."""

    channel: socket.socket
    """Connection to its PID 1."""
    line: socket.socket
    """Connection to its first worker."""

    def close(self) -> None:
        """Close both."""
        self.channel.close()
        self.line.close()


class Router:
    """Sends requests to one sandbox and collects the answers."""

    def __init__(
        self, channel: socket.socket, on_news: OnMessage, on_close: Callable[[], None]
    ) -> None:
        self._questions = Questions()
        self._on_news = on_news
        self._link = Link(channel, self._hear, on_close)
        # Connections to workers, by room.
        self._lines: dict[int, _Line] = {}
        self._inquiries: set[asyncio.Task[None]] = set()

    @property
    def is_open(self) -> bool:
        """Whether the sandbox can be asked."""
        return self._link.is_open

    def add_line(self, room: int, channel: socket.socket) -> None:
        """Add a connection to the worker of a room."""
        self._lines[room] = _Line(channel, self._questions, self._inquire)

    async def pose(
        self, request: Mapping[str, object], *files: int
    ) -> tuple[int, asyncio.Future[Message]]:
        """Send a request, with open files that are always closed here; return its number."""
        try:
            number, answer = self._questions.ask()
            try:
                await self._send({**request, "id": number}, number, files)
            except BaseException:
                self._questions.forget(number)
                raise
        finally:
            close_all(files)
        return number, answer

    async def _send(self, message: Message, number: int, files: Sequence[int]) -> None:
        command = message.get("command")
        place = command if isinstance(command, dict) else message
        line = self._lines.get(int(str(place.get("room", 0))))
        if line is not None and line.numbers:
            message["alone"] = True
        elif line is not None and line.is_open and message["op"] not in _ONLY_INIT:
            with suppress(SandboxError):
                await line.send(message, number, files)
                return
        try:
            await self._link.send(message, files)
        except SandboxError as error:
            # The socket can close before the zygote reports that PID 1 has ended.
            raise SandboxDiedError(str(error)) from error

    async def hear_out(self, number: int, answer: asyncio.Future[Message]) -> Message:
        """Wait for an answer; on cancellation, end the command or operation first."""
        try:
            return await answer
        except asyncio.CancelledError:
            answer = self._questions.ask_again(number, answer)
            await self._send_init(self._how_to_end(number))
            await settled(answer)
            raise

    def _how_to_end(self, number: int) -> Message:
        for room, line in self._lines.items():
            if number in line.numbers:
                return {"op": "dismiss", "id": number, "room": room}
        return {"op": "end", "id": number}

    def _inquire(self, number: int) -> None:
        """Ask PID 1 about the operation of a worker that died, unless the whole sandbox has."""
        task = asyncio.ensure_future(self._send_init({"op": "lost", "id": number}))
        self._inquiries.add(task)
        task.add_done_callback(self._inquiries.discard)

    async def _send_init(self, message: Message) -> None:
        with suppress(SandboxError):
            await self._link.send(message)

    def _hear(self, message: Message, files: list[int]) -> None:
        if "id" in message:
            self._questions.answer(int(str(message["id"])), message, files)
        else:
            self._on_news(message, files)

    def read(self) -> None:
        """Handle all pending messages."""
        for line in self._lines.values():
            line.read()
        self._link.read()

    def close(self) -> None:
        """Close all connections. Can be called twice."""
        self._link.close()
        for line in self._lines.values():
            line.close()

    def end(self, reason: SandboxError) -> None:
        """Fail all pending and future requests."""
        self._questions.end(reason)


class _Line:
    """A connection to the worker of a room."""

    def __init__(
        self, channel: socket.socket, questions: Questions, on_lost: Callable[[int], None]
    ) -> None:
        # Numbers of its pending operations: one or none.
        self.numbers: set[int] = set()
        self._questions = questions
        self._on_lost = on_lost
        self._link = Link(channel, self._hear, self._hang_up)

    @property
    def is_open(self) -> bool:
        return self._link.is_open

    async def send(self, message: Message, number: int, files: Sequence[int]) -> None:
        self.numbers.add(number)
        try:
            await self._link.send(message, files)
        except BaseException:
            self.numbers.discard(number)
            raise

    def read(self) -> None:
        self._link.read()

    def close(self) -> None:
        self._link.close()

    def _hear(self, message: Message, files: list[int]) -> None:
        number = int(str(message["id"]))
        self.numbers.discard(number)
        self._questions.answer(number, message, files)

    def _hang_up(self) -> None:
        numbers, self.numbers = self.numbers, set()
        for number in numbers:
            self._on_lost(number)
