"""Where pinned commands run: copies of real jobs and of a stored ledger, and nobody's settings.

    jobs/       the public harbor jobs, and two that proctor ran
    tasks/      tasks of harbor's
    traces/     trajectories and an ATIF file
    records/    records of every generation
    ledger/     a ledger with every kind of entry; with older-checkpoint and key.pub beside it
    key         the key that signs it; its seed is public, so it protects nothing

Commands run in this process with the workspace as their working directory, so that the paths they
print are relative. `Workspace.normalise` replaces what differs from run to run.
"""

import base64
import contextlib
import hashlib
import io
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest.mock import patch

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from proctor import __version__
from proctor.cli.main import main

DATA = Path(__file__).resolve().parent.parent / "data"
STORED = DATA / "ledgers" / "every-kind"
_KEY_NAME = "example.org/pinned"
_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|\+00:00)?")
_VERSION = re.compile(rf'(proctor(?:"?: "?|/| )){re.escape(__version__)}')
_INDEX_SIZE = re.compile(r'("index_bytes": |\bindex )[\d.]+( k?B)?')
_PYTHON = re.compile(r'(Python |"python": ")3\.\d+\.\d+')
_DURATION = re.compile(r'(_seconds": )\d[\d.e-]*')
_FILE_TIME = 1_767_225_600
"""2026-01-01: the viewer shows when the files of a job were changed."""


@dataclass(frozen=True)
class Output:
    """How a command ended."""

    code: int
    out: str
    err: str


@dataclass(frozen=True)
class Workspace:
    """A directory in which pinned commands run."""

    root: Path
    began: datetime

    def run(self, words: list[str]) -> Output:
        """Run a command, in this process."""
        streams = [io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2)]
        with (
            self.entered(),
            # Durability has tests of its own; here it would take most of the time.
            patch.object(os, "fsync", lambda _: None),
            patch.object(sys, "argv", ["proctor", *words]),
            patch.object(sys, "stdout", streams[0]),
            patch.object(sys, "stderr", streams[1]),
        ):
            code = _exit_code(main)
        out, err = (stream.buffer.getvalue().decode() for stream in streams)
        return Output(code, self.normalise(out), self.normalise(err))

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """The workspace is the working directory, and nothing of this machine's settings counts."""
        before = Path.cwd()
        with patch.dict(os.environ, self._environment(), clear=True):
            time.tzset()
            os.chdir(self.root)
            try:
                yield
            finally:
                os.chdir(before)
        time.tzset()

    def _environment(self) -> dict[str, str]:
        home = str(self.root / "home")
        return {
            "COLUMNS": "100",
            "HOME": home,
            "LC_ALL": "C.UTF-8",
            "PATH": os.environ["PATH"],
            "PROCTOR_CACHE": f"{home}/cache",
            "PROCTOR_KEY": str(self.root / "key"),
            "TZ": "UTC",
            "XDG_CONFIG_HOME": f"{home}/config",
            "XDG_STATE_HOME": f"{home}/state",
        }

    def normalise(self, text: str, made: Collection[str] = ()) -> str:
        """Replace what differs from run to run, and nothing else.

        - the workspace's path
        - times between the making of the workspace and now; those of stored data stay
        - proctor's version and Python's
        - the size of an index, which is derived data and depends on SQLite
        - random ids that the command has `made`, and then its durations too
        """
        text = text.replace(str(self.root), "<workspace>")
        text = _TIME.sub(self._without_now, text)
        text = _VERSION.sub(r"\1<version>", text)
        text = _PYTHON.sub(r"\1<version>", text)
        text = _INDEX_SIZE.sub(r"\1<size>", text)
        for random_id in made:
            text = text.replace(random_id, "<id>")
        return _DURATION.sub(r"\1<duration>", text) if made else text

    def _without_now(self, found: re.Match[str]) -> str:
        when = datetime.fromisoformat(found[0]).replace(tzinfo=UTC)
        return "<now>" if self.began <= when <= datetime.now(UTC) else found[0]


def make_workspace(root: Path) -> Workspace:
    """Copy everything that commands are run on."""
    shutil.copytree(DATA / "harbor", root, copy_function=shutil.copyfile, dirs_exist_ok=True)
    shutil.copytree(STORED, root, copy_function=shutil.copyfile, dirs_exist_ok=True)
    shutil.copytree(DATA / "records", root / "records", copy_function=shutil.copyfile)
    shutil.copytree(DATA / "looking", root / "traces", copy_function=shutil.copyfile)
    shutil.copyfile(DATA / "atif" / "every-field.json", root / "traces" / "trajectory.json")
    for path in root.rglob("*"):
        os.utime(path, (_FILE_TIME, _FILE_TIME))
    write_key(root / "key")
    return Workspace(root, datetime.now(UTC) - timedelta(seconds=1))


def write_key(path: Path) -> None:
    """The key of the stored ledger, from a seed that everybody knows."""
    seed = hashlib.sha256(b"pinned second").digest()
    public = Ed25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw()
    key_id = hashlib.sha256(f"{_KEY_NAME}\n".encode() + b"\x01" + public).digest()[:4].hex()
    path.write_text(
        f"PRIVATE+KEY+{_KEY_NAME}+{key_id}+{base64.b64encode(b'\x01' + seed).decode()}\n"
    )
    path.chmod(0o600)


def _exit_code(program: Callable[[], None]) -> int:
    try:
        program()
    except SystemExit as left:
        code = left.code
    else:
        code = None
    assert isinstance(code, int), "the program ended without an exit code"
    return code
