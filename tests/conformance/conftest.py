"""The later harbor, for the tests that compare with it."""

import subprocess
from pathlib import Path

import pytest

from tests.conformance.later import LATER


@pytest.fixture
def wheel(tmp_path: Path, uv_on_path: None) -> Path:
    """A directory with the later harbor, and none of its libraries."""
    words = ("pip", "install", "--quiet", "--no-deps", "--target", tmp_path, f"harbor=={LATER}")
    subprocess.run(["uv", *words], check=True)
    return tmp_path
