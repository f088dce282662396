"""Forwards connections from inside an environment to single ports of the host.

    program inside -> socket that listens in the environment's network -> runner -> port of the host

There is no route from the environment to the host, so nothing else of the host is reachable. Does
not make the listening socket: a sandbox and a container do that in different ways.
"""

import asyncio
import os
import resource
import socket
import struct
from contextlib import suppress
from functools import partial

LOOPBACK = "127.0.0.1"
"""Where the model gateway listens, on the host and inside environments."""
MOST_CONNECTIONS = 256
"""Concurrent connections of one environment. More wait in the kernel until one has ended."""

# Connections that an environment may have even if those of all environments use up their share of
# the runner's files: no agent can lock the others out.
_ALWAYS = 8
# A connection takes two files here, and two more if the gateway is part of this process.
_FILES_OF_CONNECTION = 4
# Connections that are accepted before other work of the runner gets its turn.
_AT_ONCE = 32
_TRY_AGAIN_SEC = 0.1
_CONNECT_SEC = 10.0
# SO_LINGER with a time of 0: closing resets the connection, so a cut answer is not taken for whole.
_RESET = struct.pack("ii", 1, 0)

# Connections of all environments of this process.
_ALL: set[asyncio.Task[None]] = set()


class Forwarder:
    """Forwards the connections of one environment."""

    def __init__(self) -> None:
        self.is_refusing = False
        """Whether new connections are reset at once."""
        self._listening: dict[socket.socket, tuple[str, int]] = {}
        self._connections: set[asyncio.Task[None]] = set()
        self._retry: asyncio.TimerHandle | None = None

    def listen(self, listening: socket.socket, address: str, port: int) -> None:
        """Forward connections to this socket, which is closed in the end, to a port of the host."""
        listening.setblocking(False)  # noqa: FBT003 - the name says it
        self._listening[listening] = address, port
        self._watch()

    async def end_connections(self) -> None:
        """End all connections."""
        ending = list(self._connections)
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)

    async def stop(self) -> None:
        """End all connections, and close the sockets."""
        self._unwatch()
        for listening in self._listening:
            listening.close()
        self._listening.clear()
        await self.end_connections()

    def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        for listening in self._listening:
            loop.add_reader(listening, self._accept, listening)

    def _unwatch(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        loop = asyncio.get_running_loop()
        for listening in self._listening:
            loop.remove_reader(listening)

    def _wait(self) -> None:
        """Leave further connections in the kernel's queue for a while."""
        self._unwatch()
        self._retry = asyncio.get_running_loop().call_later(_TRY_AGAIN_SEC, self._go_on)

    def _go_on(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
            self._watch()

    def _is_full(self) -> bool:
        n = len(self._connections)
        return n >= MOST_CONNECTIONS or (n >= _ALWAYS and len(_ALL) >= most_of_all())

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(_AT_ONCE):
            if not self.is_refusing and self._is_full():
                self._wait()
                return
            try:
                near, _ = listening.accept()
            except BlockingIOError:
                return
            except OSError:
                # The connection has ended already, or there are too many open files.
                self._wait()
                return
            if self.is_refusing:
                _reset(near)
                near.close()
                continue
            task = asyncio.ensure_future(_forward(near, *self._listening[listening]))
            self._connections.add(task)
            _ALL.add(task)
            task.add_done_callback(partial(self._forget, near))

    def _forget(self, near: socket.socket, task: asyncio.Task[None]) -> None:
        # Still open if the task was cancelled before it began.
        near.close()
        self._connections.discard(task)
        _ALL.discard(task)
        self._go_on()


def most_of_all() -> int:
    """Return how many connections all environments may have: half of the runner's open files."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft // (2 * _FILES_OF_CONNECTION)


class _Side(asyncio.Protocol):
    """One of the two connections; what it receives is written to the other."""

    def __init__(self, ended: asyncio.Future[None]) -> None:
        self.transport: asyncio.Transport | None = None
        self.other = self
        self.has_ended = False
        """Whether it will receive no more."""
        self._ended = ended

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - it is TCP
        self.transport = transport
        if self.other.transport is None:
            transport.pause_reading()
        else:
            self.other.transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        if self.other.transport is not None:
            self.other.transport.write(data)

    def pause_writing(self) -> None:
        if self.other.transport is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other.transport is not None:
            self.other.transport.resume_reading()

    def eof_received(self) -> bool:
        self.has_ended = True
        if self.transport is None or self.other.transport is None:
            return False
        if self.other.has_ended:
            # Both are closed when everything has been written.
            self.transport.close()
            self.other.transport.close()
            return True
        try:
            self.other.transport.write_eof()
        except OSError:
            # It was reset meanwhile.
            self._end()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        is_whole = exc is None and self.has_ended and self.other.has_ended
        self.transport = None
        if not is_whole or self.other.transport is None:
            self._end()

    def _end(self) -> None:
        if not self._ended.done():
            self._ended.set_result(None)


async def _forward(near: socket.socket, address: str, port: int) -> None:
    """Connect to the host, and copy in both directions until both sides have closed.

    If one side is reset, or this is cancelled, so is the other.
    """
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()
    inside, outside = _Side(ended), _Side(ended)
    inside.other, outside.other = outside, inside
    try:
        near.setblocking(False)  # noqa: FBT003 - the name says it
        async with asyncio.timeout(_CONNECT_SEC):
            await loop.create_connection(lambda: outside, address, port)
        await loop.connect_accepted_socket(lambda: inside, near)
        await ended
    except OSError:
        # The host refused it, or did not answer in time: `finally` resets the other side.
        pass
    finally:
        for side in (inside, outside):
            if side.transport is not None:
                _reset(side.transport.get_extra_info("socket"))
                side.transport.abort()
        # If it was never connected, the caller that opened this one closes it.
        _reset(near)


def _reset(connection: socket.socket) -> None:
    """Let closing a connection reset it."""
    with suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)


class ModelPort:
    """The way from one environment to the model gateway on the host's loopback.

    The socket listens as long as the environment exists, so that no program inside can listen at
    the same address and answer in place of a model. Connections are reset unless it is open.
    """

    def __init__(self, port: int, listening: int) -> None:
        """`listening`: a socket that listens in the environment's network; duplicated."""
        self._forwarder = Forwarder()
        self._forwarder.is_refusing = True
        self._forwarder.listen(socket.socket(fileno=os.dup(listening)), LOOPBACK, port)

    def open(self) -> None:
        """Forward new connections."""
        self._forwarder.is_refusing = False

    async def close(self) -> None:
        """Reset new connections, and end existing ones."""
        self._forwarder.is_refusing = True
        await self._forwarder.end_connections()

    async def end(self) -> None:
        """Close it for good."""
        await self._forwarder.stop()
