"""Fixtures of the task unit's tests."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def open_path() -> Iterator[Path]:
    """A directory that others may enter too, from the root of the file system on."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name).resolve()
        path.chmod(0o755)
        yield path
        # Or whoever is not root could not remove it.
        for below in [path, *path.rglob("*")]:
            if not below.is_symlink():
                below.chmod(0o755)
