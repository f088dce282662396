"""Fixtures of the command line's tests."""

from pathlib import Path

import pytest

from tests.cli.programs import Proctor, run_here
from tests.environments.conftest import cache, registry
from tests.environments.sandbox.rootfs import make_rootfs, pack

__all__ = ["cache", "registry"]


@pytest.fixture
def proctor(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Proctor:
    """The program in this process, arguments to exit code."""
    return run_here(monkeypatch, capsys)


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and so an empty image store, of a user without settings."""
    monkeypatch.setenv("PROCTOR_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("PROCTOR_BASE", raising=False)
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def bottom(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A layer with the programs that tasks need."""
    place = tmp_path_factory.mktemp("bottom")
    return pack(make_rootfs(place / "root"), place / "root.tar").read_bytes()
