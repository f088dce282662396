"""The artifacts that entries name, each checked once however many entries name it.

They are collected, with the trial of each line, in a temporary database that spills to disk, so
that memory does not grow with the log.
"""

import sqlite3
from collections.abc import Iterable, Iterator
from typing import Self


class NamedEvidence:
    """Artifacts by the lines that name them; close it after use."""

    def __init__(self) -> None:
        # SQLite gives an unnamed database a private temporary file, and deletes it on close.
        self._notes = sqlite3.connect("", isolation_level=None)
        # Rollback is never needed: the database does not outlive the verification.
        self._notes.execute("PRAGMA journal_mode = OFF")
        self._notes.execute("PRAGMA cache_size = -16000")
        self._notes.execute("CREATE TABLE named (line INTEGER, sha256 BLOB, size INTEGER)")
        self._notes.execute("CREATE TABLE trials (line INTEGER, experiment TEXT, trial TEXT)")
        self._notes.execute("BEGIN")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._notes.close()

    def add(self, named: Iterable[tuple[int, bytes, int]]) -> None:
        """Add artifacts: line, SHA-256 and size."""
        self._notes.executemany("INSERT INTO named VALUES (?, ?, ?)", named)

    def identify(self, trials: Iterable[tuple[int | str, ...]]) -> None:
        """Add the trials of lines: line, experiment and trial id."""
        self._notes.executemany("INSERT INTO trials VALUES (?, ?, ?)", trials)

    def duplicates(self, size: int) -> Iterator[tuple[int, int, str, str]]:
        """Trials in several of the first `size` lines: the first line, the last, and the ids."""
        rows = self._notes.execute(
            "SELECT min(line), max(line), experiment, trial FROM trials WHERE line < ? "
            "GROUP BY trial, experiment HAVING min(line) < max(line) ORDER BY 1",
            (size,),
        )
        yield from rows

    def artifacts(self, size: int) -> Iterator[tuple[int, str, int]]:
        """The first line that names each artifact, its SHA-256 and its size."""
        rows = self._notes.execute(
            "SELECT min(line), sha256, size FROM named WHERE line < ? GROUP BY sha256, size",
            (size,),
        )
        for line, sha256, length in rows:
            yield line, sha256.hex(), length

    def naming(self, digests: set[str]) -> Iterator[tuple[int, str]]:
        """Every line that names one of these artifacts, with its SHA-256."""
        if not digests:
            return
        self._notes.execute("CREATE TABLE wanted (sha256 BLOB PRIMARY KEY) WITHOUT ROWID")
        wanted = ((bytes.fromhex(sha256),) for sha256 in digests)
        self._notes.executemany("INSERT INTO wanted VALUES (?)", wanted)
        rows = self._notes.execute(
            "SELECT line, sha256 FROM named WHERE sha256 IN wanted ORDER BY line"
        )
        for line, sha256 in rows:
            yield line, sha256.hex()

    def count(self, size: int) -> int:
        """The number of artifacts that the first lines name."""
        counted = self._notes.execute(
            "SELECT count(*) FROM (SELECT 1 FROM named WHERE line < ? GROUP BY sha256, size)",
            (size,),
        )
        return int(counted.fetchone()[0])
