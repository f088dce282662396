"""Checkpoints of served and published ledgers as they were last seen: one file for each origin.

    $XDG_STATE_HOME/proctor/checkpoints/SHA256-OF-THE-ORIGIN.json     the last one, and its keys
    $XDG_STATE_HOME/proctor/checkpoints/evidence/SHA256…/SIZE-ID      contradictory checkpoints

A file is replaced atomically and is durable when `keep` returns. Callers hold the lock from reading
the last checkpoint until they store the next; those who fetch in between read it once more under
the lock, and begin again if it is another one. Signatures are not checked here.
"""

import contextlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import msgspec

from proctor.digest import sha256_hex
from proctor.errors import KeyFileError, LedgerError, NoteError
from proctor.files import open_plain, replace_durably, write_new
from proctor.ledger.lock import locked
from proctor.ledger.note import (
    LARGEST_NOTE,
    Checkpoint,
    VerifierKey,
    parse_checkpoint,
    parse_verifier_key,
)

FORMAT: Final = "proctor-seen-1"
_LARGEST = 4 * LARGEST_NOTE


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The last accepted checkpoint of a log, and the keys up to it."""

    checkpoint: Checkpoint
    keys: tuple[VerifierKey, ...]
    """The log's keys, oldest first; the last one signed the checkpoint."""


class _File(msgspec.Struct, frozen=True, kw_only=True):
    format: Literal["proctor-seen-1"] = FORMAT
    origin: str
    keys: list[str]
    checkpoint: str


def default_memory_path(env: Mapping[str, str]) -> Path:
    """The default directory: one for each user, whichever key signs."""
    home = Path(env.get("HOME") or "~").expanduser()
    state = Path(env.get("XDG_STATE_HOME") or home / ".local" / "state")
    return state / "proctor" / "checkpoints"


class Memory:
    """A directory of remembered checkpoints."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock on the directory, which is created if missing.

        Raises:
            LedgerError: it cannot be created or opened.
        """
        with contextlib.ExitStack() as stack:
            try:
                self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
                stack.enter_context(locked(self.directory))
            except OSError as error:
                raise LedgerError(
                    f"{self.directory}: checkpoints cannot be stored there: {error.strerror}; "
                    "XDG_STATE_HOME names another directory"
                ) from error
            yield

    def find(self, origin: str) -> Seen | None:
        """The last checkpoint seen of a log; None before the first contact.

        Raises:
            LedgerError: the file cannot be read or is invalid.
        """
        path = self.path_of(origin)
        try:
            with open_plain(path) as file:
                found = msgspec.json.decode(file.read(_LARGEST), type=_File)
            if found.origin != origin or not found.keys:
                raise LedgerError(f"{path}: not of {origin!r}, or without a key")
            return Seen(
                checkpoint=parse_checkpoint(found.checkpoint.encode(), str(path)),
                keys=tuple(map(parse_verifier_key, found.keys)),
            )
        except FileNotFoundError:
            return None
        except (
            OSError,
            msgspec.MsgspecError,
            UnicodeDecodeError,
            NoteError,
            KeyFileError,
        ) as error:
            raise LedgerError(
                f"{path}: the stored checkpoint of {origin!r} cannot be read: {error}; restore "
                "the file from a backup, or delete it to start as at first contact"
            ) from error

    def keep(self, seen: Seen) -> None:
        """Store a checkpoint durably; call it inside `locked`.

        Raises:
            LedgerError: it cannot be written; the former one remains.
        """
        file = _File(
            origin=seen.checkpoint.origin,
            keys=[str(key) for key in seen.keys],
            checkpoint=seen.checkpoint.render().decode(),
        )
        path = self.path_of(seen.checkpoint.origin)
        try:
            replace_durably(str(path), msgspec.json.format(msgspec.json.encode(file)) + b"\n")
        except OSError as error:
            raise LedgerError(
                f"{path}: the checkpoint cannot be stored: {error.strerror}"
            ) from error

    def keep_evidence(self, *checkpoints: Checkpoint) -> list[Path]:
        """Store signed checkpoints that contradict each other; returns the paths of their files.

        Raises:
            LedgerError: they cannot be written.
        """
        paths = []
        for checkpoint in checkpoints:
            data = checkpoint.render()
            name = f"{checkpoint.tree.size}-{sha256_hex(data)[:16]}"
            folder = self.directory / "evidence" / _name_of(checkpoint.origin)
            try:
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                with contextlib.suppress(FileExistsError):
                    write_new(folder / name, data)
            except OSError as error:
                raise LedgerError(f"{folder}: cannot be written: {error.strerror}") from error
            paths.append(folder / name)
        return paths

    def path_of(self, origin: str) -> Path:
        """The file of a log, named by a digest: an origin is untrusted text."""
        return self.directory / f"{_name_of(origin)}.json"


def _name_of(origin: str) -> str:
    return sha256_hex(os.fsencode(origin))
