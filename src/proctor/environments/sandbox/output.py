"""What a command prints, read by the event loop and bounded.

A service that a command left behind still holds the pipe: what it prints is read and thrown away,
for as long as it lives, so that it never dies of a broken pipe.
"""

import asyncio
import fcntl
import os
from collections import deque
from dataclasses import dataclass

KEPT = 16 << 20
"""How many bytes of a command's output are kept: the first half and the last."""

_HALF = KEPT // 2
_PIECE = 1 << 16


@dataclass(frozen=True)
class Finished:
    """What came of a command."""

    output: bytes
    """Output and error output as they came; the middle of a very long one is missing."""
    n_cut: int
    """How many bytes are missing."""
    return_code: int
    """128 + signal for one that was killed."""


class Output:
    """One pipe, from the moment that a command may write to it."""

    def __init__(self, owner: int = 0) -> None:
        """Open it; `owner` is the sandbox's root on the host, where that has another id."""
        self._loop = asyncio.get_running_loop()
        self._fd, self.write_end = os.pipe2(os.O_CLOEXEC)
        if owner:
            # Or `/dev/stdout`, which opens it once more, would be refused.
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
        """Whether nobody can write to it any more."""
        return self._fd < 0

    @property
    def first_line(self) -> bytes | None:
        """The first line so far, without its end; None until it is whole."""
        line, end, _ = self._head.partition(b"\n")
        return bytes(line) if end else None

    def finish(self) -> tuple[bytes, int]:
        """What was printed until the command ended, and how many bytes of it are missing."""
        # No more than the pipe holds was there when it ended; a service may print for ever.
        capacity = fcntl.fcntl(self._fd, fcntl.F_GETPIPE_SZ) if self._fd >= 0 else 0
        while capacity > 0 and self._fd >= 0 and (n_read := self._read()):
            capacity -= n_read
        self._wanted = False
        tail = b"".join(self._tail)
        self._tail.clear()
        excess = max(0, len(tail) - _HALF)
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
            self._keep(data)
        return len(data)

    def _keep(self, data: bytes) -> None:
        free = _HALF - len(self._head)
        if free > 0:
            self._head += data[:free]
            data = data[free:]
        if not data:
            return
        self._tail.append(data)
        self._n_tail += len(data)
        while self._n_tail - len(self._tail[0]) >= _HALF:
            dropped = len(self._tail.popleft())
            self._n_tail -= dropped
            self._n_cut += dropped

    def close_write_end(self) -> None:
        """Leave writing to whoever inherited it."""
        os.close(self.write_end)
        self.write_end = -1

    def close(self) -> None:
        """Stop reading. May be called twice."""
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1
