"""Messages between trials on nodes and the driver, through one actor of the job.

    worker                      actor                 driver
    Line.post   -> send      -> queue             -> receive
    Line.ask    -> ask       -> queue, waits      -> receive, answer
    Line.pull   <- pull      <- queue of a trial  <- push
    Line.wait_stop <- wait_stop <- stop of a trial <- stop

Everything goes through Ray's own connections, which its token protects: no port is opened. Queues
are bounded, so that a slow driver slows down its trials and not the node of the actor. All messages
are bytes of the formats below.
"""

import asyncio
import contextlib
from typing import Any, Final

import msgspec
from ray.exceptions import RayError

MOST_QUEUED: Final = 64 << 20
"""Bytes that wait for the driver, and for one trial; more waits where it comes from."""
_POLL_SEC: Final = 10.0
_STOP_SEC: Final = 60.0
# Events of a short trial are sent together.
_GATHER_SEC: Final = 0.05


class Began(msgspec.Struct, frozen=True, tag="began"):
    """A worker has taken the trial."""

    node: str
    """Name of its machine."""
    node_id: str
    """Ray's id of the node."""
    pid: int


class Phase(msgspec.Struct, frozen=True, tag="phase"):
    """A phase of the trial begins."""

    name: str


class Live(msgspec.Struct, frozen=True, tag="live"):
    """What was added to one of the trial's files; without `at`, all of it."""

    name: str
    data: bytes
    at: int | None = None


class Piece(msgspec.Struct, frozen=True, tag="piece"):
    """The next bytes of the archive with everything that the trial left."""

    data: bytes


class Stream(msgspec.Struct, frozen=True, tag="stream"):
    """Bytes of a connection to the model gateway; None: this side has ended it."""

    number: int
    data: bytes | None


class Asked(msgspec.Struct, frozen=True, tag="asked"):
    """A question of the trial, which waits for its answer."""

    number: int
    question: bytes


type Message = Began | Phase | Live | Piece | Stream | Asked

encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Message).decode


def decode(data: bytes) -> Message:
    """Decode a message.

    Raises:
        msgspec.MsgspecError: it is none.
    """
    message: Message = _decode(data)
    return message


class _Queue:
    """Bytes that wait to be taken; those that put them wait if there are too many."""

    def __init__(self) -> None:
        self._items: list[Any] = []
        self._size = 0
        self._changed = asyncio.Condition()

    async def put(self, items: list[Any], size: int) -> None:
        async with self._changed:
            await self._changed.wait_for(lambda: self._size < MOST_QUEUED)
            self._items += items
            self._size += size
            self._changed.notify_all()

    async def take(self) -> list[Any]:
        """Everything that waits; empty if nothing comes for a while."""
        async with self._changed:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_POLL_SEC):
                    await self._changed.wait_for(lambda: bool(self._items))
            items, self._items, self._size = self._items, [], 0
            self._changed.notify_all()
            return items


class Link:
    """The actor. Knows nothing of what it passes on."""

    def __init__(self) -> None:
        self._to_driver = _Queue()
        self._to_trials: dict[str, _Queue] = {}
        self._waiting: dict[int, asyncio.Future[bytes]] = {}
        self._n_asked = 0
        self._stops: dict[str, asyncio.Event] = {}

    async def send(self, key: str, messages: list[bytes]) -> None:
        """Take messages of a trial for the driver."""
        mail = [(key, data) for data in messages]
        await self._to_driver.put(mail, sum(map(len, messages)))

    async def receive(self) -> list[tuple[str, bytes]]:
        """Return messages for the driver, as soon as there are any."""
        return await self._to_driver.take()

    async def ask(self, key: str, question: bytes) -> bytes:
        """Pass a question on to the driver, and return its answer."""
        self._n_asked += 1
        number = self._n_asked
        waiting = self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            await self.send(key, [encode(Asked(number, question))])
            answer: bytes = await waiting
            return answer
        finally:
            del self._waiting[number]

    async def answer(self, number: int, reply: bytes) -> None:
        """Answer a question, if somebody still waits for it."""
        waiting = self._waiting.get(number)
        if waiting is not None and not waiting.done():
            waiting.set_result(reply)

    async def push(self, key: str, messages: list[bytes]) -> None:
        """Take messages of the driver for a trial."""
        await self._queue_of(key).put(messages, sum(map(len, messages)))

    async def pull(self, key: str) -> list[bytes]:
        """Return messages for a trial, as soon as there are any."""
        return await self._queue_of(key).take()

    async def wait_stop(self, key: str) -> bool:
        """Return whether a trial is to stop: waits a while for it, then answers no."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_STOP_SEC):
                await self._stop_of(key).wait()
        return self._stop_of(key).is_set()

    async def stop(self, key: str) -> None:
        """Stop a trial, whether it runs already or not; drop what waits for it."""
        self._to_trials.pop(key, None)
        self._stop_of(key).set()

    def _stop_of(self, key: str) -> asyncio.Event:
        return self._stops.setdefault(key, asyncio.Event())

    def _queue_of(self, key: str) -> _Queue:
        return self._to_trials.setdefault(key, _Queue())


class Line:
    """One trial's end of the link, in a worker."""

    def __init__(self, actor: Any, key: str) -> None:
        self._actor, self._key = actor, key
        self._waiting: list[bytes] = []
        self._sending: asyncio.Task[None] | None = None

    def post(self, message: Message) -> None:
        """Send a message soon, in order, without waiting for it."""
        self._waiting.append(encode(message))
        if self._sending is None:
            self._sending = asyncio.ensure_future(self._send())

    async def deliver(self, message: Message) -> None:
        """Send a message after those that were posted, and wait until it is on its way."""
        self._waiting.append(encode(message))
        await self.flush()

    async def flush(self) -> None:
        """Wait until everything is on its way."""
        while self._sending is not None or self._waiting:
            if self._sending is None:
                self._sending = asyncio.ensure_future(self._send(gather=False))
            await asyncio.wait({self._sending})

    async def _send(self, *, gather: bool = True) -> None:
        try:
            if gather:
                await asyncio.sleep(_GATHER_SEC)
            while self._waiting:
                messages, self._waiting = self._waiting, []
                await self._actor.send.remote(self._key, messages)
        finally:
            self._sending = None

    async def ask(self, question: bytes) -> bytes:
        """Ask the driver."""
        reply: bytes = await self._actor.ask.remote(self._key, question)
        return reply

    async def pull(self) -> list[bytes]:
        """Return what the driver sent, as soon as there is something."""
        messages: list[bytes] = await self._actor.pull.remote(self._key)
        return messages

    async def wait_stop(self) -> None:
        """Return when the driver wants the trial to stop, or when there is no driver any more."""
        with contextlib.suppress(RayError):
            while not await self._actor.wait_stop.remote(self._key):
                pass

    @property
    def actor(self) -> Any:
        """The actor, for questions that cannot wait in the event loop."""
        return self._actor

    @property
    def key(self) -> str:
        """Whose end it is."""
        return self._key
