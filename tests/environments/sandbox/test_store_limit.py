"""The limit of the image store: pulls and builds remove what was not used for the longest time."""

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from proctor.environments.sandbox.locks import claimed, hold, release
from proctor.environments.sandbox.roots.images import ImageStore
from proctor.environments.sandbox.roots.layers import LayerStore
from proctor.environments.sandbox.roots.prune import measure_store, prune_store
from proctor.environments.sandbox.roots.pull import Pulled, PullOptions, pull_image
from proctor.errors import ImageError
from tests.cli.programs import environment
from tests.environments.sandbox.built import put_layer
from tests.environments.sandbox.registries import SmallRegistry
from tests.environments.sandbox.rootfs import pack
from tests.environments.sandbox.saved import Saved, layer
from tests.environments.sandbox.sites import OnSite, Site
from tests.environments.sandbox.test_builders import SYSTEM, needs_buildah
from tests.environments.sandbox.trees import take
from tests.task.trees import write

NOW = datetime(2026, 1, 2, tzinfo=UTC)
SIZE = 100_000
HOLD = """
import sys
from proctor.environments.sandbox.roots.images import ImageStore
store = ImageStore()
assert store.hold(store.find(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""
PULL = """
import os, sys
from datetime import UTC, datetime
from proctor.environments.sandbox.roots.images import ImageStore
from proctor.environments.sandbox.roots.pull import PullOptions, pull_image
for reference in sys.argv[1:]:
    pull_image(ImageStore(), reference, PullOptions(env=os.environ, now=datetime.now(UTC)))
