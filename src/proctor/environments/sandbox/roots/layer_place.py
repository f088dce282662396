"""Where layers are kept: in the cache, or in a run's scratch where the cache cannot hold them."""

import atexit
import functools
import os
from pathlib import Path

from proctor.environments.sandbox.roots.layers import discard
from proctor.environments.sandbox.scratch import cache_directory, find_fault


def layers_directory(scratch: Path) -> tuple[Path, tuple[str, ...]]:
    """Where layers are kept, and what to say where that is not the cache."""
    layers = cache_directory() / "layers"
    fault = _find_fault(layers)
    if fault is None:
        return layers, ()
    return _passing_layers(scratch, os.getpid()), (f"{fault}; what is built lasts for this run",)


@functools.lru_cache(maxsize=8)
def _passing_layers(scratch: Path, pid: int) -> Path:
    """A place in a run's scratch that is gone when the process ends; not by a child of its."""
    layers = scratch / "layers"
    atexit.register(lambda: discard(layers) if os.getpid() == pid else None)
    return layers


@functools.lru_cache(maxsize=8)
def _find_fault(directory: Path) -> str | None:
    """Looked at once: a cache does not move while a job runs."""
    return find_fault(directory)
