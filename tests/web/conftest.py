"""One Chromium for all tests of pages that run in a process."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from tests.web.browsing import open_browser
from tests.web.traces import write_long


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with open_browser() as opened:
        yield opened


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page in a context of its own; no test sees another one's cookies."""
    context = browser.new_context()
    try:
        yield context.new_page()
    finally:
        context.close()


@pytest.fixture(scope="session")
def long_job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A job with one trial, whose trace has 50,000 steps."""
    job = tmp_path_factory.mktemp("jobs") / "long"
    write_long(job / "trial__1" / "agent" / "trajectory.jsonl")
    return job
