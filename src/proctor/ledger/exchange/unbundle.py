"""Reads bundles, checking them completely before anything is imported.

1. The members are those of a bundle: plain files, in their order.
2. The lines have the root that the checkpoint signs. In the first format, some are hashes only.
3. Only trials are left out.
4. The checkpoint is signed by the trusted key: the given one, else the first entry's.
5. Every artifact belongs to an included trial and has its sealed size and digest; the size is
   compared before anything is hashed.

Names in a bundle are never used as paths.
"""

import bisect
import contextlib
import itertools
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, BinaryIO, Self, cast

import msgspec
from backports import zstd

from proctor.digest import sha256_copy
from proctor.errors import AlteredArtifactError, DamageError, InputError
from proctor.files import open_plain
from proctor.ledger.admission import Identities, admit_line
from proctor.ledger.entry import (
    LARGEST_ENTRY,
    AnyEntry,
    KeyEntry,
    TrialEntry,
    Withheld,
    WithholdEntry,
)
from proctor.ledger.exchange.bundle import FIRST_FORMAT, FORMAT, BundleHead, LeftOut
from proctor.ledger.handover import Handover, follow_handovers, follow_keys
from proctor.ledger.note import (
    LARGEST_NOTE,
    Checkpoint,
    VerifierKey,
    parse_checkpoint,
)
from proctor.ledger.signature import check_signature
from proctor.ledger.tree import HASH_SIZE, Frontier, leaf_hash

_LARGEST_HEAD = 1 << 24
_ARTIFACT = "artifacts/"


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
    hidden: int = 0
    """Those of them that are hashes only: nothing proves that they are trials."""
    withheld: set[tuple[int | None, str | None]] = field(default_factory=set)
    """Positions and leaf hashes of withheld lines."""
    excused: set[tuple[int | None, str | None]] = field(default_factory=set)
    """Those that an entry withholds."""
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


class _Sink:
    """A stream that discards what is written."""

    def write(self, data: bytes) -> int:
        return len(data)


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
        _check_signer(bundle, key, path)
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
            if not isinstance(entry, Withheld | LeftOut) and not _is_left_out(head, entry.seq):
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
            yield _members(tar, path)
    except OSError as error:
        raise InputError(f"{path}: the bundle cannot be read: {error.strerror or error}") from error
    except (tarfile.TarError, zstd.ZstdError, EOFError) as error:
        raise InputError(f"{path}: not a bundle, or an incomplete one: {error}") from error


def _members(tar: tarfile.TarFile, path: Path) -> _Members:
    for member in tar:
        file = tar.extractfile(member) if member.isreg() else None
        if file is None:
            raise InputError(
                f"{path}: {member.name[:80]!r} is not a plain file; a bundle has no others"
            )
        yield member, cast(BinaryIO, file)


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
    if head.format not in (FORMAT, FIRST_FORMAT):
        raise InputError(
            f"{path}: a bundle of format {head.format[:80]!r}; this proctor reads {FORMAT!r} and "
            f"{FIRST_FORMAT!r}"
        )
    if isinstance(head.left_out, int) != (head.format == FIRST_FORMAT):
        raise InputError(f"{path}: bundle.json: left_out does not fit the format {head.format}")
    places = [place for run in _runs(head) for place in (run[0], run[1] + 1)]
    if places != sorted(places) or any(first > last for first, last in _runs(head)):
        raise InputError(f"{path}: bundle.json: left_out is not in order")
    return head


def _runs(head: BundleHead) -> tuple[tuple[int, int], ...]:
    return () if isinstance(head.left_out, int) else head.left_out


def _is_left_out(head: BundleHead, seq: int) -> bool:
    runs = _runs(head)
    at = bisect.bisect_right(runs, (seq, sys.maxsize)) - 1
    return at >= 0 and seq <= runs[at][1]


def _check_entries(file: BinaryIO, head: BundleHead, bundle: Unbundled, path: Path) -> None:
    frontier, identities, tree = Frontier(), Identities(), bundle.checkpoint.tree
    for leaf, entry in _lines(file, path):
        if frontier.size == tree.size:
            raise DamageError(f"{path}: has more than the {tree.size} entries that are signed")
        before = frontier.root() if isinstance(entry, KeyEntry) else b""
        frontier.append(leaf)
        if isinstance(entry, LeftOut) or _is_left_out(head, entry.seq):
            _note_left_out(entry, head, bundle, path)
        else:
            _note(entry, before, bundle, path)
        _identify(entry, identities, path)
    if bundle.left_out != sum(last - first + 1 for first, last in _runs(head)) + bundle.hidden:
        raise DamageError(f"{path}: leaves out entries that the ledger does not have")
    if (frontier.size, frontier.root()) != (tree.size, tree.root):
        raise DamageError(
            f"{path}: its {frontier.size} entries do not have the root that the checkpoint signs "
            f"for {tree.size}: something was edited, moved or removed"
        )
    if unsaid := bundle.withheld - bundle.excused:
        seq = min(place for place, _ in unsaid if place is not None)
        raise DamageError(f"{path}: entry {seq} was removed, and no entry says so")


