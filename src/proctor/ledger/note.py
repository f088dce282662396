"""Signed notes and the checkpoints in them, as C2SP writes them down.

    origin                              the name of the log
    size                                how many entries it has
    base64(root)                        the root of their tree
    (empty line)
    — name base64(key id ‖ signature)   one line for every signature

A key id is the first 4 bytes of SHA-256(name ‖ 0x0A ‖ algorithm ‖ public key). A cosignature is a
signature over the body with its time put before it. Nothing here reads a file, holds a secret or
checks a signature.
"""

import base64
import binascii
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property, lru_cache
from typing import Protocol

import msgspec

from proctor.digest import sha256_digest
from proctor.errors import KeyFileError, NoteError
from proctor.ledger.tree import HASH_SIZE, Tree

# Public keys of Ed25519 as points: which of them are no keys at all
#
# A key of small order, one of eight points, fits a signature to nearly any message; anybody can
# make one. Pure numbers, from RFC 8032: no library says this of a key, and lists need not load one.


_P = 2**255 - 19
_D = -121665 * pow(121666, -1, _P) % _P
_ROOT = pow(2, (_P - 1) // 4, _P)
"""A square root of -1."""


@lru_cache(maxsize=64)
def find_key_fault(public: bytes) -> str | None:
    """Why 32 bytes are no public key; None where they are one."""
    number = int.from_bytes(public, "little")
    sign, y = number >> 255, number & ((1 << 255) - 1)
    if y >= _P:
        return "not written as a public key is: its number is too large"
    x = _find_x(y)
    if x is None:
        return "no point of the curve"
    if x == 0 and sign:
        return "not written as a public key is: a sign without a number"
    if _has_small_order(x, y):
        return "a key of small order, which nearly any signature fits"
    return None


def _find_x(y: int) -> int | None:
    """One of the two numbers that make a point of this one."""
    above, below = (y * y - 1) % _P, (_D * y * y + 1) % _P
    x = above * pow(below, 3, _P) * pow(above * pow(below, 7, _P), (_P - 5) // 8, _P) % _P
    square = below * x * x % _P
    if square == above:
        return x
    return x * _ROOT % _P if square == -above % _P else None


def _has_small_order(x: int, y: int) -> bool:
    """Whether eight times the point is the neutral one, (0, 1)."""
    z = 1
    for _ in range(3):
        # Doubling on -x² + y² = 1 + d·x²·y², as fractions over z.
        xx, yy, both = x * x % _P, y * y % _P, 2 * x * y % _P
        down, up = (yy - xx) % _P, (yy + xx) % _P
        rest = (down - 2 * z * z) % _P
        x, y, z = both * rest % _P, down * -up % _P, down * rest % _P
    return x == 0 and (y - z) % _P == 0


LARGEST_NOTE = 64 * 1024
"""A checkpoint has some 200 bytes, and some 100 more for every cosignature."""

_HANDOVER = "proctor-handover-2"
_DASH = "— "
_KEY_ID_SIZE = 4
_PUBLIC_SIZE = 32
_LARGEST_SIZE = 1 << 63


class Algorithm(IntEnum):
    """What made a signature, by the byte C2SP gives it."""

    ED25519 = 1
    """A log's own signature."""
    COSIGNATURE = 4
    """A timed signature by somebody who saw the log grow."""


@dataclass(frozen=True)
class VerifierKey:
    """A public key with the name it signs under."""

    name: str
    public: bytes
    algorithm: Algorithm = Algorithm.ED25519

    @cached_property
    def key_id(self) -> bytes:
        """What a signature line names the key by."""
        named = self.name.encode() + b"\n" + bytes([self.algorithm]) + self.public
        return sha256_digest(named)[:_KEY_ID_SIZE]

    def __str__(self) -> str:
        coded = base64.b64encode(bytes([self.algorithm]) + self.public).decode()
        return f"{self.name}+{self.key_id.hex()}+{coded}"


class Signer(Protocol):
    """Whoever can sign a log."""

    @property
    def verifier(self) -> VerifierKey:
        """The public half."""

    def sign(self, message: bytes) -> bytes:
        """An Ed25519 signature."""


class Signature(msgspec.Struct, frozen=True):
    """One signature line."""

    name: str
    key_id: bytes
    payload: bytes
    """The signature; for a cosignature its time before it, as 8 bytes."""

    def render(self) -> str:
        """The line, with its newline."""
        return f"{_DASH}{self.name} {base64.b64encode(self.key_id + self.payload).decode()}\n"


class Checkpoint(msgspec.Struct, frozen=True):
    """What a log was at one moment, and who says so."""

    origin: str
    tree: Tree
    signatures: tuple[Signature, ...] = ()

    @property
    def body(self) -> bytes:
        """What is signed."""
        root = base64.b64encode(self.tree.root).decode()
        return f"{self.origin}\n{self.tree.size}\n{root}\n".encode()

    def render(self) -> bytes:
        """The whole note."""
        lines = "".join(signature.render() for signature in self.signatures)
        return self.body + b"\n" + lines.encode()


def check_name(name: str, what: str) -> None:
    """Refuse a name that a note cannot hold.

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
    """The key in `name+hex(key id)+base64(algorithm ‖ public key)`.

    Raises:
        KeyFileError: it is no such text, the key id belongs to another key, or anybody could sign
            with it.
    """
    wanted = "expected name+key id+key, as `proctor ledger checkpoint --public-key` prints it"
    if "PRIVATE" in text[:200]:
        # Whatever kind of key it is, it is not to stand in a message.
        raise KeyFileError(f"a private key, which nobody else should see; {wanted}")
    shown = text if len(text) <= 120 else text[:120] + "…"
    name, _, rest = text.strip().partition("+")
    key_id, _, coded = rest.partition("+")
    try:
        decoded = base64.b64decode(coded, validate=True)
        stated = bytes.fromhex(key_id)
        algorithm = Algorithm(decoded[0])
    except (ValueError, binascii.Error, IndexError) as error:
        raise KeyFileError(f"{shown!r} is no public key; {wanted}") from error
    check_name(name, "the name of a public key")
    if len(decoded) != 1 + _PUBLIC_SIZE:
        raise KeyFileError(f"{shown!r} is no Ed25519 public key; {wanted}")
    if fault := find_key_fault(decoded[1:]):
        raise KeyFileError(f"{shown!r} is no public key: {fault}")
    key = VerifierKey(name, decoded[1:], algorithm)
    if key.key_id != stated:
        raise KeyFileError(f"{shown!r}: the key's id is {key.key_id.hex()}, not {key_id}")
    return key


def parse_checkpoint(data: bytes, where: str) -> Checkpoint:
    """The checkpoint in a note's bytes; no signature is checked yet.

    Raises:
        NoteError: it is no checkpoint; `where` says which file.
    """
    if len(data) > LARGEST_NOTE:
        raise NoteError(f"{where}: {len(data)} bytes; a checkpoint has some hundred")
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
    tree = Tree(_parse_size(size, where), _parse_root(root, where))
    if not origin:
        raise NoteError(f"{where}: the checkpoint names no origin")
    if not origin.isprintable():
        # A terminal would obey what stands in it; no ledger of ours can have such a name.
        raise NoteError(f"{where}: the origin is {origin[:80]!r}; expected printable characters")
    checkpoint = Checkpoint(origin, tree, tuple(_parse_signatures(signed, where)))
    if checkpoint.render() != data:
        raise NoteError(
            f"{where}: not a checkpoint as it is written: bytes that mean nothing in it"
        )
    return checkpoint


def _parse_size(text: str, where: str) -> int:
    is_plain = text.isascii() and text.isdigit() and (text == "0" or text[0] != "0")
    if not is_plain or int(text[:20]) >= _LARGEST_SIZE:
        raise NoteError(f"{where}: the checkpoint's size is {text[:40]!r}; expected a whole number")
    return int(text)


def _parse_root(text: str, where: str) -> bytes:
    try:
        root = base64.b64decode(text, validate=True)
    except (ValueError, binascii.Error):
        root = b""
    if len(root) != HASH_SIZE:
        raise NoteError(
            f"{where}: the checkpoint's root is {text[:60]!r}; expected base64 of 32 bytes"
        )
    return root


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
            raise NoteError(f"{where}: {line[:80]!r} is no signature line")
        signatures.append(Signature(name, decoded[:_KEY_ID_SIZE], decoded[_KEY_ID_SIZE:]))
    if not text.endswith("\n") and text:
        raise NoteError(f"{where}: the last line of the checkpoint is torn")
    return signatures


def handover_message(origin: str, key: str, seq: int, root: str) -> bytes:
    """What a key signs to name its successor at a place of a log; `root` is the log's before it.

    No checkpoint is such a text, and none of those that older versions signed: a key has no lines.
    """
    return f"{_HANDOVER}\n{origin}\n{seq}\n{root}\n{key}".encode()


def unbound_handover_message(origin: str, key: str) -> bytes:
    """The same as older versions signed it, for whatever place."""
    return f"{origin}\n{key}".encode()


def cosigned_message(body: bytes, time: int) -> bytes:
    """What a cosigner signs: the body with its time (seconds since 1970) put before it."""
    return b"cosignature/v1\ntime %d\n" % time + body


def sign_checkpoint(
    origin: str, tree: Tree, key: VerifierKey, sign: Callable[[bytes], bytes]
) -> Checkpoint:
    """A checkpoint with the log's own signature; `sign` is the private key's."""
    plain = Checkpoint(origin, tree)
    return Checkpoint(origin, tree, (Signature(key.name, key.key_id, sign(plain.body)),))
