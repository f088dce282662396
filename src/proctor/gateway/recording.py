"""<trial>/agent/model-calls.jsonl: every exchange with a model as it was on the wire.

A line is one exchange. Headers are left out, and so are credentials: a file is a cassette from
which the same requests can be answered again (see replay.py). Each request of a conversation
repeats the one before, so a body is stored as what differs from an earlier body of the file: the
file grows as the conversation does, and bodies are read back to the byte.
"""

import errno
import os
import stat
from base64 import b64decode, b64encode
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from proctor.digest import sha256_hex
from proctor.errors import TraceError
from proctor.files import write_all

VERSION: Final = 1
FORMAT: Final = "proctor-model-calls"
# Earlier bodies to which a body is compared: as many conversations may take turns.
_WINDOW: Final = 16
# Shared bytes that are worth a reference.
_LEAST_SHARED: Final = 64
_LARGEST_LINE: Final = 1 << 28
# Bytes of earlier bodies that are held: there may be hundreds of trials.
_LARGEST_WINDOW: Final = 1 << 25
# Bytes of an earlier body that a body may leave out if it continues its conversation.
_MOST_LEFT_OUT: Final = 256
_BLOCK: Final = 1 << 14
_LARGEST_COPY: Final = 1 << 20


class Header(msgspec.Struct, frozen=True):
    """The first line."""

    version: int = VERSION
    format: str = FORMAT


class StoredBytes(msgspec.Struct, frozen=True, omit_defaults=True):
    """Bytes, as text if they are UTF-8; as the middle part of bytes that share both ends."""

    text: str | None = None
    base64: str | None = None
    like: str | None = None
    """SHA-256 of the earlier body whose beginning and end they share."""
    n_first: int = 0
    """Bytes shared at the beginning."""
    n_last: int = 0
    """Bytes shared at the end."""
    n_cut: int = 0
    """Bytes at the end that were not kept."""


class Retry(msgspec.Struct, frozen=True, omit_defaults=True):
    """A try that failed and was repeated."""

    at: str
    status: int | None
    """None if there was no answer."""
    reason: str
    waited: float
    """Seconds until the next try."""


