"""A sealer is killed, or its disk is full, at every system call that changes something."""

import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.ledger.crashes import check_survivor, lay_out, sealed_in
from tests.ledger.sealer import STEPS

pytestmark = pytest.mark.usefixtures("strace")

CHANGING = ("write", "fsync", "fdatasync", "rename", "link", "linkat", "unlink", "mkdir")
FILLING = ("write", "mkdir", "rename", "fdatasync", "fsync")
"""Calls that a full disk refuses; a sync tells late of what a write was told."""
STRIDE = 37
"""Every which call is broken when there is little time."""


def run_sealer(place: Path, *options: str) -> subprocess.CompletedProcess[bytes]:
    words = ["strace", "-f", "-qq", "-o", str(place / "trace"), *options]
    words += [sys.executable, "-m", "tests.ledger.sealer"]
    words += [str(place / "ledger"), str(place / "key"), str(place / "evidence"), *STEPS]
    env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(words, env=env, capture_output=True, timeout=120, check=False)


@pytest.fixture(scope="module")
def ready(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("faults") / "ready"
    place.mkdir()
    lay_out(place)
    return place


@pytest.fixture(scope="module")
def counts(ready: Path) -> Counter[str]:
    """How often a sealer that is left alone makes each call."""
    place = ready.parent / "counted"
    shutil.copytree(ready, place)
    ran = run_sealer(place, "-e", f"trace={','.join(CHANGING)}")
    assert ran.returncode == 0, ran.stderr
    return Counter(re.findall(r"^\d+ +(\w+)\(", (place / "trace").read_text(), re.MULTILINE))


def check_kills(ready: Path, counts: Counter[str], tmp_path: Path, stride: int) -> None:
    for call in CHANGING:
        for number in range(1, counts[call] + 1, stride):
            place = tmp_path / f"{call}-{number}"
            shutil.copytree(ready, place)
            ran = run_sealer(place, "-e", f"inject={call}:signal=KILL:when={number}")
            assert ran.returncode != 0, f"{call} {number}"
            check_survivor(place, sealed_in(ran.stdout))
            shutil.rmtree(place)


def check_full(ready: Path, counts: Counter[str], tmp_path: Path, stride: int) -> None:
    for call in FILLING:
        for number in range(1, counts[call] + 1, stride):
            place = tmp_path / f"{call}-{number}"
            shutil.copytree(ready, place)
            ran = run_sealer(place, "-e", f"inject={call}:error=ENOSPC:when={number}")
            assert ran.returncode == 0, ran.stderr
            refused = [line for line in ran.stdout.splitlines() if line.startswith(b"refused")]
            assert len(refused) <= 1, ran.stdout
            for line in refused:
                assert b"No space left on device" in line
                assert b"; seal again" in line
            check_survivor(place, sealed_in(ran.stdout))
            shutil.rmtree(place)


def test_a_kill_at_any_step_loses_nothing_acknowledged(
    ready: Path, counts: Counter[str], tmp_path: Path
) -> None:
    check_kills(ready, counts, tmp_path, STRIDE)


def test_a_full_disk_at_any_step_refuses_that_step_and_no_other(
    ready: Path, counts: Counter[str], tmp_path: Path
) -> None:
    check_full(ready, counts, tmp_path, STRIDE)


@pytest.mark.soak
def test_a_kill_at_every_step_loses_nothing_acknowledged(
    ready: Path, counts: Counter[str], tmp_path: Path
) -> None:
    check_kills(ready, counts, tmp_path, 1)


@pytest.mark.soak
def test_a_full_disk_at_every_step_refuses_that_step_and_no_other(
    ready: Path, counts: Counter[str], tmp_path: Path
) -> None:
    check_full(ready, counts, tmp_path, 1)
