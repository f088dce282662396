"""What several tests look at and nobody changes: made once, also when several workers run them."""

import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], None]) -> Path:
    """A directory that `make` filled; the other workers wait for it."""
    base = factory.getbasetemp()
    # Each worker's own directory lies in that of the whole session.
    place = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / name
    made = place.with_suffix(".made")
    with place.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir()
            make(place)
            made.touch()
    return place
