"""Signing keys: where they are stored, how they are created and loaded.

A key file is one line, `PRIVATE+KEY+name+hex(key id)+base64(0x01 ‖ seed)`, as the tools for signed
notes write it, with mode 0600, outside of every ledger:

    PROCTOR_KEY, else $XDG_CONFIG_HOME/proctor/keys/default, else ~/.config/proctor/keys/default
"""

import base64
import binascii
import contextlib
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from proctor.errors import KeyFileError
from proctor.files import read_head, write_new
from proctor.ledger.note import (
    ED25519,
    VerifierKey,
    check_name,
)

_PREFIX = "PRIVATE+KEY+"
_SEED_SIZE = 32
_LARGEST = 4096


@dataclass(frozen=True)
class SigningKey:
    """A private key with the name it signs under; its repr does not contain the key."""

    name: str
    private: Ed25519PrivateKey

    @cached_property
    def verifier(self) -> VerifierKey:
        """The public key for the log's signatures."""
        return VerifierKey(self.name, self.private.public_key().public_bytes_raw())

    def sign(self, message: bytes) -> bytes:
        """An Ed25519 signature."""
        return self.private.sign(message)

    def __repr__(self) -> str:
        return f"SigningKey({self.name!r})"


def default_key_path(env: Mapping[str, str]) -> Path:
    """The default path of the key file."""
    if given := env.get("PROCTOR_KEY"):
        return Path(given)
    home = Path(env.get("HOME") or "~").expanduser()
    config = Path(env.get("XDG_CONFIG_HOME") or home / ".config")
    return config / "proctor" / "keys" / "default"


def find_key(given: Path | None, env: Mapping[str, str]) -> SigningKey:
    """Load the signing key; the default key is created when it is first needed.

    Raises:
        KeyFileError: it cannot be read or created; a key given by path must exist.
    """
    path = given or default_key_path(env)
    if given is None and not env.get("PROCTOR_KEY") and not os.path.lexists(path):
        try:
            return make_key(path, f"proctor/{os.urandom(6).hex()}")
        except KeyFileError as error:
            # Two commands may create it at the same time: use the key of the one that was first.
            if not isinstance(error.__cause__, FileExistsError):
                raise
    return load_key(path)


def make_key(path: Path, name: str, seed: bytes | None = None) -> SigningKey:
    """Create a key in a new file that only its owner can read; with a seed, always the same key.

    Raises:
        KeyFileError: the file exists, or cannot be written.
    """
    check_name(name, "the name of the key")
    private = Ed25519PrivateKey.from_private_bytes(seed) if seed else Ed25519PrivateKey.generate()
    key = SigningKey(name, private)
    coded = base64.b64encode(ED25519 + key.private.private_bytes_raw()).decode()
    text = f"{_PREFIX}{name}+{key.verifier.key_id.hex()}+{coded}\n"
    try:
        _make_directories(path.parent)
        write_new(path, text.encode(), mode=0o600)
    except FileExistsError as error:
        raise KeyFileError(f"{path}: there is a key already; it is never replaced") from error
    except OSError as error:
        raise KeyFileError(
            f"{path}: a key cannot be written there: {error.strerror}; "
            "--key or PROCTOR_KEY names another place, --no-ledger seals nothing"
        ) from error
    return key


def _make_directories(directory: Path) -> None:
    """Create the missing directories of a key, for their owner only."""
    if not directory.is_dir():
        _make_directories(directory.parent)
        with contextlib.suppress(FileExistsError):
            directory.mkdir(mode=0o700)


def load_key(path: Path) -> SigningKey:
    """Load the key in a file.

    Raises:
        KeyFileError: it cannot be read, other users can read it, or it is not a key.
    """
    try:
        mode = path.stat().st_mode
        # Bounded: PROCTOR_KEY may name any file by mistake.
        data = read_head(str(path), _LARGEST)
    except OSError as error:
        raise KeyFileError(f"{path}: the signing key cannot be read: {error.strerror}") from error
    # As ssh does: a key that others can read may have been copied.
    if stat.S_IMODE(mode) & 0o077:
        raise KeyFileError(
            f"{path}: others can read this key (mode {stat.S_IMODE(mode):04o}); "
            f"expected 0600: chmod 600 {path}"
        )
    return _parse_key(data, path)


def _parse_key(data: bytes, path: Path) -> SigningKey:
    name, seed, key_id = "", b"", ""
    with contextlib.suppress(ValueError, binascii.Error):
        text = data.decode("utf-8").strip()
        name, key_id, coded = text.removeprefix(_PREFIX).split("+", 2)
        decoded = base64.b64decode(coded, validate=True)
        if text.startswith(_PREFIX) and decoded[:1] == ED25519:
            seed = decoded[1:]
    if len(seed) != _SEED_SIZE:
        raise KeyFileError(f"{path}: not a signing key; expected one line {_PREFIX}name+key id+key")
    check_name(name, f"{path}: the name of the key")
    key = SigningKey(name, Ed25519PrivateKey.from_private_bytes(seed))
    if key.verifier.key_id.hex() != key_id:
        raise KeyFileError(f"{path}: the key's id is {key.verifier.key_id.hex()}, not {key_id}")
    return key
