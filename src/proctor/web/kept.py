"""What was made last, for as long as it is good: a few large texts, by what they are of."""

import threading
from collections.abc import Hashable

from markupsafe import Markup

_MOST = 8
_LARGEST = 4_000_000


class Kept:
    """The pieces that were made last."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pieces: dict[Hashable, Markup] = {}

    def find(self, key: Hashable) -> Markup | None:
        """One of them."""
        with self._lock:
            return self._pieces.get(key)

    def keep(self, key: Hashable, piece: Markup) -> None:
        """Keep one, unless it is very large, and let go of the oldest."""
        if len(piece) > _LARGEST:
            return
        with self._lock:
            self._pieces[key] = piece
            while len(self._pieces) > _MOST:
                del self._pieces[next(iter(self._pieces))]
