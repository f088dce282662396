"""The runner's side of a transfer: our end of a pipe, and which of two errors counts.

What is small is done at once; for what is not, a thread reads or writes, so that the event loop
goes on. What is at the other end is file_ops.py, in the sandbox.
"""

import asyncio
import errno
import fcntl
import os
import stat
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from io import BufferedReader, BytesIO, RawIOBase
from pathlib import Path
from typing import BinaryIO, Protocol, cast

from proctor.digest import sha256_pieces
from proctor.environments.sandbox.archive import (
    FILE,
    REFUSED,
    BrokenArchiveError,
    Limits,
    Receiver,
    Sender,
)
from proctor.environments.sandbox.channel import Message
from proctor.environments.sandbox.link import settled
from proctor.errors import SandboxError, SlowTransferError

_PIECE = 1 << 18
_SMALL = 48 << 10
"""What is packed at once at most; a pipe holds a little more."""
_FEW = 32
_MUCH = 1 << 18
"""After so many bytes a thread reads on."""
PATIENCE_SEC = 120.0
BYTES_PER_SEC = 50e6
"""What comes out has so many seconds, and one more for each so many bytes that came."""


class Asker(Protocol):
    """Somebody in a sandbox to ask."""

    async def pose(
        self, request: Mapping[str, object], file: int | None = None
    ) -> tuple[int, asyncio.Future[Message]]:
        """Ask something, with an open file that is closed whatever comes of it."""
        ...

    async def hear_out(self, number: int, answer: asyncio.Future[Message]) -> Message:
        """Wait for an answer; when nobody waits any more, end what was to give it."""
        ...


@dataclass(frozen=True, slots=True)
class Outcome[Made]:
    """What came of our side of a transfer."""

    made: Made | None = None
    error: BaseException | None = None


async def put_files(asker: Asker, request: Mapping[str, object], source: Path) -> None:
    """Send a file or the contents of a directory.

    Raises:
        OSError: it cannot be read.
        SandboxError: the other side failed.
    """
    small = pack_small(str(source))
    theirs, ours = os.pipe2(os.O_CLOEXEC)
    if small is not None and _fits(ours, small):
        os.close(ours)
        number, answer = await asker.pose(request, theirs)
        check_transfer(Outcome(None), await asker.hear_out(number, answer))
        return
    try:
        number, answer = await asker.pose(request, theirs)
    except BaseException:
        os.close(ours)
        raise
    job = asyncio.get_running_loop().run_in_executor(None, pack_into, ours, source)
    try:
        message = await asker.hear_out(number, answer)
    finally:
        # The other end of its pipe is closed: the thread ends too.
        await settled(job)
    check_transfer(_outcome_of(job), message)


def _fits(pipe: int, data: bytes) -> bool:
    """Put all of it into an empty pipe, or nothing: one may be as small as a page."""
    if fcntl.fcntl(pipe, fcntl.F_GETPIPE_SZ) < len(data):
        return False
    return os.write(pipe, data) == len(data)


def pack_small(source: str) -> bytes | None:
    """An archive of a few small files; None where it would be more than that.

    Raises:
        OSError: it is not there.
    """
    if not _is_small(source):
        return None
    buffer = BytesIO()
    Sender(buffer, Limits()).send(source)
    return buffer.getvalue() if buffer.tell() <= _SMALL else None


def _is_small(source: str) -> bool:
    status = os.stat(source)
    if not stat.S_ISDIR(status.st_mode):
        return status.st_size < _SMALL
    waiting, n_bytes, n_entries = [source], 0, 0
    while waiting and n_bytes < _SMALL and n_entries < _FEW:
        with suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                n_entries += 1
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                else:
                    n_bytes += entry.stat(follow_symlinks=False).st_size
    return n_bytes < _SMALL and n_entries < _FEW


def pack_into(write_end: int, source: Path) -> None:
    """Send a file or the contents of a directory."""
    with os.fdopen(write_end, "wb", _PIECE) as stream:
        Sender(stream, Limits()).send(str(source))


async def take_files[Made](
    asker: Asker, request: Mapping[str, object], work: Callable[[BinaryIO], Made]
) -> Made:
    """Ask for an archive, and have something done with it.

    Raises:
        FileNotFoundError: there is nothing to be sent.
        OSError: whatever `work` raises.
        SlowTransferError: it took too long; what came in time is kept.
        SandboxError: the other side failed.
    """
    ours, theirs = os.pipe2(os.O_CLOEXEC)
    arrival = _Arrival(ours, work)
    try:
        async with _in_time(arrival):
            number, answer = await asker.pose(request, theirs)
            message = await asker.hear_out(number, answer)
    except SlowTransferError:
        await arrival.end()
        # What came in time is kept.
        arrival.outcome()
        raise
    finally:
        await arrival.end()
    return check_transfer(arrival.outcome(), message)


