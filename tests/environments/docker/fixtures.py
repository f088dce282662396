"""Fixtures for whoever needs a Docker engine: one a worker, and one a test that hurts it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.environments.docker.engine import (
    Engine,
    find_obstacle,
    import_images,
    pack_image,
    started,
)


@pytest.fixture(scope="session")
def small_image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small image as a tar, made once."""
    if obstacle := find_obstacle():
        pytest.skip(obstacle)
    return pack_image(tmp_path_factory.mktemp("image"))


@pytest.fixture(scope="session")
def shared_engine(small_image: Path) -> Iterator[Engine]:
    """An engine that tests of this worker share."""
    with started() as engine:
        import_images(engine, small_image)
        yield engine
        assert not engine.containers()
    assert not engine.mounts()
    assert not engine.top.exists()


@pytest.fixture
def engine(shared_engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    """The engine that docker talks to during a test; no container is left in it."""
    monkeypatch.setenv("DOCKER_HOST", shared_engine.host)
    yield shared_engine
    assert not shared_engine.containers()


@pytest.fixture
def own_engine(small_image: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    """An engine that a test may hurt."""
    with started() as engine:
        import_images(engine, small_image)
        monkeypatch.setenv("DOCKER_HOST", engine.host)
        yield engine
