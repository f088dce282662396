"""Fixtures that every test may use. What only one unit's tests need lives beside them."""

import signal
from pathlib import Path

import pytest
from hypothesis import settings

# How long an example takes is the machine's business, not the test's.
settings.register_profile("proctor", deadline=None)
settings.load_profile("proctor")

# A shell starts what it puts into the background deaf to Ctrl-C, and every child would be so too.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def root() -> Path:
    """The root of the repository."""
    return ROOT
