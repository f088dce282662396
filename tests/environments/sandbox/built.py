"""Layers for tests of their store."""

import time
from pathlib import Path

from proctor.environments.sandbox.roots.layers import Building, Layer, LayerStore
from proctor.environments.sandbox.scratch import Session


def put_layer(root: Path, key: str, size: int, parent: str | None = None) -> str:
    """Store a layer of so many bytes, as a build does; return its id."""
    directory = root / key / "building-x"
    upper = directory / "parts/0/upper"
    upper.mkdir(parents=True)
    (root / key / "lock").touch()
    (upper / "file").write_bytes(b"x" * size)
    building = Building(Session(directory), (("/", ("/",), upper, directory / "parts/0/work"),))
    store, layer = LayerStore(root), Layer("debian:12@sha256:00", ("RUN true",), parent)
    store.keep(key, building, layer)
    # So that the next one is used later.
    time.sleep(0.01)
    (made,) = (one for one in store.list_layers() if one.key == key)
    return made.id
