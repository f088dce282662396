"""New files and directories that are there whole or not at all, and take nobody's place."""

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from proctor.errors import LedgerError
from proctor.files import sync_directory, sync_file


@contextlib.contextmanager
def new_directory(target: Path) -> Iterator[Path]:
    """A directory to write to; what is in it at the end appears under the name in one step.

    Raises:
        LedgerError: something is there, or it cannot be written.
    """
    check_absent(target)
    temporary = _beside(target)
    try:
        temporary.mkdir()
        yield temporary
        _sync_below(temporary)
        # An empty directory would be replaced without a word.
        check_absent(target)
        temporary.rename(target)
        sync_directory(target.parent)
    except OSError as error:
        raise LedgerError(f"{target}: cannot be written: {error}") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


@contextlib.contextmanager
def new_file(target: Path) -> Iterator[BinaryIO]:
    """A file to write to; its bytes appear under the name in one step.

    Raises:
        LedgerError: something is there, or it cannot be written.
    """
    check_absent(target)
    temporary = _beside(target)
    try:
        with temporary.open("x+b") as file:
            yield file
        sync_file(temporary)
        # A link, unlike a change of name, replaces nothing.
        os.link(temporary, target)
        sync_directory(target.parent)
    except FileExistsError as error:
        raise LedgerError(_taken(target)) from error
    except OSError as error:
        raise LedgerError(f"{target}: cannot be written: {error}") from error
    finally:
        temporary.unlink(missing_ok=True)


def check_absent(target: Path) -> None:
    """Refuse a path where something is.

    Raises:
        LedgerError: there is.
    """
    if os.path.lexists(target):
        raise LedgerError(_taken(target))


def _taken(target: Path) -> str:
    return f"{target}: there is something already; an export replaces nothing"


def _beside(target: Path) -> Path:
    return target.with_name(f".{target.name[:80]}.{os.urandom(4).hex()}.tmp")


def _sync_below(directory: Path) -> None:
    for folder, _, names in os.walk(directory):
        for name in names:
            sync_file(Path(folder, name))
        sync_directory(folder)
