"""A cache of the values that were used last, shared by the threads of all requests."""

import threading
from collections.abc import Callable, Hashable


class LruCache[Value]:
    """Holds at most `most` values, of those that fit."""

    def __init__(self, most: int, fits: Callable[[Value], bool] = lambda _: True) -> None:
        self._most, self._fits = most, fits
        self._lock = threading.Lock()
        self._values: dict[Hashable, Value] = {}

    def find(self, key: Hashable) -> Value | None:
        """Return a cached value."""
        with self._lock:
            if key in self._values:
                self._values[key] = self._values.pop(key)
            return self._values.get(key)

    def keep(self, key: Hashable, value: Value) -> None:
        """Cache a value, and evict the one that was not used for longest."""
        if not self._fits(value):
            return
        with self._lock:
            self._values.pop(key, None)
            self._values[key] = value
            while len(self._values) > self._most:
                del self._values[next(iter(self._values))]

    def find_or_make(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """Return the cached value, or make it; exceptions of `make` are raised."""
        value = self.find(key)
        if value is None:
            # Outside the lock, so that other requests need not wait.
            value = make()
            self.keep(key, value)
        return value
