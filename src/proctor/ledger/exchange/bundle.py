"""A bundle: a ledger, or a part of one, in one file that proves what it holds.

    bundle.json          the format, and whose ledger it is
    checkpoint           the signed note
    entries.jsonl        every entry in order: its line, or {"left_out": leaf hash, "seq": n}
    artifacts/<sha256>   the evidence of the trials that are in it, as plain bytes

A tar file, zstd-compressed. What was left out still counts: the leaves give the signed root, so
nothing can be missing without a place for it. `unbundle` reads what this writes.
"""

import io
import os
import tarfile
import tempfile
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, BinaryIO, cast

import msgspec
from backports import zstd

from proctor.errors import LedgerError
from proctor.files import sync_directory, sync_file
from proctor.ledger.entry import TrialEntry, Withheld, decode_line
from proctor.ledger.ledger import Ledger
from proctor.ledger.note import Checkpoint

FORMAT = "proctor-bundle-1"
_LEVEL = 3
_IN_MEMORY = 16 << 20


class BundleHead(msgspec.Struct, frozen=True, kw_only=True):
    """What a bundle says of itself first."""

    format: str
    origin: str
    """Of the ledger it was taken from."""
    size: int
    """Entries that ledger had."""
    left_out: int
    """Entries whose lines are not in the bundle."""


class LeftOut(msgspec.Struct, frozen=True, kw_only=True):
    """What stands for an entry that was left out."""

    left_out: str
    """Its leaf hash, as hex."""
    seq: int


@dataclass(frozen=True, slots=True)
class Bundled:
    """What a bundle was made of."""

    size: int
    trials: int
    left_out: int
    artifacts: int


def write_bundle(ledger: Ledger, path: Path, trials: Collection[int] | None = None) -> Bundled:
    """Write a bundle: of everything, or of the trials at these places and what is no trial.

    Raises:
        LedgerError: something is at that path, or it cannot be written.
        DamageError: the ledger does not hold what it should.
    """
    checkpoint = ledger.refresh()
    temporary = path.with_name(f".{path.name}.{os.urandom(4).hex()}.tmp")
    try:
        if path.exists():
            raise LedgerError(f"{path}: there is something already; a bundle replaces nothing")
        with zstd.open(temporary, "wb", level=_LEVEL) as file:
            stream = cast(IO[bytes], file)
            # GNU's way of writing a large size needs no header of its own, which readers refuse.
            with tarfile.open(fileobj=stream, mode="w|", format=tarfile.GNU_FORMAT) as tar:
                bundled = _write(tar, ledger, checkpoint, trials)
        sync_file(temporary)
        temporary.rename(path)
        sync_directory(path.parent)
    except OSError as error:
        raise LedgerError(f"{path}: the bundle cannot be written: {error}") from error
    finally:
        temporary.unlink(missing_ok=True)
    return bundled


def _write(
    tar: tarfile.TarFile, ledger: Ledger, checkpoint: Checkpoint, trials: Collection[int] | None
) -> Bundled:
    size = checkpoint.tree.size
    artifacts: dict[str, int] = {}
    """Their sizes, by digest."""
    n_trials = n_left_out = 0
    with _spool() as lines:
        for seq, line, leaf in _lines(ledger, size):
            entry = decode_line(line, f"{ledger.directory}: entry {seq}")
            kept = line
            if isinstance(entry, Withheld):
                n_left_out += 1
            elif isinstance(entry, TrialEntry) and trials is not None and seq not in trials:
                kept = msgspec.json.encode(LeftOut(left_out=leaf.hex(), seq=seq))
                n_left_out += 1
            elif isinstance(entry, TrialEntry):
                n_trials += 1
                artifacts.update((file.sha256, file.size) for file in entry.evidence)
            lines.write(kept + b"\n")
        head = BundleHead(format=FORMAT, origin=checkpoint.origin, size=size, left_out=n_left_out)
        _add(tar, "bundle.json", io.BytesIO(msgspec.json.encode(head) + b"\n"))
        _add(tar, "checkpoint", io.BytesIO(checkpoint.render()))
        _add(tar, "entries.jsonl", lines)
    held = sorted(digest for digest in artifacts if ledger.artifacts.holds(digest))
    for digest in held:
        with _spool() as plain:
            ledger.artifacts.copy_sealed(digest, artifacts[digest], plain)
            _add(tar, f"artifacts/{digest}", plain)
    return Bundled(size, n_trials, n_left_out, len(held))


def _spool() -> BinaryIO:
    """A place for bytes of any number: in memory while they are few."""
    return cast(BinaryIO, tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY))


def _lines(ledger: Ledger, size: int) -> Iterator[tuple[int, bytes, bytes]]:
    for seq, leaf in enumerate(ledger.index.leaves(size)):
        yield seq, ledger.line(seq), leaf


def _add(tar: tarfile.TarFile, name: str, data: BinaryIO) -> None:
    # No owner, no time: the same ledger gives the same bundle.
    member = tarfile.TarInfo(name)
    member.size, member.mode = data.seek(0, io.SEEK_END), 0o644
    data.seek(0)
    tar.addfile(member, data)
