"""requests.jsonl: who wrote what, and who was refused.

Each request that writes is a line. Of refused ones, the first in a minute of the same token,
address and status is a line; the others are counted, in a line with `count` when the minute is
over. A file that has become large is renamed to requests.jsonl.1, and so on; the oldest is removed.
"""

import contextlib
import os
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from proctor.ledger.entry import now_text

_LARGEST = 64 << 20
# Earlier files.
_KEPT = 4
_MINUTE_SEC = 60.0
# Different refusals that are counted at the same time.
_MOST_COUNTED = 1000

_WHO = ("token", "address", "status")


@dataclass(slots=True)
class _Refused:
    """Refusals since a line about the first of them was written."""

    since: float
    count: int = 0


@dataclass(slots=True)
class AuditLog:
    """Lines about requests, appended to a file; a full disk does not stop the server."""

    path: Path
    largest: int = _LARGEST
    _refused: OrderedDict[tuple[object, ...], _Refused] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def write(self, now: float, facts: Mapping[str, object]) -> None:
        """Append a line."""
        with self._lock:
            self._write_counts(now - _MINUTE_SEC)
            self._append(facts)

    def refuse(self, now: float, facts: Mapping[str, object]) -> None:
        """Append a line about a refused request, or count it."""
        who = tuple(facts.get(name) for name in _WHO)
        with self._lock:
            self._write_counts(now - _MINUTE_SEC)
            if (found := self._refused.get(who)) is not None:
                found.count += 1
                return
            if len(self._refused) >= _MOST_COUNTED:
                self._write_counts(now)
            self._refused[who] = _Refused(now)
            self._append(facts)

    def close(self, now: float) -> None:
        """Write what was only counted."""
        with self._lock:
            self._write_counts(now)

    def _write_counts(self, until: float) -> None:
        """Write how many were refused like those that a line was written about until a time."""
        # In the order of time: the first is the oldest.
        while self._refused and next(iter(self._refused.values())).since <= until:
            who, found = self._refused.popitem(last=False)
            if found.count:
                self._append({**dict(zip(_WHO, who, strict=True)), "count": found.count})

    def _append(self, facts: Mapping[str, object]) -> None:
        line = msgspec.json.encode({"at": now_text(), **facts}) + b"\n"
        with contextlib.suppress(OSError):
            fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.write(fd, line)
                is_full = os.fstat(fd).st_size > self.largest
            finally:
                os.close(fd)
            if is_full:
                self._rotate()

    def _rotate(self) -> None:
        for number in reversed(range(_KEPT)):
            newer = self.path.with_name(f"{self.path.name}.{number}") if number else self.path
            with contextlib.suppress(FileNotFoundError):
                newer.replace(self.path.with_name(f"{self.path.name}.{number + 1}"))
