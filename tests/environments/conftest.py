"""Fixtures of the environments' tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.environments.sandbox.registries import SmallRegistry, small_registry


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cache of this process's own: what is made of the host is made once."""
    directory = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PROCTOR_CACHE", str(directory))
        patch.delenv("PROCTOR_SCRATCH", raising=False)
        yield directory


@pytest.fixture
def registry() -> Iterator[SmallRegistry]:
    """An empty registry on this machine."""
    with small_registry() as found:
        yield found
