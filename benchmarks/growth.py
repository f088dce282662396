"""What a ledger of a million trials takes beyond one of 20,000, in processor time."""

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from benchmarks.bench import Bench, cpu_seconds, entry_point, figure, run_module, run_python
from benchmarks.growth_data import append_trials, load_growth_ledger, open_for_writing
from benchmarks.row import Row, share_of
from benchmarks.sizes import name_of_size
from proctor.ledger.claims.proof import make_inclusion
from proctor.ledger.ledger import OpenLedger
from proctor.ledger.trial_index import TrialFilter
from proctor.ledger.withhold import Why, withhold_trial

_SMALL = 20_000
_LARGE = 1_000_000
_PROOFS = 100
_TOGETHER = 100
_BOARD_SECONDS = 30.0
_BOARD_MB = 500.0


def proof_rows(bench: Bench, *, small: int = _SMALL, large: int = _LARGE) -> Iterator[Row]:
    """Proofs, in an open ledger and by the whole command."""
    ledgers, other = [_indexed(bench, n) for n in (large, small)], _at(small)
    figures = bench.least(*(partial(proof_seconds, directory) for directory in ledgers))
    yield share_of("proof-growth", figures, other, at_most=1.5)
    figures = bench.least(*(partial(cpu_seconds, _prove(directory)) for directory in ledgers))
    yield share_of("proof-growth-command", figures, other, at_most=1.5)


def withhold_rows(bench: Bench, *, small: int = _SMALL, large: int = _LARGE) -> Iterator[Row]:
    """Withholding a trial."""
    ledgers = [_indexed(bench, trials) for trials in (large, small)]
    figures = bench.least(*(partial(withhold_seconds, directory) for directory in ledgers))
    yield share_of("withhold-growth", figures, _at(small), at_most=2)


def large_board_rows(bench: Bench, *, trials: int = _LARGE) -> Iterator[Row]:
    """Processor time and memory of the whole command, beside what was promised to users."""
    directory = _indexed(bench, trials)
    taken = [run_module("ours_board", str(directory)) for _ in range(min(bench.rounds, 2))]
    seconds, megabytes = (
        min(figure(each, key) for each in taken) for key in ("seconds", "megabytes")
    )
    name = f"board-{name_of_size(trials)}"
    yield share_of(name, (seconds, _BOARD_SECONDS), "30 s", at_most=1)
    yield share_of(f"{name}-memory", (megabytes, _BOARD_MB), "500 MB", at_most=1, unit="MB")


def _at(trials: int) -> str:
    return f"at {name_of_size(trials)} trials"


def _indexed(bench: Bench, trials: int) -> Path:
    directory = load_growth_ledger(bench, trials)
    # Once unmeasured: the first command makes the index.
    run_python(_prove(directory))
    return directory


def _prove(directory: Path) -> list[str]:
    words = ("ledger", "prove", "7", "--json", "--ledger", str(directory))
    return entry_point("proctor.cli.main", "main", *words)


def proof_seconds(directory: Path) -> float:
    """One inclusion proof in an open ledger, of entries all over the log."""
    with OpenLedger.open(directory) as ledger:
        checkpoint = ledger.refresh()
        step = max(checkpoint.tree.size // _PROOFS, 1)
        start = time.process_time()
        for seq in range(0, step * _PROOFS, step):
            make_inclusion(ledger, seq % checkpoint.tree.size, checkpoint)
        return (time.process_time() - start) / _PROOFS


def seal_seconds(directory: Path) -> float:
    """Seal and index one trial, of many that are signed together."""
    with open_for_writing(directory) as ledger:
        # Numbers that no trial has, also if this ran before.
        first = ledger.refresh().tree.size
        start = time.process_time()
        append_trials(ledger, range(first, first + _TOGETHER))
        ledger.refresh()
        return (time.process_time() - start) / _TOGETHER


def withhold_seconds(directory: Path) -> float:
    """Withhold the first trial that is not withheld yet."""
    with open_for_writing(directory) as ledger:
        ledger.refresh()
        row = next(ledger.index.trials(TrialFilter(status="sealed", first=1)))
        start = time.process_time()
        withhold_trial(ledger, row, Why("a benchmark", "bench"))
        return time.process_time() - start
