"""Fixtures that every test may use. What only one unit's tests need lives beside them."""

import itertools
import os
import shutil
import signal
import sys
from pathlib import Path

import pytest
from hypothesis import settings

# How long an example takes is the machine's business, not the test's.
settings.register_profile("proctor", deadline=None)
settings.load_profile("proctor")

# A shell starts what it puts into the background deaf to Ctrl-C, and every child would be so too.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def root() -> Path:
    """The root of the repository."""
    return ROOT


_NUMBERS = itertools.count()


@pytest.fixture(autouse=True)
def own_ledger(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A ledger of its own for each test that seals something, and a key that is nobody's."""
    place = tmp_path_factory.getbasetemp() / "sealed"
    monkeypatch.setenv("PROCTOR_LEDGER", str(place / f"ledger-{next(_NUMBERS)}"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(place / "config"))
    monkeypatch.delenv("PROCTOR_KEY", raising=False)


@pytest.fixture
def uv_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """The uv of the machine, else the one that `make` keeps for itself."""
    places = [os.environ["PATH"], str(ROOT / ".tools"), str(Path(sys.executable).parent)]
    monkeypatch.setenv("PATH", os.pathsep.join(places))
    assert shutil.which("uv"), "uv is needed: `make test` provides it"
