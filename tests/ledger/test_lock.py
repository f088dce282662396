"""One writer at a time, by a file; none on a network file system."""

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from proctor.errors import BusyError, LedgerError
from proctor.ledger.ledger import OpenLedger
from proctor.ledger.lock import locked
from proctor.ledger.sealing import Submission, seal
from proctor.ledger.verification.verify import verify_ledger
from tests.cli.programs import environment
from tests.ledger.ledgers import find_key, record_bytes, small


def seal_one(directory: Path, trial: str, key: Path) -> None:
    with OpenLedger.open(directory, key=find_key(key)) as ledger:
        ledger.patience_sec = 0.1
        seal(ledger, [Submission(record=record_bytes(trial), where=trial)])


def test_a_writer_waits_for_the_lock(tmp_path: Path) -> None:
    directory = small(tmp_path, "t1")
    held = os.open(directory / "lock", os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    with pytest.raises(BusyError):
        seal_one(directory, "t2", tmp_path)
    os.close(held)
    seal_one(directory, "t2", tmp_path)
    assert verify_ledger(directory).size == 3


def test_a_ledger_without_a_lock_gets_one_when_it_is_written(tmp_path: Path) -> None:
    directory = small(tmp_path, "t1")
    (directory / "lock").unlink()
    seal_one(directory, "t2", tmp_path)
    assert (directory / "lock").read_bytes() == b""
    assert verify_ledger(directory).is_sound


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_a_lock_that_is_no_plain_file_is_not_opened(tmp_path: Path, kind: str) -> None:
    directory, mine = small(tmp_path, "t1"), tmp_path / "mine"
    (directory / "lock").unlink()
    if kind == "link":
        (directory / "lock").symlink_to(mine)
    else:
        os.mkfifo(directory / "lock")
    with pytest.raises(LedgerError, match="cannot be written"):
        seal_one(directory, "t2", tmp_path)
    assert not mine.exists()
    assert verify_ledger(directory).size == 2


def test_both_are_let_go(tmp_path: Path) -> None:
    for _ in range(2):
        with locked(tmp_path, 0.1):
            pass


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounting takes root")
_ON_NFS = 'mount --bind "$0" /proc/$$/mountinfo && exec "$@"'


@needs_root
def test_a_ledger_on_a_network_file_system_is_read_and_not_written(tmp_path: Path) -> None:
    """The kernel's own list says so, in a namespace in which another one is put over it."""
    directory = small(tmp_path, "t1")
    listed = tmp_path / "mountinfo"
    listed.write_text(
        "1 0 8:1 / / rw - ext4 /dev/root rw\n"
        f"2 1 0:40 / {tmp_path} rw,relatime - nfs4 server:/export rw\n"
    )
    before = {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        program = (sys.executable, "-m", "proctor", *words)
        command = ("unshare", "-m", "sh", "-c", _ON_NFS, str(listed), *program)
        env = environment(PROCTOR_KEY=str(tmp_path / "key"))
        return subprocess.run(command, env=env, capture_output=True, text=True, check=False)

    for words in (
        (
            "ledger",
            "review",
            "t1",
            "--verdict",
            "pass",
            "--reviewer",
            "ana",
            "--ledger",
            str(directory),
        ),
        ("ledger", "init", "--ledger", str(tmp_path / "new")),
    ):
        ran = run(*words)
        assert ran.returncode == 2, ran.stdout + ran.stderr
        assert "on nfs4, a network file system; locks and atomic replacement" in ran.stderr
        assert "a local disk" in ran.stderr
    assert not (tmp_path / "new").exists()
    assert {path: path.read_bytes() for path in before} == before
    for command in ("list", "verify"):
        ran = run("ledger", command, "--ledger", str(directory))
        assert ran.returncode == 0, ran.stderr