class Call(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One exchange."""

    number: int
    """From 1, in the order in which the requests came."""
    at: str
    """When the request came, UTC."""
    provider: str
    address: str
    """Base URL of the provider."""
    method: str
    path: str
    """Path and query below the provider's address, without keys."""
    wire: str | None = None
    """The protocol; null: not one that is understood."""
    request: StoredBytes = StoredBytes()
    request_sha256: str = ""
    edits: tuple[str, ...] = ()
    """What was changed in the request before it was sent; `request` is as the client sent it."""
    status: int | None = None
    """null: no answer."""
    content_type: str | None = None
    encoding: str | None = None
    """Content encoding of the answer, if it is compressed."""
    response: StoredBytes = StoredBytes()
    seconds: float = 0.0
    first_byte_seconds: float | None = None
    retries: tuple[Retry, ...] = ()
    ended: str = "complete"
    """complete, client-gone, cut (by the provider), failed, stopped (the phase ended), refused (by
    a limit), differs (from the recording that is replayed)."""
    note: str | None = None
    """Why it was refused or failed, or what could not be understood."""
    is_replayed: bool = False
    """Whether it was answered from a recording."""


class CallWriter:
    """Writes the file of one account. A line is in the file when the call returns."""

    def __init__(self, path: str) -> None:
        """Raises OSError if it cannot be opened."""
        self.path = path
        self._fd = open_evidence(path)
        self._bodies: OrderedDict[str, bytes] = OrderedDict()

    def append(self, call: Call, request: bytes, response: bytes) -> None:
        """Write one exchange with its bodies; an exchange that is not written leaves nothing."""
        digest = sha256_hex(request)
        whole = msgspec.structs.replace(
            call,
            # By the bodies of earlier lines: answers may come in another order than requests.
            request=_shorten(request, digest, self._bodies),
            request_sha256=digest,
            response=msgspec.structs.replace(_plain(response), n_cut=call.response.n_cut),
        )
        append_lines(self._fd, msgspec.json.encode(Header()), [msgspec.json.encode(whole)])
        _remember(self._bodies, whole, request)

    def close(self) -> None:
        """Close the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def open_evidence(path: str) -> int:
    """Open a file for lines at its end, and return its descriptor.

    An agent may have written to the directory: what is not a plain file is refused, at once.

    Raises:
        OSError: it cannot be opened, or is a link, a pipe or a device.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    fd = os.open(path, flags, 0o644)
    found = os.fstat(fd)
    if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
        os.close(fd)
        raise OSError(errno.EINVAL, "not a file of its own", path)
    return fd


def append_lines(fd: int, header: bytes, lines: Iterable[bytes]) -> None:
    """Write lines to the end of a file, all or none; after the header, if it is empty.

    Raises:
        OSError: the disk cannot take them.
    """
    size = os.fstat(fd).st_size
    parts = [part for line in (*([] if size else [header]), *lines) for part in (line, b"\n")]
    try:
        # Large lines are not copied once more.
        is_small = sum(map(len, parts)) < _LARGEST_COPY
        for part in [b"".join(parts)] if is_small else parts:
            write_all(fd, part)
    except OSError:
        # The beginning of a line would spoil the one after it.
        os.ftruncate(fd, size)
        raise


class Place(msgspec.Struct, frozen=True):
    """Where a line is in its file."""

    offset: int
    n_bytes: int


class RecordedCall(msgspec.Struct, frozen=True):
    """An exchange read back."""

    call: Call
    request: bytes
    response: bytes
    place: Place = Place(0, 0)


class ScannedCall(msgspec.Struct, frozen=True):
    """The parts of an exchange that say whom it was with."""

    at: str
    provider: str
    address: str


def read_calls(path: str) -> Iterator[RecordedCall]:
    """Yield the exchanges of a file, in its order; a torn last line is left out."""
    bodies: OrderedDict[str, bytes] = OrderedDict()
    for place, line in _read_lines(path):
        with _explained(path, place):
            recorded = _read_call(line, bodies)
        yield msgspec.structs.replace(recorded, place=place)


def scan_calls(path: str) -> Iterator[ScannedCall]:
    """Yield whom each exchange of a file was with, without reading what was said."""
    for place, line in _read_lines(path):
        with _explained(path, place):
            scanned = msgspec.json.decode(line, type=ScannedCall)
        yield scanned


def read_at(path: str, place: Place) -> RecordedCall:
    """Read one exchange, without its request.

    Raises:
        TraceError: it cannot be read, or is not there.
    """
    try:
        with Path(path).open("rb") as file:
            file.seek(place.offset)
            line = file.read(place.n_bytes)
    except OSError as error:
        raise TraceError(f"{path}: {error.strerror}") from error
    with _explained(path, place):
        call = msgspec.json.decode(line, type=Call)
        return RecordedCall(call, b"", _restore(call.response, OrderedDict()), place)


def _read_lines(path: str) -> Iterator[tuple[Place, bytes]]:
    """Yield the lines after the header."""
    offset = 0
    try:
        with Path(path).open("rb") as file:
            while line := file.readline(_LARGEST_LINE + 1):
                place = Place(offset, len(line))
                if len(line) > _LARGEST_LINE:
                    raise TraceError(f"{path}: a line has more than {_LARGEST_LINE:,} bytes")
                if offset == 0:
                    _check_header(path, line)
                elif line.endswith(b"\n"):
                    yield place, line
                offset += len(line)
    except OSError as error:
        raise TraceError(f"{path}: {error.strerror}") from error
    if offset == 0:
        raise TraceError(f"{path}: is empty; expected {FORMAT}")


@contextmanager
def _explained(path: str, place: Place) -> Iterator[None]:
    try:
        yield
    except (msgspec.MsgspecError, UnicodeError, RecursionError, ValueError) as error:
        raise TraceError(
            f"{path}: byte {place.offset:,}: {error}; expected an exchange with a model"
        ) from error


def _check_header(path: str, line: bytes) -> None:
    try:
        header = msgspec.json.decode(line, type=Header)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise TraceError(f"{path}: {error}; expected {FORMAT} {VERSION}") from error
    if header != Header():
        raise TraceError(f"{path}: is {header.format} {header.version}; expected {FORMAT}")


def _read_call(line: bytes, bodies: OrderedDict[str, bytes]) -> RecordedCall:
    call = msgspec.json.decode(line, type=Call)
    body = _restore(call.request, bodies)
    if sha256_hex(body) != call.request_sha256:
        raise ValueError("the request's digest differs")
    _remember(bodies, call, body)
    return RecordedCall(call, body, _restore(call.response, bodies))


def _restore(stored: StoredBytes, bodies: OrderedDict[str, bytes]) -> bytes:
    own = b64decode(stored.base64) if stored.base64 is not None else (stored.text or "").encode()
    if stored.like is None:
        return own
    base = bodies.get(stored.like)
    if base is None or min(stored.n_first, stored.n_last) < 0:
        raise ValueError("refers to a request that is not there")
    # Otherwise each line of an edited file could double the one before.
    if stored.n_first + stored.n_last > len(base):
        raise ValueError("shares more bytes than there are")
    end = base[len(base) - stored.n_last :] if stored.n_last else b""
    return base[: stored.n_first] + own + end


def _remember(bodies: OrderedDict[str, bytes], call: Call, body: bytes) -> None:
    # Writer and reader must forget the same ones.
    like, shared = call.request.like, call.request.n_first + call.request.n_last
    if like is not None and len(bodies[like]) - shared <= _MOST_LEFT_OUT:
        # The conversation goes on from this body.
        del bodies[like]
    bodies[call.request_sha256] = body
    bodies.move_to_end(call.request_sha256)
    while bodies and (len(bodies) > _WINDOW or sum(map(len, bodies.values())) > _LARGEST_WINDOW):
        bodies.popitem(last=False)


def _shorten(body: bytes, digest: str, bodies: OrderedDict[str, bytes]) -> StoredBytes:
    if digest in bodies:
        return StoredBytes(text="", like=digest, n_first=len(body))
    best, shared = "", (0, 0)
    for other, base in reversed(bodies.items()):
        ends = _find_shared(base, body)
        if sum(ends) > sum(shared):
            best, shared = other, ends
        if len(base) - sum(ends) <= _MOST_LEFT_OUT and sum(ends) >= len(body) // 2:
            break
    n_first, n_last = shared
    if n_first + n_last < _LEAST_SHARED:
        return _plain(body)
    middle = _plain(body[n_first : len(body) - n_last])
    return msgspec.structs.replace(middle, like=best, n_first=n_first, n_last=n_last)


def _find_shared(one: bytes, other: bytes) -> tuple[int, int]:
    """Return how many bytes two texts share at the beginning, and then at the end."""
    most = min(len(one), len(other))
    first = _count_same(most, lambda start, end: one[start:end] == other[start:end])
    # Not inside a character: the middle part has to be text.
    while 0 < first < len(other) and other[first] & 0xC0 == 0x80:
        first -= 1
    ends = len(one), len(other)
    last = _count_same(
        most - first,
        lambda start, end: (
            one[ends[0] - end : ends[0] - start] == other[ends[1] - end : ends[1] - start]
        ),
    )
    while last > 0 and other[len(other) - last] & 0xC0 == 0x80:
        last -= 1
    return first, last


def _count_same(most: int, is_same: Callable[[int, int], bool]) -> int:
    """Return how many bytes are the same, from the first: block by block, then within a block."""
    start = 0
    while start < most and is_same(start, min(start + _BLOCK, most)):
        start = min(start + _BLOCK, most)
    rest = range(start + 1, min(start + _BLOCK, most) + 1)
    return start + bisect_left(rest, x=True, key=lambda end: not is_same(start, end))


def _plain(body: bytes) -> StoredBytes:
    try:
        return StoredBytes(text=body.decode())
    except UnicodeDecodeError:
        return StoredBytes(base64=b64encode(body).decode())
