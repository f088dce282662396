"""Where pinned commands run: copies of real jobs and of a stored ledger, and nobody's settings.

    jobs/       the public harbor jobs, and two that proctor ran
    tasks/      tasks of harbor's
    traces/     trajectories and an ATIF file
    records/    records of every generation
    ledger/     a ledger with every kind of entry; with older-checkpoint and key.pub beside it
    frozen/     claims, proofs and a bundle that were made from it
    broken/     what commands refuse: empty, truncated and edited copies of the above
    key         the key that signs it; its seed is public, so it protects nothing

Commands run in this process with the workspace as their working directory, so that the paths they
print are relative. `Workspace.normalise` replaces what differs from run to run.
"""

import base64
import contextlib
import hashlib
import io
import json
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

from backports import zstd
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from proctor import __version__
from proctor.cli.main import main

DATA = Path(__file__).resolve().parent.parent / "data"
STORED = DATA / "ledgers" / "every-kind"
FROZEN = DATA / "ledgers" / "frozen"
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
            # With a package, click calls the program after it: `python -m pytest`.
            patch.object(sys.modules["__main__"], "__package__", None),
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
    shutil.copytree(FROZEN, root / "frozen", copy_function=shutil.copyfile)
    _break(root)
    for path in root.rglob("*"):
        os.utime(path, (_FILE_TIME, _FILE_TIME))
    write_key(root / "key")
    return Workspace(root, datetime.now(UTC) - timedelta(seconds=1))


def _break(root: Path) -> None:
    """Copies of good inputs that are empty, cut off in the middle, or edited."""
    broken = root / "broken"
    (broken / "empty").mkdir(parents=True)
    for name in ("empty.json", "empty.jsonl"):
        (broken / name).touch()
    for source, name in (
        ("records/g1-complete.json", "truncated.json"),
        ("traces/passes.jsonl", "truncated.jsonl"),
        ("frozen/candidate.bundle.tar.zst", "bundle.tar.zst"),
    ):
        data = (root / source).read_bytes()
        (broken / name).write_bytes(data[: len(data) // 2])
    (broken / "edited.txt").write_text("nobody's\n")
    line = {"reason_code": None, "resolved": 1, "score": 0.5, "status": "completed", "total": 2}
    (broken / "line.txt").write_text(f"BASE_BENCHMARK_RESULT={json.dumps(line)}\n")
    claim = zstd.decompress((root / "frozen" / "nightly.claim.json.zst").read_bytes())
    (broken / "claim.json").write_bytes(claim)
    (broken / "edited.claim.json").write_bytes(claim.replace(b'"scored": 4', b'"scored": 3'))
    (broken / "other.pub").write_text(f"{_public_key(bytes(32))[1]}\n")
    _edit(
        root / "records" / "g1-complete.json", broken / "record.json", "experiment_id", "experiment"
    )
    shutil.copytree(root / "tasks" / "binary" / "pass-two", broken / "task")
    (broken / "task" / "task.toml").write_text("version = [\n")
    registry = [{"name": "fixtures", "version": "1", "description": "none", "tasks": []}]
    (broken / "registry.json").write_text(json.dumps(registry))
    for name in ("edited-job", "truncated-job"):
        shutil.copytree(root / "jobs" / "nightly", broken / name)
    result = Path("answer__86Asrh6", "result.json")
    _edit(
        broken / "edited-job" / result, broken / "edited-job" / result, '"reward": 1', '"reward": 0'
    )
    _truncate(broken / "truncated-job" / result)
    for name in ("edited-ledger", "truncated-ledger"):
        shutil.copytree(root / "ledger", broken / name)
    lines = Path("entries", "000000.jsonl")
    _edit(broken / "edited-ledger" / lines, broken / "edited-ledger" / lines, "read it", "saw it")
    _truncate(broken / "truncated-ledger" / lines)


def _edit(source: Path, target: Path, old: str, new: str) -> None:
    text = source.read_text()
    assert old in text
    target.write_text(text.replace(old, new))


def _truncate(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


def write_key(path: Path) -> None:
    """The key of the stored ledger, from a seed that everybody knows."""
    seed = hashlib.sha256(b"pinned second").digest()
    key_id, _ = _public_key(seed)
    path.write_text(
        f"PRIVATE+KEY+{_KEY_NAME}+{key_id}+{base64.b64encode(b'\x01' + seed).decode()}\n"
    )
    path.chmod(0o600)


def _public_key(seed: bytes) -> tuple[str, str]:
    """The id of a key, and its public part as it is written."""
    key = Ed25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw()
    key_id = hashlib.sha256(f"{_KEY_NAME}\n".encode() + b"\x01" + key).digest()[:4].hex()
    return key_id, f"{_KEY_NAME}+{key_id}+{base64.b64encode(b'\x01' + key).decode()}"


def _exit_code(program: Callable[[], None]) -> int:
    try:
        program()
    except SystemExit as left:
        code = left.code
    else:
        code = None
    assert isinstance(code, int), "the program ended without an exit code"
    return code
