"""One Chromium for all tests of pages that run in a process."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page

from tests.web.browsing import open_browser


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
