"""Tokens of a served ledger: who may read, and who may write what.

    $XDG_STATE_HOME/proctor/serve/DIGEST-OF-THE-ORIGIN/tokens.json

A token is printed once; the file has its SHA-256 only. A token has 256 random bits, so that a plain
hash cannot be guessed. The server reads the file again when it changes.
"""

import contextlib
import hmac
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from proctor.digest import sha256_hex
from proctor.errors import InputError, LedgerError
from proctor.files import replace_durably
from proctor.ledger.entry import now_text
from proctor.ledger.lock import locked
from proctor.ledger.memory import default_memory_path
from proctor.ledger.note import check_name

_PREFIX = "proctor_"
_BYTES = 32


class Token(msgspec.Struct, frozen=True, kw_only=True):
    """A token as it is stored."""

    name: str
    sha256: str
    """Of the token."""
    may_write: bool = False
    experiments: tuple[str, ...] = ()
    """What may be written; empty: every experiment."""
    made: str = ""

    def may_submit(self, experiment: str) -> bool:
        """Whether it may write to an experiment."""
        return self.may_write and (not self.experiments or experiment in self.experiments)


class _File(msgspec.Struct, frozen=True, kw_only=True):
    tokens: list[Token]


def serve_directory(origin: str, env: Mapping[str, str]) -> Path:
    """Where a server keeps what is not part of its ledger."""
    return default_memory_path(env).parent / "serve" / sha256_hex(origin.encode())[:32]


class Tokens:
    """The tokens of one ledger."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._path = directory / "tokens.json"
        self._stamp: tuple[int, int, int] | None = None
        self._by_digest: dict[str, Token] = {}

    def add(self, name: str, *, may_write: bool, experiments: tuple[str, ...]) -> str:
        """Make a token; returns it, which nobody can do again.

        Raises:
            InputError: there is a token of this name.
            LedgerError: it cannot be stored.
        """
        check_name(name, "the name of a token")
        token = _PREFIX + secrets.token_urlsafe(_BYTES)
        with self._changing() as tokens:
            if any(each.name == name for each in tokens):
                raise InputError(f"there is a token {name!r} already; revoke it first")
            made = Token(
                name=name,
                sha256=sha256_hex(token.encode()),
                may_write=may_write,
                experiments=experiments,
                made=now_text(),
            )
            self._write([*tokens, made])
        return token

    def revoke(self, name: str) -> None:
        """Remove a token.

        Raises:
            InputError: there is none of this name.
            LedgerError: that cannot be stored.
        """
        with self._changing() as tokens:
            left = [each for each in tokens if each.name != name]
            if len(left) == len(tokens):
                known = ", ".join(each.name for each in tokens) or "none"
                raise InputError(f"there is no token {name!r}; there are: {known}")
            self._write(left)

    def read(self) -> list[Token]:
        """All tokens.

        Raises:
            LedgerError: the file cannot be read.
        """
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=_File).tokens
        except FileNotFoundError:
            return []
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise LedgerError(f"{self._path}: cannot be read: {error}") from error

    def find(self, given: str) -> Token | None:
        """The token that was given, or None."""
        self._load()
        digest = sha256_hex(given.encode("utf-8", "surrogateescape"))
        found = self._by_digest.get(digest)
        # The look-up is by a digest, whose timing says nothing about a token.
        return found if found and hmac.compare_digest(found.sha256, digest) else None

    def _load(self) -> None:
        try:
            found = self._path.stat()
            stamp = (found.st_ino, found.st_mtime_ns, found.st_size)
        except FileNotFoundError:
            stamp = (0, 0, 0)
        if stamp != self._stamp:
            self._by_digest = {each.sha256: each for each in self.read()}
            self._stamp = stamp

    @contextlib.contextmanager
    def _changing(self) -> Iterator[list[Token]]:
        """The tokens, with the lock of their directory held."""
        with contextlib.ExitStack() as stack:
            try:
                self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
                stack.enter_context(locked(self._directory))
            except OSError as error:
                raise LedgerError(f"{self._directory}: cannot be used: {error.strerror}") from error
            yield self.read()

    def _write(self, tokens: list[Token]) -> None:
        data = msgspec.json.format(msgspec.json.encode(_File(tokens=tokens))) + b"\n"
        try:
            replace_durably(str(self._path), data)
            self._path.chmod(0o600)
        except OSError as error:
            raise LedgerError(f"{self._path}: cannot be written: {error.strerror}") from error
