"""Fixtures of the fault tests."""

import ctypes
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.site import Site

_PR_SET_CHILD_SUBREAPER = 36


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """A place for commands; at the end nothing of it runs, and nothing of it is mounted.

    Meanwhile whatever loses its parent becomes a child of this process, so that nothing of a
    command that was killed gets out of sight.
    """
    prctl = ctypes.CDLL(None).prctl
    assert prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    made = Site(tmp_path)
    try:
        yield made
        made.check_nothing_runs()
    finally:
        prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
