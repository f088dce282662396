"""How far a monitor has read a ledger: one file for each directory, replaced atomically.

It stores what the next check needs of earlier lines, so that no line is decoded twice: the tree at
the beginning of every segment, the keys, the identities of trials, the withholdings, and what was
reported. It proves nothing.
"""

import os
from pathlib import Path
from typing import Final, Literal

import msgspec

from proctor.digest import sha256_hex
from proctor.errors import LedgerError
from proctor.files import open_plain, replace_durably
from proctor.ledger.entry import KeyEntry
from proctor.ledger.log import Stamp
from proctor.ledger.tree import HASH_SIZE, Frontier

FORMAT: Final = "proctor-watch-1"


class Segment(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A segment that was read, and the tree before its first line."""

    number: int
    first: int
    """Position of its first entry."""
    peaks: str
    stamp: Stamp

    def frontier(self) -> Frontier:
        """The tree before its first line."""
        data = bytes.fromhex(self.peaks)
        peaks = [data[at : at + HASH_SIZE] for at in range(0, len(data), HASH_SIZE)]
        return Frontier(self.first, peaks)


class SealedAt(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A trial that was read."""

    place: int
    record: str
    """The start of its record's digest."""
    is_scored: bool


class Cursor(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What was read of a ledger."""

    format: Literal["proctor-watch-1"] = FORMAT
    ledger: str
    """The directory's absolute path."""
    origin: str
    size: int = 0
    """Decoded entries."""
    checkpoint: str = ""
    """SHA-256 of the checkpoint that they were read under."""
    segments: list[Segment] = []
    keys: list[KeyEntry] = []
    trials: dict[str, SealedAt] = {}
    """By the start of the SHA-256 of experiment and trial id."""
    withholdings: list[tuple[int, str]] = []
    """Positions and leaf hashes of the lines that entries withhold."""
    reported: list[str] = []
    """Damage that was reported, and is permanent."""
    standing: list[str] = []
    """Conditions that were reported and had not ended at the last check."""


class Cursors:
    """The directory of a monitor's cursors."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def find(self, ledger: Path) -> Cursor | None:
        """The cursor of a ledger; None before the first check.

        Raises:
            LedgerError: the file cannot be read.
        """
        path = self._path_of(ledger)
        try:
            with open_plain(path) as file:
                return msgspec.json.decode(file.readall(), type=Cursor)  # type: ignore[attr-defined]
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise LedgerError(
                f"{path}: the state of {ledger} cannot be read: {error}; delete the file to "
                "watch the ledger from its first entry again"
            ) from error

    def keep(self, cursor: Cursor) -> None:
        """Store a cursor.

        Raises:
            LedgerError: it cannot be written.
        """
        path = self._path_of(Path(cursor.ledger))
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            replace_durably(str(path), msgspec.json.encode(cursor) + b"\n")
        except OSError as error:
            raise LedgerError(f"{path}: cannot be written: {error.strerror}") from error

    def _path_of(self, ledger: Path) -> Path:
        return self._directory / f"{sha256_hex(os.fsencode(ledger.resolve()))}.json"
