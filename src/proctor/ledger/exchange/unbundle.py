"""What is in a bundle, checked before a byte of it is taken.

1. The members are the ones a bundle has, plain files, in their order.
2. The leaves, whole or left out, give the root that the checkpoint signs.
3. The checkpoint is signed by the key that is trusted: one that is given, else the first entry's.
4. Every artifact is what its name says, and belongs to a trial that is in the bundle.

Nothing of it names a path: what is written goes where the ledger puts it.
"""

import contextlib
import itertools
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
from proctor.ledger.exchange.bundle import FORMAT, BundleHead, LeftOut
from proctor.ledger.handover import Handover, follow_handovers, follow_keys
from proctor.ledger.note import (
    LARGEST_NOTE,
    Checkpoint,
    VerifierKey,
    parse_checkpoint,
)
from proctor.ledger.signature import check_signature
from proctor.ledger.tree import HASH_SIZE, Frontier, leaf_hash

_LARGEST_HEAD = 4096
_ARTIFACT = "artifacts/"


@dataclass(slots=True)
class Unbundled:
    """A bundle that holds what it says."""

    checkpoint: Checkpoint
    keys: list[Handover] = field(default_factory=list)
    signer: VerifierKey | None = None
    """The key that the checkpoint was checked with."""
    trials: int = 0
    """Trials that are in it."""
    left_out: int = 0
    withheld: set[tuple[int | None, str | None]] = field(default_factory=set)
    """Places and leaf hashes of lines that were taken out."""
    excused: set[tuple[int | None, str | None]] = field(default_factory=set)
    """Those of which an entry says so."""
    named: dict[str, int] = field(default_factory=dict)
    """Digests of the evidence of its trials, with the bytes it has."""
    artifacts: set[str] = field(default_factory=set)
    """Evidence that is in the bundle."""


