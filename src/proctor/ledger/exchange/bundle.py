"""Bundles: a ledger, or a part of one, in one file that proves its content.

    bundle.json          the format, the origin, and which trials are left out
    checkpoint           the signed note
    entries.jsonl        the line of every entry in order, including trials that are left out
    artifacts/<sha256>   the evidence of the included trials, uncompressed

A tar file, compressed with zstd. A trial that is left out has its line, but no evidence: the hash
alone would not prove that the entry is a trial, and only trials may be left out. The lines have the
signed root, so that none can be missing.

A bundle is checked completely before anything of it is imported:

1. The members are those of a bundle: plain files, in their order.
2. The lines have the root that the checkpoint signs.
3. Only trials are left out.
4. The checkpoint is signed by the trusted key: the given one, else the first entry's.
5. Every artifact belongs to an included trial and has its sealed size and digest; the size is
   compared before anything is hashed.

Names in a bundle are never used as paths.
"""

import bisect
import contextlib
import io
import itertools
import os
import sys
import tarfile
import tempfile
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, BinaryIO, Self, cast

import msgspec
from backports import zstd

from proctor.digest import sha256_pieces
from proctor.errors import AlteredArtifactError, DamageError, InputError, LedgerError
from proctor.files import open_plain, sync_directory, sync_file
from proctor.ledger.admission import Identities, admit_line
from proctor.ledger.entry import (
    LARGEST_ENTRY,
    AnyEntry,
    KeyEntry,
    TrialEntry,
    Withheld,
    WithholdEntry,
    decode_line,
)
from proctor.ledger.note import LARGEST_NOTE, Checkpoint, VerifierKey, parse_checkpoint
from proctor.ledger.reader import LedgerReader
from proctor.ledger.signature import Handover, check_signature, follow_handovers, follow_keys
from proctor.ledger.tree import HASH_SIZE, Frontier, leaf_hash
from proctor.sentence import reason_of

FORMAT = "proctor-bundle-2"
_LEVEL = 3
_IN_MEMORY = 16 << 20
_LARGEST_HEAD = 1 << 24
_ARTIFACT = "artifacts/"
_CHUNK = 1 << 20


class BundleHead(msgspec.Struct, frozen=True, kw_only=True):
    """The header of a bundle."""

    format: str
    origin: str
    """Of the ledger it was exported from."""
    size: int
    """The number of entries of that ledger."""
    left_out: tuple[tuple[int, int], ...]
    """Runs of trials that are left out, each by its first and last position."""


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
        ends = [at for at, seq in enumerate(left_out) if left_out[at + 1 : at + 2] != [seq + 1]]
        begins = [0, *(end + 1 for end in ends)]
        runs = tuple(
            (left_out[begin], left_out[end]) for begin, end in zip(begins, ends, strict=False)
        )
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


def _spool() -> BinaryIO:
    """A temporary file that stays in memory while it is small."""
    return cast(BinaryIO, tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY))


def _add(tar: tarfile.TarFile, name: str, data: BinaryIO) -> None:
    # Without owner and time, the same ledger gives the same bundle.
    member = tarfile.TarInfo(name)
    member.size, member.mode = data.seek(0, io.SEEK_END), 0o644
    data.seek(0)
    tar.addfile(member, data)


@dataclass(slots=True)
class Unbundled:
    """A checked bundle."""

    checkpoint: Checkpoint
    keys: list[Handover] = field(default_factory=list)
    signer: VerifierKey | None = None
    """The key that the checkpoint was checked with."""
    trials: int = 0
    """Included trials."""
    left_out: int = 0
    """Trials that are left out."""
    withheld: set[tuple[int, str]] = field(default_factory=set)
    """Positions and leaf hashes of withheld lines."""
    named: dict[str, int] = field(default_factory=dict)
    """Digests of the evidence of its trials, with their sizes."""
    artifacts: set[str] = field(default_factory=set)
    """Evidence that is in the bundle."""


