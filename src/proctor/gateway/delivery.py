"""What a client is given of an answer, and what is kept of it for the record. No I/O.

Real keys never enter the environment, a record, a trace or a log. A server that echoes its request,
a mirror for debugging, would hand the key to the agent: in what is delivered, whole or streamed,
and in what is recorded, asterisks stand for a key, as many as it has characters, so that no length
changes. It is looked for as it is, not in encoded forms; providers that answer with compressed
bytes although plain ones were asked for get their bytes delivered, but not recorded if they hold
a key.
"""

import re
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from proctor.gateway.recording import Retry
from proctor.gateway.wire import is_usage_chunk

LARGEST_KEPT: Final = 24_000_000
"""Most bytes of an answer that are recorded and read; the rest is only delivered."""
COMPLETE: Final = "complete"
KEY_NOTE: Final = "the answer contained the provider's key, which was replaced by asterisks"
_EVENT_END = re.compile(rb"(\r?\n\r?\n)")
_NO_CHOICES = re.compile(rb'"choices"\s*:\s*\[\s*\]')
# Providers send the usage in less; a longer event is passed on before its end.
_LARGEST_USAGE: Final = 1 << 14


@dataclass(slots=True)
class Delivery:
    """What a client was given, and what is kept of it."""

    status: int | None = None
    content_type: str | None = None
    encoding: str | None = None
    body: bytearray = field(default_factory=bytearray)
    n_cut: int = 0
    first_at: float | None = None
    retries: list[Retry] = field(default_factory=list)
    edits: tuple[str, ...] = ()
    """What was changed in the request."""
    ended: str = COMPLETE
    note: str | None = None
    is_replayed: bool = False
    is_started: bool = False
    """Whether the client has been sent the beginning of an answer."""
    is_delivered: bool = False
    """Whether the client has been sent the whole of it."""

    def keep(self, chunk: bytes, now: float, room: int) -> None:
        """Keep bytes of the answer, up to a limit and to the room that is left."""
        if self.first_at is None:
            self.first_at = now
        room = max(min(LARGEST_KEPT - len(self.body), room), 0)
        self.body += chunk if len(chunk) <= room else chunk[:room]
        self.n_cut += max(len(chunk) - room, 0)


class KeyFilter:
    """Replaces keys in the chunks of an answer; holds back what may be the beginning of one."""

    def __init__(self, keys: Iterable[bytes]) -> None:
        self._keys = [(key, b"*" * len(key)) for key in keys]
        self._longest = max((len(key) for key, _ in self._keys), default=0)
        self._held = b""
        self.n_found = 0

    def hide(self, data: bytes) -> bytes:
        """Return the bytes without keys."""
        for key, stars in self._keys:
            if key in data:
                self.n_found += 1
                data = data.replace(key, stars)
        return data

    def feed(self, chunk: bytes) -> bytes:
        """Return the bytes that cannot be part of a key."""
        data = self.hide(self._held + chunk if self._held else chunk)
        end = self._find_beginning(data)
        self._held = data[end:]
        return data[:end] if self._held else data

    def finish(self) -> bytes:
        """Return what is left."""
        held, self._held = self._held, b""
        return held

    def _find_beginning(self, data: bytes) -> int:
        """Return where a key may begin that the data does not end; else where the data ends."""
        first = max(len(data) - self._longest + 1, 0)
        found = len(data)
        for key, _ in self._keys:
            at = data.find(key[:1], first)
            while 0 <= at < found:
                if key.startswith(data[at:]):
                    found = at
                at = data.find(key[:1], at + 1)
        return found


class UsageFilter:
    """Holds back the event with the usage, which the client did not ask for."""

    def __init__(self) -> None:
        self._held = b""
        self._is_long = False

    def feed(self, chunk: bytes) -> bytes:
        """Return the events that are complete, and the beginnings of long ones."""
        *events, self._held = _EVENT_END.split(self._held + chunk)
        # The ends of events are among the parts, because the pattern is a group.
        whole = [text + end for text, end in zip(events[::2], events[1::2], strict=True)]
        kept = []
        for event in whole:
            if self._is_long or not _is_usage(event):
                kept.append(event)
            self._is_long = False
        if self._is_long or len(self._held) > _LARGEST_USAGE:
            # An end of two or four characters may itself be in two chunks.
            self._is_long = True
            kept.append(self._held[:-3])
            self._held = self._held[-3:]
        return b"".join(kept)

    def finish(self) -> bytes:
        """Return what has no end."""
        return b"" if not self._is_long and _is_usage(self._held) else self._held


def _is_usage(event: bytes) -> bool:
    is_short = len(event) <= _LARGEST_USAGE
    return is_short and _NO_CHOICES.search(event) is not None and is_usage_chunk(event)


def decompress(data: bytes, encoding: str | None) -> bytes | None:
    """Return bytes that can be read, at most LARGEST_KEPT; None if they cannot be decompressed."""
    if encoding is None:
        return data
    if encoding not in ("gzip", "x-gzip", "deflate"):
        return None
    # 32 added to the window size: the headers of gzip and zlib are recognized; without: none.
    for window in (zlib.MAX_WBITS | 32, -zlib.MAX_WBITS):
        try:
            return zlib.decompressobj(window).decompress(data, LARGEST_KEPT)
        except zlib.error:
            continue
    return None