def _note_left_out(
    entry: AnyEntry | Withheld | LeftOut, head: BundleHead, bundle: Unbundled, path: Path
) -> None:
    """Count an entry that is left out, which must be a trial."""
    if isinstance(entry, LeftOut):
        if head.format == FORMAT:
            raise DamageError(
                f"{path}: entry {entry.seq} is only a hash; {FORMAT} has every line, so that "
                "reviews, supersessions, withholdings, plans and keys cannot be left out"
            )
        bundle.hidden += 1
    elif not isinstance(entry, TrialEntry):
        kind = "withheld" if isinstance(entry, Withheld) else entry.kind
        raise DamageError(
            f"{path}: entry {entry.seq}, of kind {kind!r}, is left out; only trials may be"
        )
    bundle.left_out += 1


def _note(entry: AnyEntry | Withheld, before: bytes, bundle: Unbundled, path: Path) -> None:
    """Collect what later checks need of an entry; `before` is the root of the log before a key."""
    match entry:
        case Withheld():
            bundle.withheld.add((entry.seq, entry.withheld))
        case WithholdEntry():
            bundle.excused.add((entry.entry, entry.leaf))
        case TrialEntry():
            bundle.trials += 1
            _name_evidence(entry, bundle, path)
        case KeyEntry():
            bundle.keys.append(Handover(entry, before))
        case _:
            pass


def _identify(entry: AnyEntry | Withheld | LeftOut, identities: Identities, path: Path) -> None:
    if isinstance(entry, Withheld | LeftOut):
        return
    try:
        identities.take(entry)
    except DamageError as error:
        raise DamageError(f"{path}: {error}") from error


def _name_evidence(entry: TrialEntry, bundle: Unbundled, path: Path) -> None:
    for file in entry.evidence:
        if bundle.named.setdefault(file.sha256, file.size) != file.size:
            raise DamageError(
                f"{path}: entry {entry.seq}: {file.sha256} has another size than an earlier entry "
                "states"
            )


def _lines(file: BinaryIO, path: Path) -> Iterator[tuple[bytes, AnyEntry | Withheld | LeftOut]]:
    """Every leaf hash, with its entry or placeholder."""
    for seq in itertools.count():
        line = file.readline(LARGEST_ENTRY + 2)
        if not line:
            return
        where = f"{path}: entry {seq}"
        if not line.endswith(b"\n"):
            raise DamageError(f"{where}: incomplete, or longer than {LARGEST_ENTRY:,} bytes")
        leaf, entry = _parse_line(line[:-1], where)
        if entry.seq != seq:
            raise DamageError(f"{where} says that it is entry {entry.seq}")
        yield leaf, entry


def _parse_line(line: bytes, where: str) -> tuple[bytes, AnyEntry | Withheld | LeftOut]:
    if line.startswith(b'{"left_out":'):
        left_out = _decode_left_out(line, where)
        return _parse_leaf(left_out.left_out, where), left_out
    entry = admit_line(line, where)
    if isinstance(entry, Withheld):
        return _parse_leaf(entry.withheld, where), entry
    return leaf_hash(line), entry


def _decode_left_out(line: bytes, where: str) -> LeftOut:
    try:
        return msgspec.json.decode(line, type=LeftOut)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise DamageError(f"{where}: {error}") from error


def _parse_leaf(text: str, where: str) -> bytes:
    try:
        leaf = bytes.fromhex(text)
    except ValueError:
        leaf = b""
    if len(leaf) != HASH_SIZE:
        raise DamageError(f"{where}: {text[:80]!r} is not a leaf hash")
    return leaf


def _check_signer(bundle: Unbundled, given: VerifierKey | None, path: Path) -> None:
    try:
        keys = follow_handovers(bundle.keys, bundle.checkpoint.origin)
    except DamageError as error:
        raise DamageError(f"{path}: {error}") from error
    bundle.signer = follow_keys(given or keys[0], keys)
    check_signature(bundle.checkpoint, bundle.signer, f"{path}: checkpoint")


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
    found = sha256_copy(file, cast(BinaryIO, _Sink()))
    if found != digest:
        raise AlteredArtifactError(
            f"{path}: artifact {digest} holds bytes with the SHA-256 {found}"
        )
    bundle.artifacts.add(digest)