"""
type Pull = Callable[..., Pulled]


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ImageStore:
    monkeypatch.setenv("PROCTOR_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path))
    return ImageStore()


@pytest.fixture
def pull(store: ImageStore, tmp_path: Path) -> Pull:
    """Pulls into a store with a limit."""

    def run(reference: str, limit: int = 10 * SIZE, **more: object) -> Pulled:
        env = {"HOME": str(tmp_path), "PROCTOR_STORE_LIMIT": str(limit)}
        pulled = pull_image(store, reference, PullOptions(env=env, now=NOW, **more))  # type: ignore[arg-type]
        # So that the next one is used later.
        time.sleep(0.01)
        return pulled

    return run


def publish(registry: SmallRegistry, name: str, *below: bytes) -> str:
    """Publish an image with a file of SIZE bytes on top of these layers."""
    return registry.put(name, Saved((*below, layer((f"usr/{name}", os.urandom(SIZE // 2).hex())))))


def names(store: ImageStore) -> list[str]:
    return [image.name.rpartition("/")[2] for image in store.list_images()]


def n_layers(store: ImageStore) -> int:
    return len(list(store.layer("x").parent.iterdir()))


@contextmanager
def held(reference: str) -> Iterator[None]:
    """Another process, which uses an image."""
    words = [sys.executable, "-c", HOLD, reference]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment()
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        yield
        holder.communicate()


def test_a_pull_removes_the_oldest_images_down_to_the_limit(
    registry: SmallRegistry, store: ImageStore, pull: Pull
) -> None:
    one, two, three = (publish(registry, name) for name in ("one", "two", "three"))
    old = pull(one).image
    pull(two)
    pulled = pull(three, limit=int(2.5 * SIZE))
    assert names(store) == ["three:1", "two:1"]
    assert (n_layers(store), store.layer(old.layers[0]).exists()) == (2, False)
    assert [image.names for image in pulled.pruned.images] == [(one,)]
    assert SIZE <= pulled.pruned.n_bytes < 1.5 * SIZE
    # Pulled again, it is the newest.
    pull(one, limit=int(2.5 * SIZE))
    assert names(store) == ["one:1", "three:1"]


def test_a_use_makes_an_image_the_newest(
    registry: SmallRegistry, store: ImageStore, pull: Pull
) -> None:
    one, two, three = (publish(registry, name) for name in ("one", "two", "three"))
    pull(one)
    pull(two)
    with held(one):
        pass
    pull(three, limit=int(2.5 * SIZE))
    assert names(store) == ["one:1", "three:1"]


def test_what_another_process_uses_stays_and_so_does_what_was_just_pulled(
    registry: SmallRegistry, store: ImageStore, pull: Pull
) -> None:
    one, two, three = (publish(registry, name) for name in ("one", "two", "three"))
    pull(one)
    pull(two)
    with held(one):
        pull(three, limit=0)
        assert names(store) == ["one:1", "three:1"]
        (used,) = (image for image in store.list_stored() if image.is_used)
        assert used.names == (one,)
    assert len(prune_store(store, LayerStore(store.cache / "layers"), 0).images) == 2
    assert (names(store), n_layers(store)) == ([], 0)


def test_what_this_process_holds_or_names_stays(
    registry: SmallRegistry, store: ImageStore, pull: Pull
) -> None:
    one, two, three, four = (publish(registry, f"image{n}") for n in range(4))
    pull(one, limit=0, is_held=True)
    kept = pull(two, limit=10**9).image
    pull(three, limit=10**9)
    pull(four, limit=0, keep=frozenset({kept.digest}))
    assert names(store) == ["image0:1", "image1:1", "image3:1"]


def test_a_shared_layer_goes_with_the_last_image_that_has_it(
    registry: SmallRegistry, store: ImageStore, pull: Pull
) -> None:
    base = layer(("usr/base", os.urandom(SIZE // 2).hex()))
    one, two, other = (*(publish(registry, n, base) for n in ("a", "b")), publish(registry, "c"))
    shared = pull(one).image.layers[0]
    pull(two)
    # Counted once: the two have three layers.
    layers = LayerStore(store.cache / "layers")
    assert 3 * SIZE <= measure_store(store.list_stored(), layers.list_layers()) < 3.5 * SIZE
    pull(other, limit=int(3.5 * SIZE))
    assert (names(store), store.layer(shared).exists()) == (["b:1", "c:1"], True)
    pull(other, limit=int(1.5 * SIZE))
    assert (names(store), store.layer(shared).exists()) == (["c:1"], False)


def test_what_a_person_brought_stays_and_does_not_count(
    registry: SmallRegistry, store: ImageStore, pull: Pull, tmp_path: Path
) -> None:
    tree = write(tmp_path / "tree", {"usr/large": "x" * SIZE * 5})
    take(store, tree)
    # The registry has nothing of this name: a run could not pull it again.
    pull(publish(registry, "one"), name="mine:1")
    pull(publish(registry, "two"), name="two-by-digest:1")
    moved = publish(registry, "three")
    digest = pull(moved).image.digest
    pull(f"{moved.rpartition(':')[0]}@sha256:{digest}", name=moved)
    pull(publish(registry, "four"), limit=int(1.5 * SIZE))
    left = names(store)
    assert "three:1" not in left
    assert {"four:1", "mine:1", "two-by-digest:1"} < set(left)
    kept = {name for one in store.list_stored() if one.is_kept for name in one.names}
    assert kept == {image.name for image in store.list_images()} - {f"{registry.host}/four:1"}


def test_two_names_of_an_image_go_together(
    registry: SmallRegistry, store: ImageStore, pull: Pull
) -> None:
    saved = Saved((layer(("usr/x", "x" * SIZE)),))
    for name in ("one", "two"):
        pull(registry.put(name, saved))
    (both,) = store.list_stored()
    assert len(both.names) == 2
    assert pull(publish(registry, "three"), limit=SIZE).pruned.images[0].names == both.names
    assert names(store) == ["three:1"]


def test_layers_of_dockerfiles_and_images_have_one_limit(
    registry: SmallRegistry, store: ImageStore, pull: Pull
) -> None:
    layers = store.cache / "layers"
    put_layer(layers, "old", SIZE)
    pull(publish(registry, "one"))
    put_layer(layers, "new", SIZE)
    pulled = pull(publish(registry, "two"), limit=int(3.5 * SIZE))
    assert [one.key for one in pulled.pruned.layers] == ["old"]
    assert (names(store), len(pulled.pruned.images)) == (["one:1", "two:1"], 0)
    pulled = pull(publish(registry, "three"), limit=int(3.5 * SIZE))
    assert [one.names for one in pulled.pruned.images] == [(f"{registry.host}/one:1",)]


def test_a_limit_that_is_no_size_is_said_before_anything_is_pulled(
    registry: SmallRegistry, store: ImageStore
) -> None:
    options = PullOptions(env={"PROCTOR_STORE_LIMIT": "much"}, now=NOW)
    with pytest.raises(ImageError, match="PROCTOR_STORE_LIMIT='much': expected a size"):
        pull_image(store, publish(registry, "one"), options)
    assert registry.seen == []


def test_processes_that_pull_at_once_leave_a_store_that_is_whole(
    registry: SmallRegistry, store: ImageStore
) -> None:
    base = layer(("usr/base", os.urandom(SIZE // 2).hex()))
    references = [publish(registry, f"image{n}", base) for n in range(8)]
    env = environment(PROCTOR_STORE_LIMIT=str(int(2.5 * SIZE)))
    # Each image is pulled by two processes, in another order.
    orders = (references, references[::-1], references[4:] + references[:4])
    running = [
        subprocess.Popen([sys.executable, "-c", PULL, *order], env=env, stderr=subprocess.PIPE)
        for order in orders
    ]
    assert [one.communicate(timeout=120)[1] for one in running] == [b"", b"", b""]
    assert [one.returncode for one in running] == [0, 0, 0]
    left = store.list_stored()
    assert 1 <= len(left) <= 2
    assert measure_store(left, []) <= int(2.5 * SIZE)
    for image in store.list_images():
        assert all(path.is_dir() for path in store.lowers(image))
    assert {chain for one in left for chain in one.sizes} == {
        path.name for path in store.layer("x").parent.iterdir()
    }


def test_a_lease_that_was_removed_while_it_was_waited_for_is_not_held(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "lease").touch()
    caught: list[ImageError] = []

    def wait() -> None:
        try:
            hold(home / "lease")
        except ImageError as error:
            caught.append(error)

    with claimed(home / "lease") as is_free:
        assert is_free
        waiting = threading.Thread(target=wait)
        waiting.start()
        time.sleep(0.1)
        home.rename(tmp_path / "leaving")
    waiting.join()
    assert len(caught) == 1
    home.mkdir()
    assert hold(home / "lease")
    with claimed(home / "lease") as is_free:
        assert not is_free
    release(home / "lease")


# Builds


def pull_old(registry: SmallRegistry, name: str) -> str:
    """Pull an image before a build."""
    reference = publish(registry, name)
    options = PullOptions(env={"HOME": "/nonexistent"}, now=NOW)
    pull_image(ImageStore(), reference, options)
    return reference


def test_a_build_removes_images_that_are_older_and_keeps_what_it_uses(
    on_site: OnSite, registry: SmallRegistry, small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def act(site: Site) -> None:
        store = ImageStore()
        pull_old(registry, "old")
        system = pack(small, site.root / "small.tar").read_bytes()
        base = registry.put("base", Saved((system,), "gzip"))
        options = PullOptions(env={"HOME": "/nonexistent"}, now=NOW)
        await asyncio.to_thread(pull_image, store, base, options)
        monkeypatch.setenv("PROCTOR_STORE_LIMIT", "0")
        root = await site.build(f"FROM {base}\nRUN echo built > /built\n")
        assert await site.said(root, "cat /built") == "built"
        # The imported image `small` stays whatever the limit.
        assert names(store) == ["base:1", "small:latest"]
        assert len(LayerStore(store.cache / "layers").list_layers()) == 1

    on_site(act)


@needs_buildah
@pytest.mark.usefixtures("own_storage")
def test_images_of_buildah_are_removed_like_others_and_built_again(
    on_site: OnSite, registry: SmallRegistry, small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def act(site: Site) -> None:
        store = ImageStore()
        pull_old(registry, "old")
        pack(small, site.task / "system.tar")
        # Or its files would be those of the imported image.
        write(site.task, {"a": "1"})
        text = f"{SYSTEM}COPY a /app/a\n"
        monkeypatch.setenv("PROCTOR_STORE_LIMIT", "0")
        root = await site.build(text, builder="buildah")
        (built,) = (image for image in store.list_images() if image.builder == "buildah")
        assert root.pin == built.pin
        assert "old:1" not in names(store)
        layers = LayerStore(store.cache / "layers")
        # This process uses it.
        assert prune_store(store, layers, 0).images == ()
        release(store.rootfs(built).parent / "lease")
        assert [one.names for one in prune_store(store, layers, 0).images] == [(built.name,)]
        assert names(store) == ["small:latest"]
        again = await site.build(text, builder="buildah")
        assert await site.said(again, "cat a; echo $FROM_FILE") == "1yes"

    on_site(act)
