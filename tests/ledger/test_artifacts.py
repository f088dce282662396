"""Artifacts on their way to their names: a dead writer's are cleared, a living one's stay."""

import io
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from proctor.ledger.artifacts import FileArtifacts

WRITER = """
import io, os, signal, sys
from pathlib import Path
from proctor.ledger.artifacts import FileArtifacts
artifacts = FileArtifacts(Path(sys.argv[1]))
artifacts.put(io.BytesIO(b"never named"))
os.kill(os.getpid(), signal.SIGKILL)
"""


def unnamed_in(ledger: Path) -> list[Path]:
    return sorted((ledger / "artifacts" / "sha256").glob(".*.tmp"))


def put(ledger: Path, data: bytes) -> str:
    artifacts = FileArtifacts(ledger)
    digest, _ = artifacts.put(io.BytesIO(data))
    artifacts.settle()
    return digest


def test_what_a_killed_writer_left_goes_with_the_next(tmp_path: Path) -> None:
    killed = subprocess.run([sys.executable, "-c", WRITER, tmp_path], check=False)
    assert killed.returncode == -signal.SIGKILL
    (left,) = unnamed_in(tmp_path)
    assert len(list(left.iterdir())) == 1
    digest = put(tmp_path, b"mine")
    assert unnamed_in(tmp_path) == []
    assert FileArtifacts(tmp_path).load(digest, 4) == b"mine"


def test_what_a_living_writer_has_not_named_yet_stays(tmp_path: Path) -> None:
    slow = FileArtifacts(tmp_path)
    digest, _ = slow.put(io.BytesIO(b"slow"))
    put(tmp_path, b"quick")
    assert len(unnamed_in(tmp_path)) == 1
    slow.settle()
    assert unnamed_in(tmp_path) == []
    assert slow.load(digest, 4) == b"slow"


def test_what_is_removed_at_that_moment_is_stored_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = put(tmp_path, b"old")
    path = FileArtifacts(tmp_path).path_of(digest)
    os.utime(path, (0, 0))

    def touch(_: Path) -> None:
        path.unlink()
        raise FileNotFoundError

    monkeypatch.setattr("proctor.ledger.artifacts.os.utime", touch)
    put(tmp_path, b"old")
    assert FileArtifacts(tmp_path).load(digest, 3) == b"old"


def test_what_is_discarded_leaves_nothing(tmp_path: Path) -> None:
    artifacts = FileArtifacts(tmp_path)
    digest, _ = artifacts.put(io.BytesIO(b"x" * (1 << 20)))
    artifacts.discard()
    assert unnamed_in(tmp_path) == []
    assert not artifacts.holds(digest)


def test_a_link_among_what_was_left_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "ledger").mkdir()
    put(tmp_path / "ledger", b"first")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "file").write_text("stays")
    link = tmp_path / "ledger" / "artifacts" / "sha256" / ".0.tmp"
    link.symlink_to(tmp_path / "elsewhere")
    put(tmp_path / "ledger", b"second")
    assert (tmp_path / "elsewhere" / "file").read_text() == "stays"


def test_directories_that_somebody_else_made_are_synced_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever made them may have been killed before they were on the disk."""
    put(tmp_path, b"first")
    synced: set[str] = set()
    fsync = os.fsync

    def remember(fd: int) -> None:
        synced.add(str(Path(f"/proc/self/fd/{fd}").readlink()))
        fsync(fd)

    monkeypatch.setattr(os, "fsync", remember)
    digest = put(tmp_path, b"first")
    place = tmp_path / "artifacts" / "sha256"
    places = [tmp_path, place.parent, place, place / digest[:2]]
    assert {str(each.resolve()) for each in places} <= synced
