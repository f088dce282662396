"""Counts and sizes of a ledger, for each experiment and in total.

The index has the counts. Sizes on disk need the log, because artifacts are stored once however many
trials name them: an experiment's share counts every file that it names, the total counts every file
once.
"""

import os
from collections.abc import Callable
from itertools import islice

import msgspec

from proctor.errors import DamageError
from proctor.ledger.counting import RESTARTED
from proctor.ledger.log import read_lines
from proctor.ledger.query import read_position
from proctor.ledger.reader import LedgerReader
from proctor.ledger.row import TrialRow
from proctor.ledger.trial_index import TrialFilter
from proctor.ledger.withheld import list_unnamed

_EVERY = 10_000


class ExperimentStats(msgspec.Struct, kw_only=True):
    """The numbers of one experiment, or of all."""

    experiment_id: str | None
    """Null: all experiments."""
    trials: int = 0
    sealed: int = 0
    diagnostic: int = 0
    superseded: int = 0
    begun_again: int = 0
    """Restarted attempts."""
    withheld: int = 0
    entry_bytes: int = 0
    """Bytes of the trials' lines in the log."""
    evidence_files: int = 0
    """Files that the trials name."""
    evidence_bytes: int = 0
    """Their uncompressed size."""
    artifacts: int = 0
    """Distinct files among them that are stored here."""
    compressed_bytes: int = 0
    """Their size on disk."""


class LedgerStats(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of a ledger."""

    origin: str
    entries: int
    kinds: dict[str, int]
    """Entries by kind; `withheld` are those whose kind is no longer known."""
    experiments: list[ExperimentStats]
    total: ExperimentStats
    withheld_unnamed: int
    """Entries withheld without naming a trial, whose experiment is unknown."""
    log_bytes: int
    """Bytes of all segments."""
    index_bytes: int


class _Named(msgspec.Struct, frozen=True):
    sha256: str


class _Naming(msgspec.Struct, frozen=True):
    seq: int
    evidence: tuple[_Named, ...] = ()


_NAMING = msgspec.json.Decoder(_Naming)


def measure(ledger: LedgerReader, watch: Callable[[int, int], None] | None = None) -> LedgerStats:
    """Compute the numbers of a ledger; `watch` is called with the entries read and their total."""
    checkpoint = ledger.refresh()
    size = checkpoint.tree.size
    found: dict[str, ExperimentStats] = {}
    total = ExperimentStats(experiment_id=None)
    owners: dict[int, ExperimentStats] = {}
    with read_position(ledger, TrialFilter()) as (_, rows):
        for row in rows:
            name = row.experiment_id
            owners[row.seq] = found.setdefault(name, ExperimentStats(experiment_id=name))
            for each in (owners[row.seq], total):
                _count(each, row)
    _weigh_artifacts(ledger, owners, total, watch)
    kinds = {
        kind or "withheld": number for kind, number in ledger.index.count_kinds(size=size).items()
    }
    return LedgerStats(
        origin=checkpoint.origin,
        entries=size,
        kinds=dict(sorted(kinds.items())),
        experiments=[found[name] for name in sorted(found)],
        total=total,
        withheld_unnamed=len(list_unnamed(ledger)),
        log_bytes=sum(size for _, size, _ in ledger.log.stamps().values()),
        index_bytes=(_size_of(str(ledger.index.path)) or 0) if ledger.index.path else 0,
    )


def _count(stats: ExperimentStats, row: TrialRow) -> None:
    stats.trials += 1
    status = "begun_again" if row.status == RESTARTED else row.status
    setattr(stats, status, getattr(stats, status) + 1)
    stats.evidence_files += row.evidence_files
    stats.evidence_bytes += row.evidence_bytes


def _weigh_artifacts(
    ledger: LedgerReader,
    owners: dict[int, ExperimentStats],
    total: ExperimentStats,
    watch: Callable[[int, int], None] | None,
) -> None:
    """Add the sizes on disk: each file once for every experiment, and once in total."""
    size = ledger.checkpoint().tree.size
    seen: set[tuple[str | None, str]] = set()
    for number, line in enumerate(islice(read_lines(ledger.log), size)):
        if watch is not None and number % _EVERY == 0:
            watch(number, size)
        try:
            naming = _NAMING.decode(line.data)
        except msgspec.MsgspecError as error:
            raise DamageError(f"{ledger.where}: entry {number}: no entry: {error}") from error
        owner = owners.get(naming.seq)
        for stats in (owner, total) if owner is not None else ():
            stats.entry_bytes += len(line.data) + 1
            named = {(stats.experiment_id, each.sha256) for each in naming.evidence} - seen
            # Keyed by experiment too, because each experiment counts the files that it names.
            seen |= named
            for _, sha256 in named:
                _weigh(stats, ledger.artifacts.stored_size(sha256))
    if watch is not None:
        watch(size, size)


def _weigh(stats: ExperimentStats, size: int | None) -> None:
    if size is not None:
        stats.artifacts += 1
        stats.compressed_bytes += size


def _size_of(path: str) -> int | None:
    try:
        return os.lstat(path).st_size
    except OSError:
        return None
