"""What tests of the exports share."""

import pytest

from tests.cli.programs import Proctor, run_here


@pytest.fixture
def proctor(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Proctor:
    """The program in this process, arguments to exit code."""
    return run_here(monkeypatch, capsys)
