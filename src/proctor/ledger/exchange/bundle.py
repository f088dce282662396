"""Bundles: a ledger, or a part of one, in one file that proves its content.

    bundle.json          the format, the origin, and which trials are left out
    checkpoint           the signed note
    entries.jsonl        the line of every entry in order, including trials that are left out
    artifacts/<sha256>   the evidence of the included trials, uncompressed

A tar file, compressed with zstd. A trial that is left out has its line, but no evidence: the hash
alone would not prove that the entry is a trial, and only trials may be left out. The lines have the
signed root, so that none can be missing. `unbundle` reads bundles.
"""

import io
import os
import tarfile
import tempfile
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, BinaryIO, cast

import msgspec
from backports import zstd

from proctor.errors import LedgerError
from proctor.files import sync_directory, sync_file
from proctor.ledger.entry import TrialEntry, decode_line
from proctor.ledger.note import Checkpoint
from proctor.ledger.reader import LedgerReader
from proctor.sentence import reason_of

FORMAT = "proctor-bundle-2"
FIRST_FORMAT = "proctor-bundle-1"
"""Still read; it contains only the leaf hashes of what was left out."""
_LEVEL = 3
_IN_MEMORY = 16 << 20


class BundleHead(msgspec.Struct, frozen=True, kw_only=True):
    """The header of a bundle."""

    format: str
    origin: str
    """Of the ledger it was exported from."""
    size: int
    """The number of entries of that ledger."""
    left_out: tuple[tuple[int, int], ...] | int
    """Runs of trials that are left out, each by its first and last position; a count in the
    first format."""


class LeftOut(msgspec.Struct, frozen=True, kw_only=True):
    """The placeholder of an entry that was left out, in the first format."""

    left_out: str
    """Its leaf hash, in hex."""
    seq: int


@dataclass(frozen=True, slots=True)
class Bundled:
    """What was written into a bundle."""

    size: int
    trials: int
    left_out: int
    """Trials with their line, but without their evidence."""
    artifacts: int


def write_bundle(
    ledger: LedgerReader, path: Path, trials: Collection[int] | None = None
) -> Bundled:
    """Write a bundle of everything, or of the trials at these positions and all other entries.

    Raises:
        LedgerError: the path exists, or cannot be written.
        DamageError: the ledger is damaged.
    """
    checkpoint = ledger.refresh()
    temporary = path.with_name(f".{path.name}.{os.urandom(4).hex()}.tmp")
    try:
        if path.exists():
            raise LedgerError(f"{path}: exists already; a bundle replaces nothing")
        with zstd.open(temporary, "wb", level=_LEVEL) as file:
            stream = cast(IO[bytes], file)
            # The GNU format stores large sizes without extended headers, which the reader refuses.
            with tarfile.open(fileobj=stream, mode="w|", format=tarfile.GNU_FORMAT) as tar:
                bundled = _write(tar, ledger, checkpoint, trials)
        sync_file(temporary)
        temporary.rename(path)
        sync_directory(path.parent)
    except OSError as error:
        raise LedgerError(f"{path}: the bundle cannot be written: {reason_of(error)}") from error
    finally:
        temporary.unlink(missing_ok=True)
    return bundled


def _write(
    tar: tarfile.TarFile,
    ledger: LedgerReader,
    checkpoint: Checkpoint,
    trials: Collection[int] | None,
) -> Bundled:
    size = checkpoint.tree.size
    # Sizes by digest.
    artifacts: dict[str, int] = {}
    left_out: list[int] = []
    n_trials = 0
    with _spool() as lines:
        for seq in range(size):
            line = ledger.line(seq)
            entry = decode_line(line, f"{ledger.where}: entry {seq}")
            if isinstance(entry, TrialEntry) and trials is not None and seq not in trials:
                left_out.append(seq)
            elif isinstance(entry, TrialEntry):
                n_trials += 1
                artifacts.update((file.sha256, file.size) for file in entry.evidence)
            lines.write(line + b"\n")
        runs = _find_runs(left_out)
        head = BundleHead(format=FORMAT, origin=checkpoint.origin, size=size, left_out=runs)
        _add(tar, "bundle.json", io.BytesIO(msgspec.json.encode(head) + b"\n"))
        _add(tar, "checkpoint", io.BytesIO(checkpoint.render()))
        _add(tar, "entries.jsonl", lines)
    held = sorted(digest for digest in artifacts if ledger.artifacts.holds(digest))
    for digest in held:
        with _spool() as plain:
            ledger.artifacts.copy_sealed(digest, artifacts[digest], plain)
            _add(tar, f"artifacts/{digest}", plain)
    return Bundled(size, n_trials, len(left_out), len(held))


def _find_runs(places: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """The first and last number of each run without a gap."""
    ends = [at for at, place in enumerate(places) if places[at + 1 : at + 2] != [place + 1]]
    begins = [0, *(end + 1 for end in ends)]
    return tuple((places[begin], places[end]) for begin, end in zip(begins, ends, strict=False))


def _spool() -> BinaryIO:
    """A temporary file that stays in memory while it is small."""
    return cast(BinaryIO, tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY))


def _add(tar: tarfile.TarFile, name: str, data: BinaryIO) -> None:
    # Without owner and time, the same ledger gives the same bundle.
    member = tarfile.TarInfo(name)
    member.size, member.mode = data.seek(0, io.SEEK_END), 0o644
    data.seek(0)
    tar.addfile(member, data)
