"""What tests of the ledger share."""

import shutil

import pytest

from tests.cli.programs import Proctor, run_here


@pytest.fixture
def proctor(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Proctor:
    """The program in this process, arguments to exit code."""
    return run_here(monkeypatch, capsys)


@pytest.fixture(scope="session")
def strace() -> str:
    """The program that sees and breaks system calls."""
    found = shutil.which("strace")
    if found is None:
        pytest.skip("strace is not installed")
    return found
