"""Counts and bytes of a ledger, per experiment and in all.

Records are counted by the index; how much their evidence takes on the disk needs the log, because
the same bytes are kept once however many trials name them: an experiment's share counts what it
names, the total counts every file once.
"""

import os
from collections.abc import Callable
from itertools import islice

import msgspec

from proctor.errors import DamageError
from proctor.ledger.ledger import Ledger
from proctor.ledger.log import read_lines
from proctor.ledger.withheld import find_unnamed

_EVERY = 10_000


class ExperimentStats(msgspec.Struct, kw_only=True):
    """One experiment, or all of them."""

    experiment_id: str | None
    """Null: all of them."""
    trials: int = 0
    sealed: int = 0
    diagnostic: int = 0
    superseded: int = 0
    withheld: int = 0
    entry_bytes: int = 0
    """The trials' lines in the log."""
    evidence_files: int = 0
    """As the trials name them."""
    evidence_bytes: int = 0
    """Of those files, plain."""
    artifacts: int = 0
    """Different ones among them that are kept here."""
    compressed_bytes: int = 0
    """What those take on the disk."""


class LedgerStats(msgspec.Struct, frozen=True, kw_only=True):
    """A ledger in numbers."""

    origin: str
    entries: int
    kinds: dict[str, int]
    """Entries by kind; withheld ones, whose kind is gone, are `withheld`."""
    experiments: list[ExperimentStats]
    total: ExperimentStats
    withheld_unnamed: int
    """Entries that were withheld without naming a trial: of which experiment is not known."""
    log_bytes: int
    """All segments."""
    index_bytes: int


class _Named(msgspec.Struct, frozen=True):
    sha256: str


class _Naming(msgspec.Struct, frozen=True):
    seq: int
    evidence: tuple[_Named, ...] = ()


_NAMING = msgspec.json.Decoder(_Naming)
_TRIALS = """
SELECT trials.seq, experiment_id, status, length, evidence_files, evidence_bytes
FROM trials JOIN entries USING (seq) ORDER BY trials.seq
"""


def measure(ledger: Ledger, watch: Callable[[int, int], None] | None = None) -> LedgerStats:
    """The numbers of a ledger; `watch` is told how many of its entries were read.

    Raises:
        DamageError: the log does not give what its checkpoint says.
    """
    checkpoint = ledger.refresh()
    size = checkpoint.tree.size
    found: dict[str, ExperimentStats] = {}
    total = ExperimentStats(experiment_id=None)
    owners: dict[int, ExperimentStats] = {}
    for seq, experiment, status, length, files, plain in ledger.index.select(_TRIALS):
        stats = found.setdefault(experiment, ExperimentStats(experiment_id=experiment))
        owners[seq] = stats
        for each in (stats, total):
            _count(each, status, (length + 1, files, plain))
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
        withheld_unnamed=len(find_unnamed(ledger)),
        log_bytes=sum(size for _, size, _ in ledger.log.stamps().values()),
        index_bytes=(_size_of(str(ledger.index.path)) or 0) if ledger.index.path else 0,
    )


def _count(stats: ExperimentStats, status: str, sizes: tuple[int, int, int]) -> None:
    length, files, plain = sizes
    stats.trials += 1
    setattr(stats, status, getattr(stats, status) + 1)
    stats.entry_bytes += length
    stats.evidence_files += files
    stats.evidence_bytes += plain


def _weigh_artifacts(
    ledger: Ledger,
    owners: dict[int, ExperimentStats],
    total: ExperimentStats,
    watch: Callable[[int, int], None] | None,
) -> None:
    """What the evidence takes on the disk: once for every experiment, and once in all."""
    size = ledger.checkpoint().tree.size
    sizes: dict[str, int | None] = {}
    seen: set[tuple[str | None, str]] = set()
    for number, line in enumerate(islice(read_lines(ledger.log), size)):
        if watch is not None and number % _EVERY == 0:
            watch(number, size)
        try:
            naming = _NAMING.decode(line.data)
        except msgspec.MsgspecError as error:
            raise DamageError(f"{ledger.where}: entry {number}: no entry: {error}") from error
        owner = owners.get(naming.seq)
        for named in naming.evidence if owner is not None else ():
            if named.sha256 not in sizes:
                sizes[named.sha256] = ledger.artifacts.stored_size(named.sha256)
                _weigh(total, sizes[named.sha256])
            if owner is not None and (key := (owner.experiment_id, named.sha256)) not in seen:
                seen.add(key)
                _weigh(owner, sizes[named.sha256])
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
