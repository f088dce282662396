"""Reads the output of a command in the event loop, up to a limit.

A background process of the command keeps the pipe open. Its output is read and discarded as long as
it lives, so that it does not die of a broken pipe.
"""

import asyncio
import fcntl
import os
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

KEPT = 16 << 20
"""Bytes of a command's output that are kept: half at the start, half at the end."""

LITTLE = 1 << 16
"""Bytes that are kept of a command whose output is recorded elsewhere."""
_PIECE = 1 << 16


@dataclass(frozen=True)
class Finished:
    """Result of a command."""

    output: bytes
    """Standard output and error, interleaved; the middle of a very long one is cut."""
    n_cut: int
    """Number of bytes cut."""
    return_code: int
    """Exit code; 128 + signal if it was killed."""


@dataclass(frozen=True)
class Hearing:
    """Receives what a command prints, as well."""

    hear: Callable[[bytes], None]
    """Called with all output until the command ends, as it comes."""
    kept: int = KEPT
    """Bytes of it that are kept for the result."""


class Output:
    """The pipe for a command's output."""

    def __init__(self, owner: int = 0, hearing: "Hearing | None" = None) -> None:
        """Open it; `owner` is the host id of the sandbox's root, or 0."""
        self._hear = hearing.hear if hearing else None
        self._half = (hearing.kept if hearing else KEPT) // 2
        self._loop = asyncio.get_running_loop()
        self._fd, self.write_end = os.pipe2(os.O_CLOEXEC)
        if owner:
            # Otherwise opening /dev/stdout, which reopens the pipe, would be refused.
            os.fchown(self.write_end, owner, owner)
        os.set_blocking(self._fd, False)
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._n_tail = 0
        self._n_cut = 0
        self._wanted = True
        self._loop.add_reader(self._fd, self._read)

    @property
    def is_closed(self) -> bool:
        """Whether all writers have closed it."""
        return self._fd < 0

    @property
    def first_line(self) -> bytes | None:
        """The first line without its newline; None until it is complete."""
        line, end, _ = self._head.partition(b"\n")
        return bytes(line) if end else None

    def finish(self) -> tuple[bytes, int]:
        """Return the output until the command ended, and the number of bytes cut."""
        # When the command ended, the pipe contained at most its capacity. Stop after that: a
        # background process may print without end.
        capacity = fcntl.fcntl(self._fd, fcntl.F_GETPIPE_SZ) if self._fd >= 0 else 0
        while capacity > 0 and self._fd >= 0 and (n_read := self._read()):
            capacity -= n_read
        self._wanted = False
        tail = b"".join(self._tail)
        self._tail.clear()
        excess = max(0, len(tail) - self._half)
        n_cut = self._n_cut + excess
        note = f"\n[{n_cut} bytes cut here]\n".encode() if n_cut else b""
        head, self._head = self._head, bytearray()
        return bytes(head) + note + tail[excess:], n_cut

    def _read(self) -> int:
        try:
            data = os.read(self._fd, _PIECE)
        except BlockingIOError:
            return 0
        if not data:
            self.close()
        elif self._wanted:
            if self._hear is not None:
                self._hear(data)
            self._keep(data)
        return len(data)

    def _keep(self, data: bytes) -> None:
        free = self._half - len(self._head)
        if free > 0:
            self._head += data[:free]
            data = data[free:]
        if not data:
            return
        self._tail.append(data)
        self._n_tail += len(data)
        while self._n_tail - len(self._tail[0]) >= self._half:
            dropped = len(self._tail.popleft())
            self._n_tail -= dropped
            self._n_cut += dropped

    def close_write_end(self) -> None:
        """Close our copy of the write end."""
        os.close(self.write_end)
        self.write_end = -1

    def close(self) -> None:
        """Stop reading. Can be called twice."""
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1
