"""Fixtures of the tests of `chat`."""

import os

import pytest


@pytest.fixture(autouse=True)
def only_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    """No proxy, endpoint or key of whoever runs the tests."""
    for name in [*os.environ]:
        if name.lower().endswith("_proxy") or name.startswith("OPENAI_"):
            monkeypatch.delenv(name)
