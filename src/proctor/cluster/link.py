"""Messages between trials on nodes and the driver, through one actor of the job.

    worker                      actor                 driver
    Line.post   -> send      -> queue             -> receive
    Line.ask    -> ask       -> queue, waits      -> receive, answer
    Line.pull   <- pull      <- queue of a trial  <- push
    Line.wait_stop <- wait_stop <- stop of a trial <- stop

A connection to the actor may break and come back, as when another node dies. A call that was cut
off is made again, and may have been carried out: messages and batches are numbered, so that none is
lost or taken twice. Only `ask` is not: a question that is cut off ends the trial with an error.

The actor knows a trial from `begin` to `end` and forgets it then: to a worker whose trial it does
not know, it says that the trial is stopped.

Everything goes through Ray's own connections, which its token protects: no port is opened. Queues
are bounded, so that a slow driver slows down its trials and not the node of the actor. All messages
are bytes of the formats below.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

import msgspec
from ray.exceptions import ActorUnavailableError, RayError

from proctor.errors import WorkerLostError

MOST_QUEUED: Final = 64 << 20
"""Bytes that wait for the driver, and for one trial; more waits where it comes from."""
_POLL_SEC: Final = 10.0
_STOP_SEC: Final = 60.0
# Events of a short trial are sent together.
_GATHER_SEC: Final = 0.05
_TRIES: Final = 10
_RETRY_SEC: Final = 1.0


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
    """Decode a message."""
    message: Message = _decode(data)
    return message


async def call_again[Value](call: Callable[[], Awaitable[Value]]) -> Value:
    """Call the actor, again if the connection to it broke."""
    for _ in range(_TRIES):
        with contextlib.suppress(ActorUnavailableError):
            return await call()
        await asyncio.sleep(_RETRY_SEC)
    return await call()


class _Queue:
    """Bytes that wait to be taken; those that put them wait if there are too many."""

    def __init__(self) -> None:
        self._items: list[Any] = []
        self._size = 0
        self._changed = asyncio.Condition()
        # The batch that was taken last, with its number.
        self._given: tuple[int, list[Any]] = (-1, [])
        self._giving = asyncio.Lock()

    async def put(self, items: list[Any], size: int) -> None:
        async with self._changed:
            await self._changed.wait_for(lambda: self._size < MOST_QUEUED)
            self._items += items
            self._size += size
            self._changed.notify_all()

    async def take(self, number: int) -> list[Any]:
        """Everything that waits; empty if nothing comes for a while; for a number again, the same.

        An earlier call with this number may still wait here, or come after the next one: nobody
        reads its answer then, so it takes nothing.
        """
        async with self._giving:
            if number > self._given[0]:
                self._given = number, await self._take()
            return self._given[1]

    async def _take(self) -> list[Any]:
        async with self._changed:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_POLL_SEC):
                    await self._changed.wait_for(lambda: bool(self._items))
            items, self._items, self._size = self._items, [], 0
            self._changed.notify_all()
            return items


class _Numbers:
    """Tells messages of one sender that are new from those that are sent again."""

    def __init__(self) -> None:
        self._n_taken = 0

    def find_new(self, first: int, messages: list[bytes]) -> list[bytes]:
        """Those of the messages that were not taken yet; counts them."""
        n_known = max(self._n_taken - first, 0)
        self._n_taken = max(self._n_taken, first + len(messages))
        return messages[n_known:]


class _Trial:
    """What the actor holds of a trial."""

    def __init__(self) -> None:
        self.queue = _Queue()
        self.stopped = asyncio.Event()
        # Messages of the trial, and of the driver for it.
        self.sent, self.pushed = _Numbers(), _Numbers()


class Link:
    """The actor. Knows nothing of what it passes on."""

    def __init__(self) -> None:
        self._to_driver = _Queue()
        self._trials: dict[str, _Trial] = {}
        self._waiting: dict[int, asyncio.Future[bytes]] = {}
        self._n_asked = 0

    async def begin(self, key: str) -> None:
        """Pass on what a trial and the driver send to each other, from here to `end`."""
        self._trials.setdefault(key, _Trial())

    async def send(self, key: str, first: int, messages: list[bytes]) -> None:
        """Take messages of a trial for the driver; `first` is the number of the first one."""
        if trial := self._trials.get(key):
            await self._post(key, trial.sent.find_new(first, messages))

    async def _post(self, key: str, messages: list[bytes]) -> None:
        mail = [(key, data) for data in messages]
        await self._to_driver.put(mail, sum(map(len, messages)))

    async def receive(self, number: int) -> list[tuple[str, bytes]]:
        """Return messages for the driver as soon as there are any; for a number again, the same."""
        return await self._to_driver.take(number)

    async def ask(self, key: str, question: bytes) -> bytes:
        """Pass a question on to the driver, and return its answer."""
        self._n_asked += 1
        number = self._n_asked
        waiting = self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            await self._post(key, [encode(Asked(number, question))])
            answer: bytes = await waiting
            return answer
        finally:
            del self._waiting[number]

    async def answer(self, number: int, reply: bytes) -> None:
        """Answer a question, if somebody still waits for it."""
        waiting = self._waiting.get(number)
        if waiting is not None and not waiting.done():
            waiting.set_result(reply)

    async def push(self, key: str, first: int, messages: list[bytes]) -> None:
        """Take messages of the driver for a trial; `first` is the number of the first one."""
        if trial := self._trials.get(key):
            new = trial.pushed.find_new(first, messages)
            await trial.queue.put(new, sum(map(len, new)))

    async def pull(self, key: str, number: int) -> list[bytes]:
        """Return messages for a trial as soon as there are any; for a number again, the same."""
        if trial := self._trials.get(key):
            return await trial.queue.take(number)
        await asyncio.sleep(_POLL_SEC)
        return []

    async def wait_stop(self, key: str) -> bool:
        """Return whether a trial is to stop: waits a while for it, then answers no."""
        trial = self._trials.get(key)
        if trial is None:
            return True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_STOP_SEC):
                await trial.stopped.wait()
        return trial.stopped.is_set()

    async def stop(self, key: str) -> None:
        """Stop a trial, whether it runs already or not; drop what waits for it."""
        if trial := self._trials.get(key):
            trial.queue = _Queue()
            trial.stopped.set()

    async def end(self, key: str) -> None:
        """Forget a trial, and stop it if it runs on without the driver."""
        await self.stop(key)
        self._trials.pop(key, None)


class Line:
    """One trial's end of the link, in a worker."""

    def __init__(self, actor: Any, key: str) -> None:
        self._actor, self._key = actor, key
        self._waiting: list[bytes] = []
        self._n_sent = 0
        self._n_pulled = 0
        self._sending: asyncio.Task[None] | None = None
        self._is_lost = False

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
        """Wait until everything is on its way.

        Raises:
            WorkerLostError: the driver cannot be reached any more.
        """
        while self._sending is not None or self._waiting:
            if self._sending is None:
                self._sending = asyncio.ensure_future(self._send(gather=False))
            await asyncio.wait({self._sending})
        if self._is_lost:
            raise WorkerLostError("it lost its connection to the driver")

    async def _send(self, *, gather: bool = True) -> None:
        try:
            if gather:
                await asyncio.sleep(_GATHER_SEC)
            while self._waiting:
                messages, self._waiting = self._waiting, []
                first, self._n_sent = self._n_sent, self._n_sent + len(messages)
                send = partial(self._actor.send.remote, self._key, first, messages)
                await call_again(send)
        except RayError:
            self._is_lost = True
        finally:
            self._sending = None

    async def ask(self, question: bytes) -> bytes:
        """Ask the driver."""
        reply: bytes = await self._actor.ask.remote(self._key, question)
        return reply

    async def pull(self) -> list[bytes]:
        """Return what the driver sent, as soon as there is something."""
        pull = partial(self._actor.pull.remote, self._key, self._n_pulled)
        messages: list[bytes] = await call_again(pull)
        self._n_pulled += 1
        return messages

    async def wait_stop(self) -> None:
        """Return when the driver wants the trial to stop, or cannot be reached any more."""
        wait = partial(self._actor.wait_stop.remote, self._key)
        try:
            while not await call_again(wait):
                pass
        except RayError:
            self._is_lost = True

    @property
    def n_sent(self) -> int:
        """How many messages are on their way, or have arrived."""
        return self._n_sent

    @property
    def actor(self) -> Any:
        """The actor, for questions that cannot wait in the event loop."""
        return self._actor

    @property
    def key(self) -> str:
        """Whose end it is."""
        return self._key
