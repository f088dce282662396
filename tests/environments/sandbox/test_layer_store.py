"""The store of built layers: what it lists, and what it removes to stay within its limit."""

import subprocess
import sys
from pathlib import Path

import pytest

from proctor.environments.sandbox.roots.images import ImageStore
from proctor.environments.sandbox.roots.layers import LayerStore
from proctor.environments.sandbox.roots.prune import parse_size, prune_store, store_limit
from proctor.errors import ImageError
from tests.environments.sandbox.built import put_layer as put

HOLD = """
import sys
from pathlib import Path
from proctor.environments.sandbox.roots.layers import LayerStore
assert LayerStore(Path(sys.argv[1])).find(sys.argv[2], (("/", ("/",)),))
print("held", flush=True)
sys.stdin.read()
"""


def prune(store: LayerStore, limit: int, tmp_path: Path) -> list[str]:
    """Prune layers where there are no images; returns the keys of those that were removed."""
    return [layer.key for layer in prune_store(ImageStore(tmp_path), store, limit).layers]


def keys(store: LayerStore) -> list[str]:
    return [layer.key for layer in store.list_layers()]


def test_layers_are_listed_with_their_size_the_last_used_first(tmp_path: Path) -> None:
    store = LayerStore(tmp_path)
    assert store.list_layers() == []
    put(tmp_path, "a", 100_000)
    put(tmp_path, "b", 10_000)
    assert keys(store) == ["b", "a"]
    (small, large) = store.list_layers()
    assert (small.base, small.steps, small.is_used) == ("debian:12@sha256:00", ("RUN true",), False)
    assert 100_000 <= large.size < 150_000
    assert store.find("a", (("/", ("/",)),)) is not None
    assert keys(store) == ["a", "b"]


def test_the_least_recently_used_are_removed_down_to_the_limit(tmp_path: Path) -> None:
    store = LayerStore(tmp_path)
    for key in ("a", "b", "c"):
        put(tmp_path, key, 100_000)
    assert prune(store, 1 << 20, tmp_path) == []
    assert prune(store, 250_000, tmp_path) == ["a"]
    assert keys(store) == ["c", "b"]
    assert prune(store, 0, tmp_path) == ["b", "c"]
    assert store.find("c", (("/", ("/",)),)) is None
    assert not list(tmp_path.glob("*/[0-9]*"))


def test_a_layer_that_another_process_uses_or_builds_stays(tmp_path: Path) -> None:
    store = LayerStore(tmp_path)
    put(tmp_path, "a", 1000)
    put(tmp_path, "b", 1000)
    words = [sys.executable, "-c", HOLD, str(tmp_path), "a"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        assert prune(store, 0, tmp_path) == ["b"]
        (kept,) = store.list_layers()
        assert (kept.key, kept.is_used) == ("a", True)
        holder.communicate()
    assert prune(store, 0, tmp_path) == ["a"]


def test_no_layer_is_removed_before_those_on_top_of_it(tmp_path: Path) -> None:
    store = LayerStore(tmp_path)
    below = put(tmp_path, "below", 100_000)
    above = put(tmp_path, "above", 100_000, below)
    put(tmp_path, "top", 100_000, above)
    put(tmp_path, "other", 100_000)
    # The lowest layer was used first, and longest ago.
    assert prune(store, 350_000, tmp_path) == ["top"]
    assert keys(store) == ["other", "above", "below"]
    assert prune(store, 0, tmp_path) == ["above", "below", "other"]


def test_layers_below_one_that_is_used_stay(tmp_path: Path) -> None:
    store = LayerStore(tmp_path)
    below = put(tmp_path, "below", 1000)
    put(tmp_path, "above", 1000, below)
    words = [sys.executable, "-c", HOLD, str(tmp_path), "above"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        assert prune(store, 0, tmp_path) == []
        holder.communicate()
    assert prune(store, 0, tmp_path) == ["above", "below"]


def test_a_layer_whose_parent_was_built_again_is_removed_whatever_the_limit(tmp_path: Path) -> None:
    store = LayerStore(tmp_path)
    old = put(tmp_path, "below", 1000)
    put(tmp_path, "above", 1000, old)
    assert put(tmp_path, "below", 1000) != old
    assert prune(store, 1 << 30, tmp_path) == ["above"]
    assert keys(store) == ["below"]


def test_a_layer_that_is_built_again_after_its_removal_is_held_anew(tmp_path: Path) -> None:
    store = LayerStore(tmp_path)
    put(tmp_path, "a", 1000)
    assert prune(store, 0, tmp_path) == ["a"]
    assert store.find("a", (("/", ("/",)),)) is None
    put(tmp_path, "a", 1000)
    assert store.find("a", (("/", ("/",)),)) is not None
    assert prune(store, 0, tmp_path) == []


@pytest.mark.parametrize(
    ("text", "size"),
    [("0", 0), ("500", 500), ("1.5 GB", 1_500_000_000), ("20gb", 20 * 10**9), ("2T", 2 * 10**12)],
)
def test_sizes_are_read_as_people_write_them(text: str, size: int) -> None:
    assert parse_size(text) == size
    assert store_limit({"PROCTOR_STORE_LIMIT": text}) == size
    assert store_limit({"PROCTOR_LAYERS_LIMIT": text}) == size
    assert store_limit({"PROCTOR_LAYERS_LIMIT": text, "PROCTOR_STORE_LIMIT": "7"}) == 7


def test_a_limit_that_is_no_size_is_a_sentence() -> None:
    assert store_limit({}) == 50 * 10**9
    for name in ("PROCTOR_STORE_LIMIT", "PROCTOR_LAYERS_LIMIT"):
        with pytest.raises(ImageError, match=f"{name}='much': expected a size such as"):
            store_limit({name: "much"})