class _PlainInfo(tarfile.TarInfo):
    """A member's header; extended headers, which may have any size, are refused."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        found = super().frombuf(buf, encoding, errors)
        if found.type not in (tarfile.REGTYPE, tarfile.AREGTYPE):
            raise tarfile.ReadError(f"{found.name[:80]!r} is not a plain file")
        if found.size < 0:
            raise tarfile.ReadError(f"{found.name[:80]!r} has a size below 0")
        return found


def check_bundle(path: Path, key: VerifierKey | None = None) -> Unbundled:
    """Check a bundle completely.

    Raises:
        InputError: it is not a bundle.
        DamageError: it does not match its checkpoint.
    """
    with _open(path) as members:
        head = _parse_head(_read(members, "bundle.json", _LARGEST_HEAD, path), path)
        note = _read(members, "checkpoint", LARGEST_NOTE, path)
        checkpoint = parse_checkpoint(note, f"{path}: checkpoint")
        if (head.origin, head.size) != (checkpoint.origin, checkpoint.tree.size):
            raise DamageError(
                f"{path}: says that it is {head.size} entries of {head.origin}; its checkpoint "
                f"signs {checkpoint.tree.size} of {checkpoint.origin}"
            )
        bundle = Unbundled(checkpoint)
        _check_entries(_next(members, "entries.jsonl", path), head, bundle, path)
        try:
            keys = follow_handovers(bundle.keys, checkpoint.origin)
        except DamageError as error:
            raise DamageError(f"{path}: {error}") from error
        bundle.signer = follow_keys(key or keys[0], keys)
        check_signature(checkpoint, bundle.signer, f"{path}: checkpoint")
        for digest, size, file in _artifacts(members, path):
            _check_artifact(digest, size, file, bundle, path)
    return bundle


def read_artifacts(path: Path) -> Iterator[tuple[str, BinaryIO]]:
    """The evidence in a checked bundle: digest and content; read each before the next."""
    with _open(path) as members:
        for name in ("bundle.json", "checkpoint", "entries.jsonl"):
            _next(members, name, path)
        for digest, _size, file in _artifacts(members, path):
            yield digest, file


def read_entries(path: Path) -> Iterator[AnyEntry]:
    """The entries of a checked bundle in order, without trials that are left out."""
    with _open(path) as members:
        head = _parse_head(_read(members, "bundle.json", _LARGEST_HEAD, path), path)
        _next(members, "checkpoint", path)
        for _leaf, entry in _lines(_next(members, "entries.jsonl", path), path):
            if not isinstance(entry, Withheld) and not _is_left_out(head, entry.seq):
                yield entry


type _Members = Iterator[tuple[tarfile.TarInfo, BinaryIO]]


@contextlib.contextmanager
def _open(path: Path) -> Iterator[_Members]:
    try:
        with (
            open_plain(path) as file,
            zstd.open(file, "rb") as plain,
            tarfile.open(fileobj=cast(IO[bytes], plain), mode="r|", tarinfo=_PlainInfo) as tar,
        ):
            yield ((member, cast(BinaryIO, tar.extractfile(member))) for member in tar)
    except OSError as error:
        raise InputError(f"{path}: the bundle cannot be read: {error.strerror or error}") from error
    except (tarfile.TarError, zstd.ZstdError, EOFError) as error:
        raise InputError(f"{path}: not a bundle, or an incomplete one: {error}") from error


def _next(members: _Members, name: str, path: Path, largest: int | None = None) -> BinaryIO:
    member, file = next(members, (None, None))
    if member is None or file is None or member.name != name:
        found = repr(member.name[:80]) if member else "the end"
        raise InputError(f"{path}: not a bundle: expected {name}, found {found}")
    if largest is not None and member.size > largest:
        raise InputError(f"{path}: {name} has more than {largest:,} bytes")
    return file


def _read(members: _Members, name: str, largest: int, path: Path) -> bytes:
    return _next(members, name, path, largest).read()


def _parse_head(data: bytes, path: Path) -> BundleHead:
    try:
        head = msgspec.json.decode(data, type=BundleHead)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not a bundle: bundle.json: {error}") from error
    if head.format != FORMAT:
        raise InputError(
            f"{path}: a bundle of format {head.format[:80]!r}; this proctor reads {FORMAT!r}"
        )
    places = [place for first, last in head.left_out for place in (first, last + 1)]
    if places != sorted(places) or any(first > last for first, last in head.left_out):
        raise InputError(f"{path}: bundle.json: left_out is not in order")
    return head


def _is_left_out(head: BundleHead, seq: int) -> bool:
    runs = head.left_out
    at = bisect.bisect_right(runs, (seq, sys.maxsize)) - 1
    return at >= 0 and seq <= runs[at][1]


def _check_entries(file: BinaryIO, head: BundleHead, bundle: Unbundled, path: Path) -> None:
    frontier, identities, tree = Frontier(), Identities(), bundle.checkpoint.tree
    # Positions and leaf hashes of withheld lines, and of those that an entry withholds.
    excused: set[tuple[int | None, str | None]] = set()
    for leaf, entry in _lines(file, path):
        if frontier.size == tree.size:
            raise DamageError(f"{path}: has more than the {tree.size} entries that are signed")
        before = frontier.root() if isinstance(entry, KeyEntry) else None
        frontier.append(leaf)
        is_left_out = _is_left_out(head, entry.seq)
        if is_left_out and not isinstance(entry, TrialEntry):
            kind = "withheld" if isinstance(entry, Withheld) else entry.kind
            raise DamageError(
                f"{path}: entry {entry.seq}, of kind {kind!r}, is left out; only trials may be"
            )
        match entry:
            case Withheld():
                bundle.withheld.add((entry.seq, entry.withheld))
                continue
            case WithholdEntry():
                excused.add((entry.entry, entry.leaf))
            case KeyEntry():
                bundle.keys.append((entry, before))
            case TrialEntry() if not is_left_out:
                _take_trial(entry, bundle, path)
            case _:
                bundle.left_out += is_left_out
        try:
            identities.take(entry)
        except DamageError as error:
            raise DamageError(f"{path}: {error}") from error
    if bundle.left_out != sum(last - first + 1 for first, last in head.left_out):
        raise DamageError(f"{path}: leaves out entries that the ledger does not have")
    if (frontier.size, frontier.root()) != (tree.size, tree.root):
        raise DamageError(
            f"{path}: its {frontier.size} entries do not have the root that the checkpoint signs "
            f"for {tree.size}: something was edited, moved or removed"
        )
    if unsaid := bundle.withheld - excused:
        raise DamageError(f"{path}: entry {min(unsaid)[0]} was removed, and no entry says so")


def _take_trial(entry: TrialEntry, bundle: Unbundled, path: Path) -> None:
    bundle.trials += 1
    for file in entry.evidence:
        if bundle.named.setdefault(file.sha256, file.size) != file.size:
            raise DamageError(
                f"{path}: entry {entry.seq}: {file.sha256} has another size than an earlier entry "
                "states"
            )


def _lines(file: BinaryIO, path: Path) -> Iterator[tuple[bytes, AnyEntry | Withheld]]:
    """Every leaf hash, with its entry or placeholder."""
    for seq in itertools.count():
        line = file.readline(LARGEST_ENTRY + 2)
        if not line:
            return
        where = f"{path}: entry {seq}"
        if not line.endswith(b"\n"):
            raise DamageError(f"{where}: incomplete, or longer than {LARGEST_ENTRY:,} bytes")
        entry = admit_line(line[:-1], where)
        if isinstance(entry, Withheld):
            leaf = _parse_leaf(entry.withheld, where)
        else:
            leaf = leaf_hash(line[:-1])
        if entry.seq != seq:
            raise DamageError(f"{where} says that it is entry {entry.seq}")
        yield leaf, entry


def _parse_leaf(text: str, where: str) -> bytes:
    try:
        leaf = bytes.fromhex(text)
    except ValueError:
        leaf = b""
    if len(leaf) != HASH_SIZE:
        raise DamageError(f"{where}: {text[:80]!r} is not a leaf hash")
    return leaf


def _artifacts(members: _Members, path: Path) -> Iterator[tuple[str, int, BinaryIO]]:
    for member, file in members:
        digest = member.name.removeprefix(_ARTIFACT)
        if digest == member.name or "/" in digest:
            raise InputError(f"{path}: {member.name[:80]!r} is not a member of a bundle")
        yield digest, member.size, file


def _check_artifact(digest: str, size: int, file: BinaryIO, bundle: Unbundled, path: Path) -> None:
    # This check comes first: digests that entries name are hex, so that the name is not a path.
    if digest not in bundle.named:
        raise DamageError(f"{path}: {digest[:80]!r} is evidence of no trial in the bundle")
    # Before hashing: a few kilobytes can decompress to days of work.
    if size != bundle.named[digest]:
        raise AlteredArtifactError(
            f"{path}: artifact {digest} has {size} bytes; sealed were {bundle.named[digest]}"
        )
    if digest in bundle.artifacts:
        raise DamageError(f"{path}: artifact {digest} occurs twice")
    found = sha256_pieces(iter(lambda: file.read(_CHUNK), b""))
    if found != digest:
        raise AlteredArtifactError(
            f"{path}: artifact {digest} holds bytes with the SHA-256 {found}"
        )
    bundle.artifacts.add(digest)