class _PlainInfo(tarfile.TarInfo):
    """A member's header; a header of a header, which may be of any size, is not followed."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        found = super().frombuf(buf, encoding, errors)
        if found.type not in (tarfile.REGTYPE, tarfile.AREGTYPE):
            raise tarfile.ReadError(f"{found.name[:80]!r} is no plain file; it has no others")
        return found


class _Sink:
    """Takes bytes and keeps none."""

    def write(self, data: bytes) -> int:
        return len(data)


def check_bundle(path: Path, key: VerifierKey | None = None) -> Unbundled:
    """What is in a bundle, all of it checked.

    Raises:
        InputError: it is no bundle.
        DamageError: it does not hold what its checkpoint signs.
    """
    with _open(path) as members:
        head = _parse_head(_read(members, "bundle.json", _LARGEST_HEAD, path), path)
        note = _read(members, "checkpoint", LARGEST_NOTE, path)
        checkpoint = parse_checkpoint(note, f"{path}: checkpoint")
        bundle = Unbundled(checkpoint)
        _check_entries(_next(members, "entries.jsonl", path), bundle, path)
        _check_signer(bundle, key, path)
        for digest, file in _artifacts(members, path):
            _check_artifact(digest, file, bundle, path)
    if (head.origin, head.size) != (checkpoint.origin, checkpoint.tree.size):
        raise DamageError(
            f"{path}: says that it is {head.size} entries of {head.origin}; its checkpoint signs "
            f"{checkpoint.tree.size} of {checkpoint.origin}"
        )
    return bundle


def read_artifacts(path: Path) -> Iterator[tuple[str, BinaryIO]]:
    """The evidence in a bundle that was checked: the digest, and the plain bytes to read at once.

    Raises:
        InputError: it changed meanwhile.
    """
    with _open(path) as members:
        for name in ("bundle.json", "checkpoint", "entries.jsonl"):
            _next(members, name, path)
        yield from _artifacts(members, path)


def read_entries(path: Path) -> Iterator[AnyEntry]:
    """The entries of a bundle that was checked, in order, without what was left out.

    Raises:
        InputError: it changed meanwhile.
    """
    with _open(path) as members:
        for name in ("bundle.json", "checkpoint"):
            _next(members, name, path)
        for _leaf, entry in _lines(_next(members, "entries.jsonl", path), path):
            if not isinstance(entry, Withheld | LeftOut):
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
        raise InputError(f"{path}: no bundle, or a torn one: {error}") from error


def _members(tar: tarfile.TarFile, path: Path) -> _Members:
    for member in tar:
        file = tar.extractfile(member) if member.isreg() else None
        if file is None:
            raise InputError(
                f"{path}: {member.name[:80]!r} is no plain file; a bundle has no others"
            )
        yield member, cast(BinaryIO, file)


def _next(members: _Members, name: str, path: Path) -> BinaryIO:
    member, file = next(members, (None, None))
    if member is None or file is None or member.name != name:
        found = repr(member.name[:80]) if member else "the end"
        raise InputError(f"{path}: no bundle: expected {name}, found {found}")
    return file


def _read(members: _Members, name: str, largest: int, path: Path) -> bytes:
    data = _next(members, name, path).read(largest + 1)
    if len(data) > largest:
        raise InputError(f"{path}: {name} has more than {largest:,} bytes")
    return data


def _parse_head(data: bytes, path: Path) -> BundleHead:
    try:
        head = msgspec.json.decode(data, type=BundleHead)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: no bundle: bundle.json: {error}") from error
    if head.format != FORMAT:
        raise InputError(
            f"{path}: a bundle of format {head.format[:80]!r}; this proctor reads {FORMAT!r}"
        )
    return head


def _check_entries(file: BinaryIO, bundle: Unbundled, path: Path) -> None:
    frontier, identities = Frontier(), Identities()
    for leaf, entry in _lines(file, path):
        if isinstance(entry, KeyEntry):
            bundle.keys.append(Handover(entry, frontier.root()))
        frontier.append(leaf)
        _note(entry, bundle, path)
        if not isinstance(entry, Withheld | LeftOut):
            _identify(entry, identities, path)
    tree = bundle.checkpoint.tree
    if (frontier.size, frontier.root()) != (tree.size, tree.root):
        raise DamageError(
            f"{path}: its {frontier.size} entries do not give the root that the checkpoint signs "
            f"for {tree.size}: something was edited, moved or taken out"
        )
    if unsaid := bundle.withheld - bundle.excused:
        seq = min(place for place, _ in unsaid if place is not None)
        raise DamageError(f"{path}: entry {seq} was taken out, and no entry says so")


def _note(entry: AnyEntry | Withheld | LeftOut, bundle: Unbundled, path: Path) -> None:
    match entry:
        case LeftOut():
            bundle.left_out += 1
        case Withheld():
            bundle.withheld.add((entry.seq, entry.withheld))
        case WithholdEntry():
            bundle.excused.add((entry.entry, entry.leaf))
        case TrialEntry():
            bundle.trials += 1
            _name_evidence(entry, bundle, path)
        case _:
            pass


def _identify(entry: AnyEntry, identities: Identities, path: Path) -> None:
    try:
        identities.take(entry)
    except DamageError as error:
        raise DamageError(f"{path}: {error}") from error


def _name_evidence(entry: TrialEntry, bundle: Unbundled, path: Path) -> None:
    """Note what a trial names."""
    for file in entry.evidence:
        if bundle.named.setdefault(file.sha256, file.size) != file.size:
            raise DamageError(
                f"{path}: entry {entry.seq}: {file.sha256} has another size than an entry before "
                "says"
            )


def _lines(file: BinaryIO, path: Path) -> Iterator[tuple[bytes, AnyEntry | Withheld | LeftOut]]:
    """Every leaf of the tree with what is there of its entry."""
    for seq in itertools.count():
        line = file.readline(LARGEST_ENTRY + 2)
        if not line:
            return
        where = f"{path}: entry {seq}"
        if not line.endswith(b"\n"):
            raise DamageError(f"{where}: torn, or longer than {LARGEST_ENTRY:,} bytes")
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
        raise DamageError(f"{where}: {text[:80]!r} is no leaf hash")
    return leaf


def _check_signer(bundle: Unbundled, given: VerifierKey | None, path: Path) -> None:
    try:
        keys = follow_handovers(bundle.keys, bundle.checkpoint.origin)
    except DamageError as error:
        raise DamageError(f"{path}: {error}") from error
    bundle.signer = follow_keys(given or keys[0], keys)
    check_signature(bundle.checkpoint, bundle.signer, f"{path}: checkpoint")


def _artifacts(members: _Members, path: Path) -> Iterator[tuple[str, BinaryIO]]:
    for member, file in members:
        digest = member.name.removeprefix(_ARTIFACT)
        if digest == member.name or "/" in digest:
            raise InputError(f"{path}: {member.name[:80]!r} is no member of a bundle")
        yield digest, file


def _check_artifact(digest: str, file: BinaryIO, bundle: Unbundled, path: Path) -> None:
    # Named by a trial first: a digest that an entry names is hex, and never a path.
    if digest not in bundle.named:
        raise DamageError(f"{path}: {digest[:80]!r} is evidence of no trial in the bundle")
    found = sha256_copy(file, cast(BinaryIO, _Sink()))
    if found != digest:
        raise AlteredArtifactError(
            f"{path}: artifact {digest} holds bytes with the SHA-256 {found}"
        )
    if file.tell() != bundle.named[digest]:
        raise AlteredArtifactError(
            f"{path}: artifact {digest} has {file.tell()} bytes; sealed were {bundle.named[digest]}"
        )
    bundle.artifacts.add(digest)
