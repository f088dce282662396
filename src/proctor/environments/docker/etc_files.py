"""The files of /etc that Docker mounts into every container, and that are in no layer of it.

    /etc/hosts, /etc/hostname, /etc/resolv.conf

They are files of the engine's own, which the container's root may write. Each is read and written
where the engine keeps it: a mounted file cannot become a link there.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress

from proctor.digest import sha256_hex
from proctor.trial.changes import Change, Phase

ETC_FILES = ("/etc/hosts", "/etc/hostname", "/etc/resolv.conf")
_MOST_BYTES = 1 << 20
"""Of each; what comes after that is neither compared nor kept."""
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_WRITE = os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC


class EtcFiles:
    """Those of one container, as they were when it was started and as they are."""

    def __init__(self, places: Mapping[str, str]) -> None:
        """`places` says where each lies on this machine; what is not there is left out."""
        self._places = places
        self._first = self._read()

    def find_changed(self) -> Mapping[str, bytes]:
        """The bytes of each that is not as it was."""
        first = self._first
        return {path: data for path, data in self._read().items() if data != first.get(path)}

    def list_changes(self, known: Mapping[str, str]) -> Iterator[Change]:
        """Each that is not as it was, as a change."""
        for path, data in self.find_changed().items():
            mark = sha256_hex(data)
            yield Change(
                path=path,
                how="changed",
                kind="file",
                when=Phase.SETUP if known.get(path) == mark else Phase.AGENT,
                size=len(data),
                sha256=mark,
                in_image=True,
                mark=mark,
            )

    def write(self, contents: Mapping[str, bytes]) -> None:
        """Write some of them.

        Raises:
            OSError: one cannot be written.
        """
        for path in contents.keys() & self._places.keys():
            # Not by replacing it: the container has this very file mounted.
            with os.fdopen(os.open(self._places[path], _WRITE), "wb") as file:
                file.write(contents[path])

    def _read(self) -> dict[str, bytes]:
        found = {}
        for path, place in self._places.items():
            with suppress(OSError), os.fdopen(os.open(place, _READ), "rb") as file:
                found[path] = file.read(_MOST_BYTES)
        return found
