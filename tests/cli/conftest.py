"""Fixtures of the command line's tests."""

import pytest

from tests.cli.programs import Proctor, run_here
from tests.environments.conftest import cache

__all__ = ["cache", "proctor"]


@pytest.fixture
def proctor(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Proctor:
    """The program in this process, arguments to exit code."""
    return run_here(monkeypatch, capsys)
