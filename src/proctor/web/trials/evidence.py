"""The files of a trial, and whether each is present, withheld or lost.

Only files that the trial itself lists are opened, and links are not followed.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import BinaryIO

from proctor.errors import MissingArtifactError, NotSealedError, NotThereError
from proctor.ledger.entry import TrialEntry, WithholdEntry
from proctor.ledger.keeping import open_files
from proctor.ledger.reader import LedgerReader
from proctor.ledger.submission import list_files
from proctor.ledger.withhold import list_withholdings
from proctor.sentence import count_of

_MOST_NAMED = 5


class State(StrEnum):
    """State of a file."""

    HERE = "here"
    WITHHELD = "withheld"
    """It was withheld, and an entry says why."""
    LOST = "lost"
    """It should be there and is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownFile:
    """One file of a trial."""

    path: str
    """Relative to the trial, with slashes."""
    size: int | None
    """In bytes; None if unknown."""
    sha256: str | None = None
    """Of its sealed bytes; None in a job, where files are not hashed for a list."""
    changed_ns: int | None = None
    """Time of the last modification, in a job."""
    state: State = State.HERE
    withheld_by: WithholdEntry | None = None
    """The entry that says why it was withheld."""

    @property
    def is_here(self) -> bool:
        """Whether it can be read."""
        return self.state is State.HERE


def list_sealed(ledger: LedgerReader, entry: TrialEntry) -> tuple[KnownFile, ...]:
    """The evidence of a sealed trial."""
    gone = {file.sha256 for file in entry.evidence if not ledger.artifacts.holds(file.sha256)}
    said: dict[str, WithholdEntry] = {}
    if gone:
        for each in list_withholdings(ledger):
            said.update({sha256: each for sha256 in each.artifacts if sha256 in gone})
    return tuple(
        KnownFile(
            path=file.path,
            size=file.size,
            sha256=file.sha256,
            state=_state_of(file.sha256, gone, said),
            withheld_by=said.get(file.sha256),
        )
        for file in entry.evidence
    )


def _state_of(sha256: str, gone: set[str], said: dict[str, WithholdEntry]) -> State:
    if sha256 not in gone:
        return State.HERE
    return State.WITHHELD if sha256 in said else State.LOST


def list_directory(place: Path) -> tuple[tuple[KnownFile, ...], tuple[str, ...]]:
    """The files of a trial in a directory, and problems with others that are there."""
    try:
        names, refused = list_files(str(place))
    except NotSealedError as error:
        return (), (str(error),)
    files = tuple(_look_at(place, name) for name in names)
    if not refused:
        return files, ()
    shown = ", ".join(repr(name) for name in refused[:_MOST_NAMED])
    more = ", …" if len(refused) > _MOST_NAMED else ""
    what = count_of(len(refused), "file is", "files are")
    return files, (f"{what} not shown: links, devices or names that are no text: {shown}{more}",)


def _look_at(place: Path, name: str) -> KnownFile:
    try:
        found = (place / name).lstat()
    except OSError:
        return KnownFile(path=name, size=None)
    return KnownFile(path=name, size=found.st_size, changed_ns=found.st_mtime_ns)


class Directory:
    """Files in a directory, of which only the listed ones are opened."""

    def __init__(self, root: Path, names: frozenset[str]) -> None:
        self._root = root
        self._names = names

    @contextlib.contextmanager
    def open(self, name: str) -> Iterator[str]:
        """The path of a listed regular file that is not behind a link."""
        with self.open_binary(name):
            pass
        yield str(self._root / name)

    def open_binary(self, name: str) -> BinaryIO:
        """Open the file itself, safe against a later replacement; raises the same."""
        if name not in self._names:
            raise NotThereError(f"the trial lists no file {name[:200]!r}")
        try:
            _, file = next(open_files(self._root, [name], str(self._root)))
        except NotSealedError as error:
            raise MissingArtifactError(f"{name}: the file cannot be read, or is gone") from error
        return file
