"""Untrusted JSON documents: proofs and claims, plain or compressed.

A document that parsers may read differently is refused: with duplicate or unknown keys, or invalid
Unicode. Its content is checked elsewhere.
"""

import json
import re
from collections import Counter
from typing import Any

import msgspec
from backports import zstd

from proctor.errors import ProofFileError
from proctor.files import read_input
from proctor.json_values import MOST_VALUES, check_values
from proctor.ledger.tree import HASH_SIZE
from proctor.sentence import render_limit

LARGEST = 1 << 28
"""Bytes, uncompressed; a claim of ten thousand trials has about 100 MB."""

ZSTD = b"\x28\xb5\x2f\xfd"
"""The first bytes of every zstd file."""
_LEVEL = 9
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


class _TwiceError(ValueError):
    """A duplicate key in an object."""


def load_document(path: str) -> bytes:
    """Read a document's file, decompressed."""
    data = read_input(path)
    return _unpack(data, path) if data.startswith(ZSTD) else data


def _unpack(data: bytes, path: str) -> bytes:
    unpacker = zstd.ZstdDecompressor()
    try:
        plain = unpacker.decompress(data, max_length=LARGEST + 1)
    except zstd.ZstdError as error:
        raise ProofFileError(f"{path}: incomplete or not zstd: {error}") from error
    if len(plain) > LARGEST:
        raise ProofFileError(f"{path}: unpacks to more than {render_limit(LARGEST)}")
    if not unpacker.eof or unpacker.unused_data:
        what = "has bytes after its end" if unpacker.eof else "is incomplete"
        raise ProofFileError(f"{path}: the compressed file {what}")
    return plain


def pack(data: bytes) -> bytes:
    """Compress a document."""
    return zstd.compress(data, level=_LEVEL)


def render_document(document: msgspec.Struct) -> bytes:
    """Render a document: one top-level key per line, values compact."""
    parts = msgspec.to_builtins(document)
    lines = [
        f"{json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}"
        for key, value in parts.items()
    ]
    return ("{\n" + ",\n".join(lines) + "\n}\n").encode()


def parse_document[Model](data: bytes, model: type[Model], where: str) -> Model:
    """Parse a document.

    Raises:
        ProofFileError: it is incomplete, ambiguous, or of another type; `where` names the file.
    """
    try:
        check_values(data, 4 * MOST_VALUES)
        value = json.loads(data, object_pairs_hook=_unique)
        # json accepts lone surrogates, which are not valid Unicode: encoding them raises.
        if _SURROGATE.search(data):
            json.dumps(value, ensure_ascii=False).encode()
        return msgspec.convert(value, model)
    except msgspec.ValidationError as error:
        raise ProofFileError(f"{where}: {error}") from error
    except _TwiceError as error:
        raise ProofFileError(f"{where}: {error}; expected each key once") from error
    except (ValueError, RecursionError) as error:
        raise ProofFileError(f"{where}: torn or not JSON: {error}") from error


def check_unique(line: bytes, where: str) -> None:
    """Refuse JSON with duplicate keys, which parsers may read differently.

    Raises:
        ProofFileError: it has one; `where` names the text in the message.
    """
    try:
        check_values(line, 4 * MOST_VALUES)
        json.loads(line, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise ProofFileError(f"{where}: {error}") from error


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        twice = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
        raise _TwiceError(f"the key {twice[:60]!r} occurs twice")
    return found


def parse_hash(text: str, where: str) -> bytes:
    """Parse a hash: 64 lower-case hex digits.

    Raises:
        ProofFileError: it is not a hash.
    """
    if len(text) == 2 * HASH_SIZE and text == text.lower() and text.isalnum():
        try:
            return bytes.fromhex(text)
        except ValueError:
            pass
    raise ProofFileError(f"{where}: {text[:80]!r} is not a hash; expected 64 hex digits")
