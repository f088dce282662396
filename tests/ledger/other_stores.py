"""A second implementation of each store of a ledger: log and artifacts in SQLite, index in memory.

They share nothing with the ones on the disk but what the protocols say.
"""

import contextlib
import io
import re
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import msgspec
from backports import zstd

from proctor.digest import sha256_hex
from proctor.errors import BusyError, DamageError, MissingArtifactError
from proctor.ledger.admission import render_duplicate
from proctor.ledger.artifacts import ArtifactStore
from proctor.ledger.counting import Replaceable, judge_supersessions
from proctor.ledger.entry import AnyEntry, SupersedeEntry, TrialEntry, Withheld, WithholdEntry
from proctor.ledger.log import Place, Stamp
from proctor.ledger.row import TrialRow, kind_and_time, read_row, remark_columns
from proctor.ledger.tree import Frontier, root_of
from proctor.ledger.trial_index import (
    EVERYTHING,
    Indexed,
    IndexedEntry,
    NamePattern,
    Position,
    TrialFilter,
    format_since,
)

SEGMENT = 1 << 16
"""Bytes of a segment: few, so that tests have several."""


class SqliteLog:
    """A log whose segments are rows of a table."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with self._connect() as connection:
            connection.execute("CREATE TABLE IF NOT EXISTS segments (number PRIMARY KEY, data)")
            connection.execute("CREATE TABLE IF NOT EXISTS aside (number, begin, data)")
            connection.execute("CREATE TABLE IF NOT EXISTS checkpoint (data)")
            connection.execute("CREATE TABLE IF NOT EXISTS changes (number)")

    @contextlib.contextmanager
    def _connect(self) -> Iterator[sqlite3.Connection]:
        with contextlib.closing(sqlite3.connect(self._path)) as connection, connection:
            yield connection

    @property
    def where(self) -> str:
        return f"sqlite:{self._path.name}"

    def check_writable(self) -> None:
        return

    @contextlib.contextmanager
    def locked(self, patience_sec: float | None = None) -> Iterator[None]:
        lock = sqlite3.connect(f"{self._path}-lock", isolation_level=None)
        lock.execute(f"PRAGMA busy_timeout = {int((patience_sec or 60) * 1000)}")
        with contextlib.closing(lock):
            try:
                lock.execute("BEGIN EXCLUSIVE")
            except sqlite3.OperationalError as error:
                raise BusyError(f"{self.where}: another writer has it") from error
            yield

    def has_checkpoint(self) -> bool:
        with self._connect() as connection:
            return connection.execute("SELECT 1 FROM checkpoint").fetchone() is not None

    def read_checkpoint(self) -> bytes:
        with self._connect() as connection:
            found = connection.execute("SELECT data FROM checkpoint").fetchone()
        if found is None:
            raise FileNotFoundError(2, "no checkpoint")
        return bytes(found[0])

    def write_checkpoint(self, data: bytes, *, is_new: bool = False) -> None:
        if is_new and self.has_checkpoint():
            raise FileExistsError(17, "there is a checkpoint")
        with self._connect() as connection:
            connection.execute("DELETE FROM checkpoint")
            connection.execute("INSERT INTO checkpoint VALUES (?)", (data,))

    def stamps(self) -> dict[int, Stamp]:
        with self._connect() as connection:
            rows = connection.execute(
                "SELECT number, length(data), "
                "(SELECT count(*) FROM changes WHERE changes.number = segments.number) "
                "FROM segments ORDER BY number"
            )
            return {number: (number, size, changes) for number, size, changes in rows}

    def _load(self, number: int) -> bytes:
        with self._connect() as connection:
            found = connection.execute("SELECT data FROM segments WHERE number = ?", (number,))
            row = found.fetchone()
        if row is None:
            raise FileNotFoundError(2, "no such segment")
        return bytes(row[0])

    def read(self, place: Place, size: int) -> bytes:
        return self._load(place.segment)[place.offset : place.offset + size]

    def append(self, at: Place, lines: Sequence[bytes]) -> list[Place]:
        segments = self.stamps()
        last = max(segments, default=0)
        ends = Place(last, segments[last][1]) if segments else Place()
        if at != ends and at != Place(ends.segment + 1):
            raise FileExistsError(17, f"does not end at byte {at.offset}")
        places: list[Place] = []
        with self._connect() as connection:
            for line in lines:
                if at.offset and at.offset + len(line) + 1 > SEGMENT:
                    at = Place(at.segment + 1)
                connection.execute("INSERT OR IGNORE INTO segments VALUES (?, x'')", (at.segment,))
                connection.execute("INSERT INTO changes VALUES (?)", (at.segment,))
                connection.execute(
                    "UPDATE segments SET data = CAST(data || ? AS BLOB) WHERE number = ?",
                    (line + b"\n", at.segment),
                )
                places.append(at)
                at = Place(at.segment, at.offset + len(line) + 1)
        return [*places, at]

    def set_aside(self, place: Place) -> None:
        for number in self.stamps():
            if number < place.segment:
                continue
            begin = place.offset if number == place.segment else 0
            data = self._load(number)
            with self._connect() as connection:
                connection.execute(
                    "INSERT INTO aside VALUES (?, ?, ?)", (number, begin, data[begin:])
                )
                if begin == 0:
                    connection.execute("DELETE FROM segments WHERE number = ?", (number,))
                else:
                    self._replace(connection, number, data[:begin])

    def overwrite(self, place: Place, line: bytes) -> None:
        data = self._load(place.segment)
        changed = data[: place.offset] + line + data[place.offset + len(line) :]
        with self._connect() as connection:
            self._replace(connection, place.segment, changed)

    def _replace(self, connection: sqlite3.Connection, number: int, data: bytes) -> None:
        connection.execute("UPDATE segments SET data = ? WHERE number = ?", (data, number))
        connection.execute("INSERT INTO changes VALUES (?)", (number,))


class SqliteArtifacts(ArtifactStore):
    """Artifacts as rows of a table."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._waiting: dict[str, bytes] = {}
        with self._connect() as connection:
            connection.execute("CREATE TABLE IF NOT EXISTS artifacts (sha256 PRIMARY KEY, data)")

    @contextlib.contextmanager
    def _connect(self) -> Iterator[sqlite3.Connection]:
        with contextlib.closing(sqlite3.connect(self._path)) as connection, connection:
            yield connection

    def _find(self, sha256: str) -> bytes | None:
        with self._connect() as connection:
            query = "SELECT data FROM artifacts WHERE sha256 = ?"
            found = connection.execute(query, (sha256,)).fetchone()
        return bytes(found[0]) if found else None

    def open(self, sha256: str) -> BinaryIO:
        data = self._find(sha256)
        if data is None:
            raise MissingArtifactError(f"artifact {sha256} is missing")
        return io.BytesIO(data)

    def holds(self, sha256: str) -> bool:
        return self._find(sha256) is not None

    def put(self, source: BinaryIO) -> tuple[str, int]:
        data = source.read()
        digest = sha256_hex(data)
        self._waiting[digest] = zstd.compress(data)
        return digest, len(data)

    def settle(self) -> None:
        with self._connect() as connection:
            rows = self._waiting.items()
            connection.executemany("INSERT OR IGNORE INTO artifacts VALUES (?, ?)", rows)
        self._waiting.clear()

    def discard(self) -> None:
        self._waiting.clear()

    def remove(self, sha256: str) -> None:
        with self._connect() as connection:
            connection.execute("DELETE FROM artifacts WHERE sha256 = ?", (sha256,))

    def stored_size(self, sha256: str) -> int | None:
        data = self._find(sha256)
        return None if data is None else len(data)