@asynccontextmanager
async def _in_time[Made](arrival: "_Arrival[Made]") -> AsyncIterator[None]:
    """Give up what does not arrive: what an agent left may be slow to read, or slowed down by it.

    Raises:
        SlowTransferError: it took too long.
    """
    loop = asyncio.get_running_loop()
    begun, limit = loop.time(), asyncio.timeout(None)
    timer: asyncio.TimerHandle

    def check() -> None:
        nonlocal timer
        until = begun + PATIENCE_SEC + arrival.n_bytes / BYTES_PER_SEC
        if loop.time() >= until:
            limit.reschedule(loop.time())
        else:
            timer = loop.call_at(until, check)

    timer = loop.call_later(PATIENCE_SEC, check)
    try:
        async with limit:
            yield
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise SlowTransferError(explain_slow(loop.time() - begun)) from error
    finally:
        timer.cancel()


def explain_slow(seconds: float) -> str:
    """Why something was not fetched to its end."""
    return f"took too long: given up after {seconds:.0f} s; what had not come by then is left"


class _Arrival[Made]:
    """An archive that comes: read by the event loop, or by a thread from where it gets long."""

    def __init__(self, pipe: int, work: Callable[[BinaryIO], Made]) -> None:
        self.n_bytes = 0
        """How much has come."""
        self._pipe = pipe
        self._is_over = False
        self._work = work
        self._data = bytearray()
        self._job: asyncio.Future[Made] | None = None
        self._loop = asyncio.get_running_loop()
        os.set_blocking(pipe, False)
        self._loop.add_reader(pipe, self._read)

    def _read(self) -> bool:
        """Read what is there; whether there may be more."""
        try:
            data = os.read(self._pipe, _PIECE)
        except BlockingIOError:
            return False
        self._data += data
        self.n_bytes += len(data)
        if not data:
            self._loop.remove_reader(self._pipe)
        elif len(self._data) > _MUCH:
            self._loop.remove_reader(self._pipe)
            self._job = self._loop.run_in_executor(None, self._do)
            return False
        return bool(data)

    def _do(self) -> Made:
        os.set_blocking(self._pipe, True)
        with open(self._pipe, "rb", 0, closefd=False) as rest:
            joined = _Joined(self._data, rest, self._count)
            return self._work(cast("BinaryIO", BufferedReader(joined, _PIECE)))

    def _count(self, n_bytes: int) -> None:
        self.n_bytes += n_bytes

    async def end(self) -> None:
        """Read what is left of it; the other side is done. May be called twice."""
        if self._is_over:
            return
        self._is_over = True
        while self._job is None and self._read():
            pass
        self._loop.remove_reader(self._pipe)
        if self._job is not None:
            await settled(self._job)
        os.close(self._pipe)

    def outcome(self) -> Outcome[Made]:
        """What came of it; called after its end."""
        if self._job is not None:
            return _outcome_of(self._job)
        try:
            return Outcome(self._work(BytesIO(self._data)))
        except (OSError, BrokenArchiveError) as error:
            return Outcome(error=error)


class _Joined(RawIOBase):
    """Bytes at hand, and after them those of a stream."""

    def __init__(self, first: bytearray, rest: BinaryIO, count: Callable[[int], None]) -> None:
        self._first: memoryview = memoryview(bytes(first))
        self._rest = rest
        self._count = count

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """As many bytes as there are, up to the buffer's size."""
        if self._first:
            n_taken = min(len(buffer), len(self._first))
            buffer[:n_taken] = self._first[:n_taken]
            self._first = self._first[n_taken:]
            return n_taken
        data = self._rest.read(len(buffer))
        buffer[: len(data)] = data
        self._count(len(data))
        return len(data)


def _outcome_of[Made](job: asyncio.Future[Made]) -> Outcome[Made]:
    error = job.exception()
    return Outcome(job.result()) if error is None else Outcome(error=error)


def check_transfer[Made](ours: Outcome[Made], theirs: Message) -> Made:
    """What came of our side, if both sides did well.

    Raises:
        OSError: our side could not read or write; FileNotFoundError also when theirs could not.
        SandboxError: theirs failed.
    """
    error = ours.error
    if error is not None and not isinstance(error, BrokenPipeError | BrokenArchiveError):
        raise error
    if theirs.get("errno") == errno.ENOENT:
        raise FileNotFoundError(errno.ENOENT, str(theirs["error"]))
    if "error" in theirs:
        raise SandboxError(str(theirs["error"]))
    if error is not None:
        raise SandboxError(str(error)) from error
    return cast("Made", ours.made)


@dataclass(frozen=True, slots=True)
class Seen:
    """A file that lies in a sandbox."""

    path: str
    size: int | None
    """None for what is no plain file."""
    sha256: str | None
    """None for what is no plain file, or too large to be sent."""


def receive_listing(stream: BinaryIO) -> Sequence[Seen]:
    """The files of a listing.

    Raises:
        BrokenArchiveError: it is none.
    """
    receiver = Receiver(stream)
    seen = []
    for entry in receiver.entries():
        if entry.kind == FILE:
            seen.append(Seen(entry.name, entry.size, sha256_pieces(receiver.pieces())))
        elif entry.kind == REFUSED:
            size = receiver.text()
            seen.append(Seen(entry.name, int(size) if size.isdecimal() else None, None))
        else:
            raise BrokenArchiveError(f"{entry.name}: no line of a listing")
    return seen
