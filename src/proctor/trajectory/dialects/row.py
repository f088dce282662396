"""A JSON object that is read by taking from it.

What is taken leaves the object, and only as what it was asked for. Whatever nobody took, or was of
another kind than expected, is the rest, as it was: nothing can be dropped by forgetting it.
"""

from typing import Any

from proctor.trajectory.entry import Object


class Row:
    """An object while it is read. The one it was made from stays as it is."""

    def __init__(self, value: Object) -> None:
        self.rest = dict(value)
        """What has not been taken."""

    def take_text(self, *keys: str) -> str | None:
        """The string under the first of the keys that has one."""
        for key in keys:
            found = self._take(key, str)
            if found is not None:
                return str(found)
        return None

    def take_object(self, key: str) -> Object | None:
        """The object under a key."""
        found: Object | None = self._take(key, dict)
        return found

    def take_list(self, key: str) -> list[Any] | None:
        """The list under a key."""
        found: list[Any] | None = self._take(key, list)
        return found

    def take_flag(self, key: str) -> bool | None:
        """The true or false under a key."""
        found: bool | None = self._take(key, bool)
        return found

    def _take(self, key: str, kind: type) -> Any:
        value = self.rest.get(key)
        if value is None or isinstance(value, kind):
            self.rest.pop(key, None)
            return value
        return None
