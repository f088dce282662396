"""Ledgers of up to a million small trials of one dataset, made in large batches and kept.

Trials are those of the board's benchmark, each with one file of evidence: one of a few hundred that
many trials share, and every thousandth trial a file of its own.
"""

import io
import itertools
import random
from collections.abc import Sequence
from pathlib import Path

import msgspec

from benchmarks.bench import Bench
from benchmarks.viewer_board import make_board_entry
from proctor.ledger.entry import AnyEntry, EvidenceFile, TrialEntry
from proctor.ledger.keys import load_key, make_key
from proctor.ledger.ledger import OpenLedger
from proctor.ledger.log import FileLog

_OWN_EVIDENCE = 1000
_BATCH = 5000
_SEGMENT = 8 << 20
_TASKS = 100
_SHARED = 256


def load_growth_ledger(bench: Bench, trials: int) -> Path:
    """A ledger of so many trials, not indexed yet; it is kept from run to run."""

    def fill(directory: Path) -> None:
        with OpenLedger.create(directory, make_key(directory / "key", "bench"), "bench") as ledger:
            # Withholding writes a segment anew: the first one has the same size in all ledgers.
            ledger.log = FileLog(directory, segment_size=_SEGMENT)
            for batch in itertools.batched(range(trials), _BATCH):
                append_trials(ledger, batch)

    return bench.kept(f"growth-2-{trials}", fill)


def open_for_writing(directory: Path) -> OpenLedger:
    """Such a ledger, with its key."""
    return OpenLedger.open(directory, key=load_key(directory / "key"))


def append_trials(ledger: OpenLedger, numbers: Sequence[int]) -> None:
    """Seal trials of these numbers with one signature."""
    draw = random.Random(numbers[0])
    drafts: list[AnyEntry] = [_make_trial(ledger, number, draw) for number in numbers]
    ledger.artifacts.settle()
    with ledger.writing():
        ledger.append(drafts)


def _make_trial(ledger: OpenLedger, number: int, draw: random.Random) -> TrialEntry:
    is_own = number % _OWN_EVIDENCE == 0
    text = f"evidence of trial {number}" if is_own else f"shared evidence {number % _SHARED}"
    sha256, size = ledger.artifacts.put(io.BytesIO(text.encode()))
    file = EvidenceFile(path="agent/output.txt", sha256=sha256, size=size)
    return msgspec.structs.replace(make_board_entry(number, _TASKS, draw), evidence=(file,))
