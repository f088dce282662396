"""Signed notes and the checkpoints in them, in the formats of C2SP.

    origin                              the name of the log
    size                                the number of its entries
    base64(root)                        the root of their tree
    (empty line)
    — name base64(key id ‖ signature)   one line for every signature

A key id is the first 4 bytes of SHA-256(name ‖ 0x0A ‖ 0x01 ‖ public key), where 0x01 is Ed25519.
Lines of other algorithms, such as cosignatures, are kept and not checked. Signatures of logs are
checked in signature.py.
"""

import base64
import binascii
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Protocol

import msgspec

from proctor.digest import sha256_digest
from proctor.errors import KeyFileError, NoteError
from proctor.ledger.tree import HASH_SIZE, Tree

# Validation of Ed25519 public keys as curve points (RFC 8032).
#
# A key of small order (one of eight points) fits a signature to nearly any message, and anybody can
# make one. Computed here because libraries do not report it, and because lists should not load one.


_P = 2**255 - 19
_D = -121665 * pow(121666, -1, _P) % _P
# A square root of -1.
_ROOT = pow(2, (_P - 1) // 4, _P)


@lru_cache(maxsize=64)
def find_key_fault(public: bytes) -> str | None:
    """Why 32 bytes are not a usable public key, or None."""
    number = int.from_bytes(public, "little")
    sign, y = number >> 255, number & ((1 << 255) - 1)
    if y >= _P:
        return "not a canonical public key: its y coordinate is too large"
    x = _find_x(y)
    if x is None:
        return "not a point of the curve"
    if x == 0 and sign:
        return "not a canonical public key: x is 0 with its sign bit set"
    if _has_small_order(x, y):
        return "a key of small order, which nearly any signature fits"
    return None


def _find_x(y: int) -> int | None:
    """One of the two x coordinates of the points with this y; None if there is none."""
    above, below = (y * y - 1) % _P, (_D * y * y + 1) % _P
    x = above * pow(below, 3, _P) * pow(above * pow(below, 7, _P), (_P - 5) // 8, _P) % _P
    square = below * x * x % _P
    if square == above:
        return x
    return x * _ROOT % _P if square == -above % _P else None


def _has_small_order(x: int, y: int) -> bool:
    """Whether eight times the point is the neutral element (0, 1)."""
    z = 1
    for _ in range(3):
        # Doubling on -x² + y² = 1 + d·x²·y² in projective coordinates with denominator z.
        xx, yy, both = x * x % _P, y * y % _P, 2 * x * y % _P
        down, up = (yy - xx) % _P, (yy + xx) % _P
        rest = (down - 2 * z * z) % _P
        x, y, z = both * rest % _P, down * -up % _P, down * rest % _P
    return x == 0 and (y - z) % _P == 0


LARGEST_NOTE = 64 * 1024
"""Bytes: a checkpoint has about 200, and 100 more for every other signature."""

_HANDOVER = "proctor-handover-2"
_DASH = "— "
_KEY_ID_SIZE = 4
ED25519 = b"\x01"
"""The byte of the algorithm in C2SP."""
_PUBLIC_SIZE = 32
_LARGEST_SIZE = 1 << 63


@dataclass(frozen=True)
class VerifierKey:
    """A public key with the name it signs under."""

    name: str
    public: bytes

    @cached_property
    def key_id(self) -> bytes:
        """The id of the key in signature lines."""
        named = self.name.encode() + b"\n" + ED25519 + self.public
        return sha256_digest(named)[:_KEY_ID_SIZE]

    def __str__(self) -> str:
        coded = base64.b64encode(ED25519 + self.public).decode()
        return f"{self.name}+{self.key_id.hex()}+{coded}"


class Signer(Protocol):
    """A private key that can sign a log."""

    @property
    def verifier(self) -> VerifierKey:
        """The public key."""

    def sign(self, message: bytes) -> bytes:
        """An Ed25519 signature."""


class Signature(msgspec.Struct, frozen=True):
    """One signature line."""

    name: str
    key_id: bytes
    payload: bytes

    def render(self) -> str:
        """The line, with its newline."""
        return f"{_DASH}{self.name} {base64.b64encode(self.key_id + self.payload).decode()}\n"


class Checkpoint(msgspec.Struct, frozen=True):
    """Size and root of a log at one time, with signatures."""

    origin: str
    tree: Tree
    signatures: tuple[Signature, ...] = ()

    @property
    def body(self) -> bytes:
        """The signed bytes."""
        root = base64.b64encode(self.tree.root).decode()
        return f"{self.origin}\n{self.tree.size}\n{root}\n".encode()

    def render(self) -> bytes:
        """The whole note."""
        lines = "".join(signature.render() for signature in self.signatures)
        return self.body + b"\n" + lines.encode()


def check_name(name: str, what: str) -> None:
    """Refuse a name that a note cannot contain.

    Raises:
        KeyFileError: it is empty, or has a space or a plus sign.
    """
    if (
        not name
        or "+" in name
        or any(letter.isspace() or not letter.isprintable() for letter in name)
    ):
        raise KeyFileError(f"{what} is {name!r}; expected a name without spaces and plus signs")


def parse_verifier_key(text: str) -> VerifierKey:
    """Parse `name+hex(key id)+base64(algorithm ‖ public key)`.

    Raises:
        KeyFileError: the text is invalid, the key id belongs to another key, or the key is unsafe.
    """
    wanted = "expected name+key id+key, as `proctor ledger key` prints it"
    if "PRIVATE" in text[:200]:
        # Never repeat a private key in a message.
        raise KeyFileError(f"this is a private key, which must not be shared; {wanted}")
    shown = text if len(text) <= 120 else text[:120] + "…"
    name, _, rest = text.strip().partition("+")
    key_id, _, coded = rest.partition("+")
    try:
        decoded = base64.b64decode(coded, validate=True)
        stated = bytes.fromhex(key_id)
    except (ValueError, binascii.Error):
        decoded = stated = b""
    if not decoded:
        raise KeyFileError(f"{shown!r} is not a public key; {wanted}")
    check_name(name, "the name of a public key")
    if len(decoded) != 1 + _PUBLIC_SIZE or decoded[:1] != ED25519:
        raise KeyFileError(f"{shown!r} is not an Ed25519 public key; {wanted}")
    if fault := find_key_fault(decoded[1:]):
        raise KeyFileError(f"{shown!r} is not a public key: {fault}")
    key = VerifierKey(name, decoded[1:])
    if key.key_id != stated:
        raise KeyFileError(f"{shown!r}: the key's id is {key.key_id.hex()}, not {key_id}")
    return key


def parse_checkpoint(data: bytes, where: str) -> Checkpoint:
    """Parse the checkpoint in a note; signatures are not checked.

    Raises:
        NoteError: it is not a checkpoint; `where` names the file in the message.
    """
    if len(data) > LARGEST_NOTE:
        raise NoteError(f"{where}: {len(data)} bytes; a checkpoint has a few hundred")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise NoteError(f"{where}: not a checkpoint: {error}") from error
    body, blank, signed = text.partition("\n\n")
    lines = body.split("\n")
    if not blank or len(lines) != 3:
        raise NoteError(
            f"{where}: not a checkpoint; expected three lines (origin, size, root), an empty "
            "one, and signatures"
        )
    origin, size, root = lines
    is_number = size.isascii() and size.isdigit() and (size == "0" or size[0] != "0")
    if not is_number or int(size[:20]) >= _LARGEST_SIZE:
        raise NoteError(f"{where}: the checkpoint's size is {size[:40]!r}; expected a whole number")
    try:
        digest = base64.b64decode(root, validate=True)
    except (ValueError, binascii.Error):
        digest = b""
    if len(digest) != HASH_SIZE:
        raise NoteError(
            f"{where}: the checkpoint's root is {root[:60]!r}; expected base64 of 32 bytes"
        )
    if not origin:
        raise NoteError(f"{where}: the checkpoint names no origin")
    if not origin.isprintable():
        # Terminals interpret control characters; ledgers made by proctor have none in their names.
        raise NoteError(f"{where}: the origin is {origin[:80]!r}; expected printable characters")
    tree = Tree(int(size), digest)
    checkpoint = Checkpoint(origin, tree, tuple(_parse_signatures(signed, where)))
    # The signature covers the parsed values: bytes that parsing ignores could be changed unnoticed.
    if checkpoint.render() != data:
        raise NoteError(f"{where}: not a canonical checkpoint: it has extra bytes")
    return checkpoint


def _parse_signatures(text: str, where: str) -> list[Signature]:
    signatures = []
    for line in text.split("\n")[:-1]:
        name, _, coded = line.removeprefix(_DASH).partition(" ")
        try:
            decoded = base64.b64decode(coded, validate=True)
        except (ValueError, binascii.Error):
            decoded = b""
        is_named = name and name.isprintable()
        if not line.startswith(_DASH) or not is_named or len(decoded) <= _KEY_ID_SIZE:
            raise NoteError(f"{where}: {line[:80]!r} is not a signature line")
        signatures.append(Signature(name, decoded[:_KEY_ID_SIZE], decoded[_KEY_ID_SIZE:]))
    if not text.endswith("\n") and text:
        raise NoteError(f"{where}: the last line of the checkpoint is incomplete")
    return signatures


def handover_message(origin: str, key: str, seq: int, root: str) -> bytes:
    """The message that a key signs to hand over to its successor; `root` is the root before it.

    It differs from every checkpoint: keys have no newlines.
    """
    return f"{_HANDOVER}\n{origin}\n{seq}\n{root}\n{key}".encode()


def sign_checkpoint(
    origin: str, tree: Tree, key: VerifierKey, sign: Callable[[bytes], bytes]
) -> Checkpoint:
    """Make a checkpoint with the log's signature."""
    plain = Checkpoint(origin, tree)
    return Checkpoint(origin, tree, (Signature(key.name, key.key_id, sign(plain.body)),))
