"""Fixtures of the sandbox's tests."""

import asyncio
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from proctor.environments.sandbox.roots.images import ImageStore, Known
from tests.environments.sandbox.rootfs import make_rootfs, open_directory
from tests.environments.sandbox.sites import Act, site_at


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_rootfs(tmp_path_factory.mktemp("small") / "root")


@pytest.fixture
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small: Path) -> ImageStore:
    """A cache with an image called small in it."""
    monkeypatch.setenv("PROCTOR_CACHE", str(tmp_path / "cache"))
    store = ImageStore()
    store.import_image(
        "small", small, Known({"FROM_IMAGE": "yes"}, "/srv"), now=datetime(2026, 1, 2, tzinfo=UTC)
    )
    return store


@pytest.fixture
def on_site(tmp_path: Path, stored: ImageStore) -> Iterator[Callable[[Act], None]]:
    """Runs an act on a site."""

    async def run(act: Act) -> None:
        async with site_at(tmp_path) as site:
            await act(site)

    yield lambda act: asyncio.run(run(act))
    assert not [
        line for line in Path("/proc/mounts").read_text().splitlines() if str(tmp_path) in line
    ]


@pytest.fixture
def everybodys() -> Iterator[Path]:
    """A place that an ordinary user can reach."""
    with open_directory() as directory:
        yield directory


@pytest.fixture
def own_storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep what buildah stores in the test's directory."""
    text = '[storage]\ndriver = "vfs"\nrunroot = "{0}/run"\ngraphroot = "{0}/graph"\n'
    path = tmp_path / "storage.conf"
    path.write_text(text.format(tmp_path / "containers"), encoding="utf-8")
    monkeypatch.setenv("CONTAINERS_STORAGE_CONF", str(path))
