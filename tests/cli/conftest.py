"""Fixtures of the command line's tests."""

import sys

import pytest

from proctor.cli.main import main
from tests.cli.programs import Proctor, Ran


@pytest.fixture
def proctor(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Proctor:
    """The program in this process, arguments to exit code."""

    def run(*arguments: object) -> Ran:
        monkeypatch.setattr(sys, "argv", ["proctor", *map(str, arguments)])
        with pytest.raises(SystemExit) as left:
            main()
        code = left.value.code
        assert isinstance(code, int)
        out, err = capsys.readouterr()
        return Ran(code, out, err)

    return run
