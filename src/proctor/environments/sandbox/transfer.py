"""The runner's side of a file transfer, through a pipe to file_ops.py in the sandbox.

Small transfers are done in the event loop; for larger ones, a thread reads or writes the pipe.
"""

import asyncio
import errno
import fcntl
import os
import stat
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from io import BufferedReader, BytesIO, RawIOBase
from pathlib import Path
from typing import BinaryIO, Protocol, cast

from proctor.environments.sandbox.archive import (
    MOST_IN_MESSAGE,
    BrokenArchiveError,
    Limits,
    Sender,
    as_text,
)
from proctor.environments.sandbox.channel import Message
from proctor.environments.sandbox.link import settled
from proctor.errors import SandboxError, SlowTransferError

_PIECE = 1 << 18
# Bytes that are packed at once: a little less than the capacity of a pipe, 64 KiB.
_SMALL = 48 << 10
# Entries that are packed at once.
_FEW = 32
# Bytes after which a thread continues reading.
_MUCH = 1 << 18
PATIENCE_SEC = 120.0
BYTES_PER_SEC = 50e6
"""A download may take PATIENCE_SEC, plus one second for each BYTES_PER_SEC bytes received."""


class Asker(Protocol):
    """A connection to a sandbox."""

    async def pose(
        self, request: Mapping[str, object], *files: int
    ) -> tuple[int, asyncio.Future[Message]]:
        """Send a request, with open files that are always closed; return its number."""

    async def hear_out(self, number: int, answer: asyncio.Future[Message]) -> Message:
        """Wait for an answer; on cancellation, end the operation."""


@dataclass(frozen=True, slots=True)
class Outcome[Made]:
    """Result of our side of a transfer."""

    made: Made | None = None
    error: BaseException | None = None


async def put_files(asker: Asker, request: Mapping[str, object], source: Path) -> None:
    """Send a file or the contents of a directory.

    Raises:
        OSError: it cannot be read.
        SandboxError: the other side failed.
    """
    small = pack_small(str(source))
    if small is not None and len(small) <= MOST_IN_MESSAGE:
        number, answer = await asker.pose({**request, "archive": as_text(small)})
        check_transfer(Outcome(None), await asker.hear_out(number, answer))
        return
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
        # The sandbox has closed its end of the pipe, so the thread ends too.
        await settled(job)
    check_transfer(_outcome_of(job), message)


def _fits(pipe: int, data: bytes) -> bool:
    """Write all data to an empty pipe, or nothing if the pipe is too small."""
    if fcntl.fcntl(pipe, fcntl.F_GETPIPE_SZ) < len(data):
        return False
    return os.write(pipe, data) == len(data)


def pack_small(source: str) -> bytes | None:
    """Pack a few small files; None if there is more."""
    if not _is_small(source):
        return None
    buffer = BytesIO()
    Sender(buffer, Limits()).send(source)
    return buffer.getvalue() if buffer.tell() <= _SMALL else None


def _is_small(source: str) -> bool:
    """Whether a file is small, or a directory has few and small files."""
    status = os.stat(source)
    if not stat.S_ISDIR(status.st_mode):
        return status.st_size < _SMALL
    waiting, n_bytes, n_entries = [source], 0, 0
    while waiting:
        with suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                n_entries += 1
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                else:
                    n_bytes += entry.stat(follow_symlinks=False).st_size
                # Within a directory too: an agent can fill one with a million files.
                if n_bytes >= _SMALL or n_entries >= _FEW:
                    return False
    return True


def pack_into(write_end: int, source: Path) -> None:
    """Send a file or the contents of a directory."""
    with os.fdopen(write_end, "wb", _PIECE) as stream:
        Sender(stream, Limits()).send(str(source))


async def take_files[Made](
    asker: Asker, request: Mapping[str, object], work: Callable[[BinaryIO], Made]
) -> Made:
    """Request an archive, and return the result of `work` on it.

    Raises:
        FileNotFoundError: the source does not exist.
        OSError: raised by `work`.
        SlowTransferError: it took too long; the files received so far are kept.
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
        # Runs `work` on what was received so far.
        arrival.outcome()
        raise
    finally:
        await arrival.end()
    return check_transfer(arrival.outcome(), message)


@asynccontextmanager
async def _in_time[Made](arrival: "_Arrival[Made]") -> AsyncIterator[None]:
    """Limit the time of a download: an agent may have left files that are slow to read."""
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
    """Return the message for an incomplete download."""
    return f"took too long: given up after {seconds:.0f} s; the rest was not copied"


class _Arrival[Made]:
    """An incoming archive, read by the event loop, and by a thread if it gets long."""

    def __init__(self, pipe: int, work: Callable[[BinaryIO], Made]) -> None:
        # Number of bytes received.
        self.n_bytes = 0
        self._pipe = pipe
        self._is_over = False
        self._work = work
        self._data = bytearray()
        self._job: asyncio.Future[Made] | None = None
        self._loop = asyncio.get_running_loop()
        os.set_blocking(pipe, False)
        self._loop.add_reader(pipe, self._read)

    def _read(self) -> bool:
        """Read what is available; return whether there may be more."""
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
        """Read the rest, after the other side has finished. Can be called twice."""
        if self._is_over:
            return
        self._is_over = True
        while self._job is None and self._read():
            pass
        self._loop.remove_reader(self._pipe)
        try:
            if self._job is not None:
                await settled(self._job)
        finally:
            os.close(self._pipe)

    def outcome(self) -> Outcome[Made]:
        """Return the result; call it after `end`."""
        if self._job is not None:
            return _outcome_of(self._job)
        try:
            return Outcome(self._work(BytesIO(self._data)))
        except (OSError, BrokenArchiveError) as error:
            return Outcome(error=error)


class _Joined(RawIOBase):
    """Bytes in memory, followed by those of a stream."""

    def __init__(self, first: bytearray, rest: BinaryIO, count: Callable[[int], None]) -> None:
        self._first: memoryview = memoryview(bytes(first))
        self._rest = rest
        self._count = count

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Read as many bytes as are available, up to the buffer's size."""
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
    """Return the result of our side if both sides succeeded, or else raise the cause.

    Raises:
        OSError: our side could not read or write; FileNotFoundError also for theirs.
        SandboxError: theirs failed.
    """
    error = ours.error
    # A broken pipe or archive on our side is only the consequence of their failure.
    if error is not None and not isinstance(error, BrokenPipeError | BrokenArchiveError):
        raise error
    if theirs.get("errno") == errno.ENOENT:
        raise FileNotFoundError(errno.ENOENT, str(theirs["error"]))
    if "error" in theirs:
        raise SandboxError(str(theirs["error"]))
    if error is not None:
        raise SandboxError(str(error)) from error
    return cast("Made", ours.made)
