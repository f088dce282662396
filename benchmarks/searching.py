"""The index over a ledger's texts, made or asked in a process of its own; prints what it took.

python -m benchmarks.searching index|ask LEDGER
"""

import json
import sqlite3
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
from backports import zstd

from benchmarks.bench import check_same, peak_megabytes
from benchmarks.inspect_search import QUESTIONS
from proctor.ledger.derived import SEARCH_INDEX, find_folder, remove_index
from proctor.ledger.ledger import OpenLedger
from proctor.ledger.query import list_trials
from proctor.ledger.trial_index import TrialFilter
from proctor.search.find import COUNTED, Marker, Page, find_hits
from proctor.search.index import ROW_BITS, SearchIndex
from proctor.search.query import Query, parse_query
from proctor.search.upkeep import ask_index

_TIMES = 5
_MEGABYTE = 1_000_000


def make_index(ledger: OpenLedger) -> dict[str, float]:
    """How long it takes to make it, of how much, and how large it is, in MB."""
    path = (find_folder(Path(ledger.where)) or Path()) / SEARCH_INDEX
    remove_index(path)
    size = sum(row.evidence_bytes for row in list_trials(ledger))
    start = time.perf_counter()
    ask_index(ledger, lambda _: None)
    seconds = time.perf_counter() - start
    return {
        "seconds": seconds,
        "cpu": time.process_time(),
        "megabytes": size / _MEGABYTE,
        "index": path.stat().st_size / _MEGABYTE,
        "peak": peak_megabytes(),
    }


def ask(ledger: OpenLedger, index: SearchIndex) -> dict[str, float]:
    """The least processor time of each question, and of FTS5 alone, in turns."""
    execute = index.connection.execute
    execute("ATTACH ? AS ledger", (str(ledger.index.path),))
    least: dict[str, float] = {}
    for name, question in QUESTIONS.items():
        for _ in range(_TIMES):
            start = time.process_time()
            matches = _ask_ours(ledger, index, question)
            middle = time.process_time()
            bare = _ask_bare(execute, parse_query(question))
            end = time.process_time()
            check_same(f"matches of {question}", matches, bare)
            for key, seconds in ((name, middle - start), (f"{name}-bare", end - middle)):
                least[key] = min(seconds, least.get(key, seconds))
    return least


def _ask_ours(ledger: OpenLedger, index: SearchIndex, question: str) -> int:
    """The first page, counted, with snippets; how many were counted."""
    query = parse_query(question)
    found = find_hits(ledger, index, query, TrialFilter(), Page())
    marker = Marker(query.words)
    for hit in found.hits:
        marker.cut(hit.row, 76)
    return found.matches


def _ask_bare(execute: Callable[..., sqlite3.Cursor], query: Query) -> int:
    """The numbers of as many matches, and the texts of the first page, each block unpacked once."""
    among = [
        f"rowid >> {ROW_BITS} IN (SELECT seq FROM ledger.trials WHERE {each.name} = ?)"  # noqa: S608
        for each in query.conditions
    ]
    where = " AND ".join(["rows MATCH ?", *among])
    statement = f"SELECT rowid FROM rows WHERE {where} ORDER BY rowid DESC LIMIT {COUNTED + 1}"  # noqa: S608
    values = (query.expression, *(each.value for each in query.conditions))
    numbers = execute(statement, values).fetchall()
    block = "SELECT first, data FROM blocks WHERE first <= ? ORDER BY first DESC LIMIT 1"
    page = numbers[: Page().limit]
    for data in dict(execute(block, number).fetchone() for number in page).values():
        msgspec.msgpack.decode(zstd.decompress(data))
    return min(len(numbers), COUNTED)


def main(arguments: Sequence[str]) -> int:
    """Do what the arguments name, print the figures."""
    what, directory = arguments
    with OpenLedger.open(Path(directory)) as ledger:
        if what == "index":
            answer = make_index(ledger)
        else:
            answer = ask_index(ledger, lambda index: ask(ledger, index))
    print(json.dumps(answer))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
