"""One Chromium for all tests of pages that run in a process, and one ledger to look at."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, Page

from proctor.web.app import make_app
from proctor.web.subject import Subject
from tests.web.browsing import open_browser, serving
from tests.web.subjects import all_jobs, seal_jobs


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
def sealed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger that no test changes."""
    return seal_jobs(tmp_path_factory.mktemp("viewed") / "ledger")


TOKEN = "the-token-of-the-tests"  # noqa: S105 - it opens nothing


@pytest.fixture(scope="session")
def jobs_client() -> Iterator[httpx.Client]:
    """A client of a viewer of all real jobs."""
    with (
        serving(make_app(Subject(jobs=all_jobs()), token=TOKEN)) as address,
        httpx.Client(base_url=address, timeout=30) as client,
    ):
        yield client


@pytest.fixture(scope="session")
def ledger_client(sealed: Path) -> Iterator[httpx.Client]:
    """A client of a viewer of the ledger."""
    with (
        serving(make_app(Subject(ledger=sealed), token=TOKEN)) as address,
        httpx.Client(base_url=address, timeout=30) as client,
    ):
        yield client
