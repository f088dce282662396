"""Checkpoints that were seen before: one file per origin, for witnesses and monitors alike.

    $XDG_STATE_HOME/proctor/checkpoints/SHA256-OF-THE-ORIGIN.json     the last one, and its keys
    $XDG_STATE_HOME/proctor/checkpoints/evidence/SHA256…/SIZE-ID      checkpoints that contradict

A file is replaced in one step and is durable when `keep` returns; whoever decides by it holds the
lock from reading it to keeping the next. Nothing here checks a signature or reads a ledger.
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
    """The last checkpoint of a log that was accepted, and the keys that were followed to it."""

    checkpoint: Checkpoint
    keys: tuple[VerifierKey, ...]
    """The log's keys, oldest first; the last one signed the checkpoint."""
    is_key_given: bool
    """Whether a person named the key; else the log itself did, when it was first seen."""


class _File(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    format: Literal["proctor-seen-1"] = FORMAT
    origin: str
    keys: list[str]
    is_key_given: bool
    checkpoint: str


def default_memory_path(env: Mapping[str, str]) -> Path:
    """Where checkpoints are remembered: a user has one memory, whichever key signs."""
    home = Path(env.get("HOME") or "~").expanduser()
    state = Path(env.get("XDG_STATE_HOME") or home / ".local" / "state")
    return state / "proctor" / "checkpoints"


class Memory:
    """A directory of remembered checkpoints."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Be the only one who decides by it; the directory is made where it is missing.

        Raises:
            LedgerError: it cannot be made or opened.
        """
        with contextlib.ExitStack() as stack:
            try:
                self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
                stack.enter_context(locked(self.directory))
            except OSError as error:
                raise LedgerError(
                    f"{self.directory}: checkpoints cannot be remembered there: {error.strerror}; "
                    "--state names another directory"
                ) from error
            yield

    def find(self, origin: str) -> Seen | None:
        """What was seen last of a log; None before the first time.

        Raises:
            LedgerError: there is a file, and it cannot be read as what it should be.
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
                is_key_given=found.is_key_given,
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
                f"{path}: the remembered checkpoint of {origin!r} cannot be read: {error}; restore "
                "the file from a backup, or remove it to start again as at first contact"
            ) from error

    def keep(self, seen: Seen) -> None:
        """Remember a checkpoint, durably; call it inside `locked`.

        Raises:
            LedgerError: it cannot be written; the former one stays.
        """
        file = _File(
            origin=seen.checkpoint.origin,
            keys=[str(key) for key in seen.keys],
            is_key_given=seen.is_key_given,
            checkpoint=seen.checkpoint.render().decode(),
        )
        path = self.path_of(seen.checkpoint.origin)
        try:
            replace_durably(str(path), msgspec.json.format(msgspec.json.encode(file)) + b"\n")
        except OSError as error:
            raise LedgerError(
                f"{path}: the checkpoint cannot be remembered: {error.strerror}"
            ) from error

    def keep_evidence(self, *checkpoints: Checkpoint) -> list[Path]:
        """Keep signed checkpoints that contradict each other, each in a file; their paths.

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
        """The file of a log. By digest: an origin is a stranger's text, and no file name."""
        return self.directory / f"{_name_of(origin)}.json"


def _name_of(origin: str) -> str:
    return sha256_hex(os.fsencode(origin))
