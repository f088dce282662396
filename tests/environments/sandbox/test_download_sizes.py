"""How much pulls would download: asked of registries, each of which may fail, without a pull."""

import socket
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from proctor.environments.sandbox.roots.download_sizes import DownloadSizes, find_sizes
from proctor.environments.sandbox.roots.images import ImageStore
from proctor.environments.sandbox.roots.pull import PullOptions, pull_image
from proctor.environments.sandbox.roots.registry.client import Patience
from tests.environments.sandbox.registries import (
    Request,
    SmallRegistry,
    free_port,
    small_registry,
)
from tests.environments.sandbox.saved import Saved, layer

NOW = datetime(2026, 1, 2, tzinfo=UTC)
SIZES = "proctor.environments.sandbox.roots.download_sizes"
BASE = layer(("usr/x", "x" * 5000))
type Find = Callable[..., DownloadSizes]


@pytest.fixture
def store(tmp_path: Path) -> ImageStore:
    return ImageStore(tmp_path / "cache")


@pytest.fixture
def find(store: ImageStore, tmp_path: Path) -> Find:
    def run(*references: str) -> DownloadSizes:
        return find_sizes(store, references, {"HOME": str(tmp_path)}, threading.Event())

    return run


def pull(store: ImageStore, reference: str) -> int:
    """Pull an image; return the bytes that were downloaded."""
    return pull_image(store, reference, PullOptions(env={"HOME": "/nowhere"}, now=NOW)).n_bytes


def configure(tmp_path: Path, text: str) -> None:
    (tmp_path / ".config" / "proctor").mkdir(parents=True)
    (tmp_path / ".config" / "proctor" / "registries.toml").write_text(text, encoding="utf-8")


def test_the_size_is_what_a_pull_downloads_and_nothing_is_stored(
    registry: SmallRegistry, store: ImageStore, find: Find, tmp_path: Path
) -> None:
    twice = layer(("usr/y", "y"))
    saved = Saved((BASE, twice, layer(("usr/z", "z")), twice), "gzip")
    reference = registry.put("tool", saved, as_index=True)
    found = find(reference)
    assert found.reasons == ()
    assert found.count_bytes([reference]) == len(b"".join(saved.packed[:3]))
    layers = {registry.blob_path("tool", data) for data in saved.packed}
    assert layers.isdisjoint(path for path, _ in registry.seen)
    assert not (tmp_path / "cache").exists()
    assert pull(store, reference) == found.count_bytes([reference])
    assert find(reference).count_bytes([reference]) == 0


def test_layers_that_are_shared_or_there_count_once_or_not_at_all(
    registry: SmallRegistry, store: ImageStore, find: Find
) -> None:
    other = layer(("usr/1", "1"))
    one = registry.put("one", Saved((BASE, other), "gzip"))
    two = registry.put("two", Saved((BASE, layer(("usr/2", "22"))), "gzip"))
    # The same layer on top of nothing is another directory, which has to be downloaded again.
    three = registry.put("three", Saved((other,), "gzip"))
    found = find(one, two, three)
    each = [found.count_bytes([reference]) or 0 for reference in (one, two, three)]
    together = found.count_bytes([one, two, three])
    assert together == sum(each) - len(Saved((BASE,), "gzip").packed[0])
    assert together == sum(pull(store, reference) for reference in (one, two, three))


def test_images_that_a_registry_refuses_leave_the_others_known(
    registry: SmallRegistry, find: Find
) -> None:
    there = registry.put("tool", Saved())
    gone = f"{registry.host}/tool:2"
    found = find(gone, there, "NO NAME", "999.999.999.999/x")
    assert (found.count_bytes([gone]), found.count_bytes([there, gone])) == (None, None)
    assert found.count_bytes([there])
    refused, invalid, no_host = found.reasons
    assert refused == f'{gone}: {registry.host}: has no image 2 in tool ("not here")'
    assert invalid.startswith("'NO NAME': not a name of an image")
    assert "999.999.999.999: is not the name of a host" in no_host


def test_a_registry_that_hangs_up_is_asked_for_one_image_of_many(
    registry: SmallRegistry, find: Find
) -> None:
    names = [f"tool{number}" for number in range(30)]
    registry.answers = {f"/v2/{name}/manifests/1": Request.hang_up for name in names}
    found = find(*(f"{registry.host}/{name}:1" for name in names))
    (reason,) = found.reasons
    assert reason.startswith(f"{registry.host}: cannot be reached: ")
    assert len({path for path, _ in registry.seen}) == 1


def test_a_registry_that_never_answers_takes_the_time_of_one_image(
    find: Find, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{SIZES}._PATIENCE", Patience(piece_seconds=0.5, waits=()))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        host = f"127.0.0.1:{silent.getsockname()[1]}"
        start = time.monotonic()
        found = find(*(f"{host}/tool{number}:1" for number in range(89)))
        assert time.monotonic() - start < 5
    assert len(found.reasons) == 1
    assert found.layers == {}


def test_a_mirror_that_is_not_there_is_tried_once_and_the_registry_answers(
    registry: SmallRegistry, find: Find, tmp_path: Path
) -> None:
    with small_registry() as mirror:
        configure(tmp_path, f'[registries."{registry.host}"]\nmirrors = ["http://{mirror.host}"]\n')
        references = [registry.put(f"tool{number}", Saved()) for number in range(8)]
        mirror.answers = {
            path: Request.hang_up for path in registry.documents if "/manifests/1" in path
        }
        found = find(*references)
        assert found.reasons == ()
        assert found.count_bytes(references) == found.count_bytes(references[:1])
        assert len({path for path, _ in mirror.seen}) == 1


def test_several_images_are_asked_for_at_once(registry: SmallRegistry, find: Find) -> None:
    first, *rest = [registry.put(f"tool{number}", Saved()) for number in range(5)]
    together = threading.Barrier(4)

    def answer(request: Request) -> None:
        together.wait(timeout=30)
        registry.answer(request)

    registry.answers = {f"/v2/tool{number}/manifests/1": answer for number in range(1, 5)}
    assert find(first, *rest).reasons == ()


def test_after_too_long_no_more_is_asked(
    registry: SmallRegistry, find: Find, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{SIZES}._MOST_SECONDS", -1.0)
    found = find(registry.put("tool", Saved()), registry.put("other", Saved()))
    (reason,) = found.reasons
    assert reason.startswith(f"{registry.host}: not asked for all images")
    assert registry.seen == []


def test_a_configuration_that_is_wrong_is_a_reason(find: Find, tmp_path: Path) -> None:
    configure(tmp_path, "x = 1")
    found = find(f"127.0.0.1:{free_port()}/tool:1")
    (reason,) = found.reasons
    assert "registries.toml: not a configuration of registries" in reason
