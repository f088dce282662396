"""The index over a ledger's texts, made or asked in a process of its own; prints what it took.

python -m benchmarks.searching index|ask LEDGER
"""

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.bench import peak_megabytes
from benchmarks.inspect_search import QUESTIONS
from proctor.ledger.derived import SEARCH_INDEX, find_folder, remove_index
from proctor.ledger.ledger import OpenLedger
from proctor.ledger.query import find_trials
from proctor.ledger.trial_index import TrialFilter
from proctor.search.find import Page, find_hits
from proctor.search.index import SearchIndex
from proctor.search.query import parse_query
from proctor.search.snippet import Marker
from proctor.search.upkeep import ask_index

_TIMES = 5
_MEGABYTE = 1_000_000


def make_index(ledger: OpenLedger) -> dict[str, float]:
    """How long it takes to make it, of how much, and how large it is, in MB."""
    path = (find_folder(Path(ledger.where)) or Path()) / SEARCH_INDEX
    remove_index(path)
    size = sum(row.evidence_bytes for row in find_trials(ledger))
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
    """The least time of each question: its first page, counted, with snippets."""
    least: dict[str, float] = {}
    for name, question in QUESTIONS.items():
        for _ in range(_TIMES):
            start = time.perf_counter()
            query = parse_query(question)
            found = find_hits(ledger, index, query, TrialFilter(), Page())
            marker = Marker(query.words)
            for hit in found.hits:
                marker.cut(hit.row, 76)
            seconds = time.perf_counter() - start
            least[name] = min(seconds, least.get(name, seconds))
    return least


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