class MemoryIndex:
    """An index in lists and dictionaries, which goes with the process."""

    path = None

    def __init__(self) -> None:
        self.erase()

    def close(self) -> None:
        return

    def erase(self) -> None:
        self._position = Position(Place(), Frontier(), "")
        self._entries: list[tuple[IndexedEntry, AnyEntry | Withheld]] = []
        self._rows: dict[int, TrialRow] = {}

    def naming(self, sha256: str) -> Iterator[int]:
        for facts, entry in self._entries:
            if isinstance(entry, TrialEntry) and sha256 in {file.sha256 for file in entry.evidence}:
                yield facts.seq

    def position(self) -> Position:
        return self._position

    def size(self) -> int:
        return self._position.frontier.size

    def reading(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def add(self, lines: Iterable[Indexed], position: Position, *, after: int) -> bool:
        if self.size() != after:
            return False
        known = list(self._entries), dict(self._rows)
        try:
            for line in lines:
                self._add(line)
        except BaseException:
            self._entries, self._rows = known
            raise
        self._position = position
        return True

    def _add(self, line: Indexed) -> None:
        entry = line.entry
        facts = IndexedEntry(entry.seq, *kind_and_time(entry), line.place, line.length, line.leaf)
        self._entries.append((facts, entry))
        if isinstance(entry, TrialEntry):
            self._add_row(line.row or read_row(entry))
        if isinstance(entry, WithholdEntry):
            self._add_withheld(entry)

    def _add_withheld(self, entry: WithholdEntry) -> None:
        if entry.subject is None or entry.entry is None or entry.entry in self._rows:
            return
        there = self.entry(entry.entry)
        if there and there.kind == "" and there.leaf.hex() == entry.leaf:
            self._add_row(TrialRow(entry.entry, *_ids(entry), "withheld"))

    def _add_row(self, row: TrialRow) -> None:
        for known in self._rows.values():
            if (known.experiment_id, known.trial_id) == (row.experiment_id, row.trial_id):
                names = (row.experiment_id, row.trial_id)
                raise DamageError(render_duplicate(known.seq, row.seq, *names))
        self._rows[row.seq] = row

    def _all(self, size: int = EVERYTHING) -> list[tuple[IndexedEntry, AnyEntry | Withheld]]:
        return [each for each in self._entries if each[0].seq < size]

    def entry(self, seq: int) -> IndexedEntry | None:
        return next((facts for facts, _ in self._entries if facts.seq == seq), None)

    def entries(self, first: int, end: int) -> list[IndexedEntry]:
        return [facts for facts, _ in self._all(end) if facts.seq >= first]

    def latest_entries(
        self, count: int, *, before: int | None = None, kind: str | None = None
    ) -> list[IndexedEntry]:
        found = self.entries(0, EVERYTHING if before is None else before)
        return [facts for facts in reversed(found) if kind in (None, facts.kind)][:count]

    def places(self, kind: str, *, size: int = EVERYTHING) -> list[int]:
        return [facts.seq for facts, _ in self._all(size) if facts.kind == kind]

    def count_kinds(self, *, size: int = EVERYTHING) -> dict[str, int]:
        return dict(Counter(facts.kind for facts, _ in self._all(size)))

    def hashes(self, level: int, first: int, end: int) -> list[bytes]:
        leaves, width = [facts.leaf for facts, _ in self._entries], 16**level
        numbers = range(first, min(end, len(leaves) // width))
        return [root_of(leaves[at * width : (at + 1) * width]) for at in numbers]

    def _withholdings(self) -> list[WithholdEntry]:
        return [entry for _, entry in self._entries if isinstance(entry, WithholdEntry)]

    def withheld_lines(self) -> list[IndexedEntry]:
        named = {entry.entry for entry in self._withholdings()}
        return [facts for facts, _ in self._entries if facts.seq in named]

    def find_trial(self, experiment_id: str, trial_id: str) -> tuple[int, str, str | None] | None:
        for row in self._rows.values():
            if (row.experiment_id, row.trial_id) == (experiment_id, trial_id):
                return row.seq, row.record, row.evidence
        return None

    def trials(self, wanted: TrialFilter, *, size: int = EVERYTHING) -> Iterator[TrialRow]:
        judged = self.supersessions()
        remarks = [each for _, entry in self._all(size) for each in _remarks(entry)]
        reviews = {record: verdict for record, _, _, verdict, _ in remarks if verdict is not None}
        found = []
        for seq, row in sorted(self._rows.items()):
            status = "superseded" if judged.get(row.record, "") is None else row.status
            status = "withheld" if row.status == "withheld" else status
            changed = msgspec.structs.replace(row, status=status, review=reviews.get(row.record))
            if seq < size and _fits(changed, wanted):
                found.append(changed)
        found = found[-wanted.limit :] if wanted.limit is not None else found
        return iter(found[: wanted.first])

    def supersessions(self, size: int = EVERYTHING) -> dict[str, str | None]:
        entries = [entry for _, entry in self._all(size) if isinstance(entry, SupersedeEntry)]
        trials = {row.record: _replaceable(row) for row in self._rows.values() if row.seq < size}
        return judge_supersessions(
            [(each.subject.record, each.by.record) for each in entries], trials
        )

    def remarks(
        self,
        *,
        record: str | None = None,
        experiment: str | None = None,
        kind: str | None = None,
        size: int = EVERYTHING,
    ) -> list[int]:
        rows = self._rows.values()
        ours = {row.record for row in rows if experiment in (None, row.experiment_id)}
        return sorted(
            {
                seq
                for _, entry in self._all(size)
                for about, seq, what, _, _ in _remarks(entry)
                if record in (None, about)
                and kind in (None, what)
                and (experiment is None or about in ours)
            }
        )

    def datasets(self, *, size: int = EVERYTHING) -> list[tuple[str, int, int]]:
        rows = [row for row in self._rows.values() if row.dataset_id and row.seq < size]
        names = sorted({row.dataset_id for row in rows if row.dataset_id})
        return [
            (
                name,
                sum(row.dataset_id == name for row in rows),
                len({row.experiment_id for row in rows if row.dataset_id == name}),
            )
            for name in names
        ]

    def experiments(self, words: str = "") -> list[tuple[str, int]]:
        last: dict[str, int] = {}
        for row in self._rows.values():
            names = (row.experiment_id, row.agent, row.model, row.dataset_id)
            if words.lower() in " ".join(name or "" for name in names).lower():
                last[row.experiment_id] = row.seq
        for row in self._rows.values():
            if row.experiment_id in last:
                last[row.experiment_id] = max(last[row.experiment_id], row.seq)
        return sorted(last.items(), key=lambda each: -each[1])

    def experiment_version(self, name: str) -> str | None:
        ours = [row.seq for row in self._rows.values() if row.experiment_id == name]
        said = max((facts.seq for facts, _ in self._entries if facts.kind != "trial"), default=None)
        return f"{len(ours)}-{max(ours)}-{said}" if ours else None


def _ids(entry: WithholdEntry) -> tuple[str, str, str]:
    assert entry.subject is not None
    return entry.subject.experiment_id, entry.subject.trial_id, entry.subject.record


def _remarks(entry: AnyEntry | Withheld) -> list[tuple[str, int, str, str | None, int]]:
    return [] if isinstance(entry, Withheld) else remark_columns(entry)


def _replaceable(row: TrialRow) -> Replaceable:
    names = (row.experiment_id, row.recorded_dataset, row.task_id, row.agent, row.model)
    return Replaceable(*names, row.status == "withheld")


def _fits(row: TrialRow, wanted: TrialFilter) -> bool:
    equal = {
        "experiment_id": wanted.experiment,
        "trial_id": wanted.trial,
        "dataset_id": wanted.dataset,
        "agent": wanted.harness,
        "model": wanted.model,
        "status": wanted.status,
    }
    begins = {
        "task_id": wanted.task,
        "trial_id": wanted.trial_prefix,
        "record": wanted.record_prefix,
    }
    reward = row.reward
    return (
        all(value in (None, getattr(row, name)) for name, value in equal.items())
        and all(
            (getattr(row, name) or "").startswith(value or "") for name, value in begins.items()
        )
        and (wanted.lowest is None or (reward is not None and reward >= wanted.lowest))
        and (wanted.highest is None or (reward is not None and reward <= wanted.highest))
        and (wanted.since is None or (row.timestamp or "") >= format_since(wanted.since))
        and (wanted.seqs is None or row.seq in wanted.seqs)
        and (wanted.from_seq is None or row.seq >= wanted.from_seq)
        and (wanted.experiments is None or row.experiment_id in wanted.experiments)
        and all(_matches(row, name) for name in wanted.names)
    )


def _matches(row: TrialRow, name: NamePattern) -> bool:
    value = getattr(row, name.column) or ""
    pattern = re.compile(".*".join(map(re.escape, name.pattern.split("*"))), re.IGNORECASE)
    fits = pattern.fullmatch(value) or pattern.fullmatch(value.rpartition("/")[2])
    return bool(fits) != name.is_not
