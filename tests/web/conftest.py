"""One Chromium for all tests of pages that run in a process, and one ledger to look at."""

from asyncio import AbstractEventLoop
from asyncio.events import _get_running_loop, _set_running_loop
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, Page

from proctor.web.app import make_app
from proctor.web.subject import Subject
from tests.web.browsing import open_browser, serving
from tests.web.subjects import all_jobs, seal_jobs
from tests.web.traces import write_long


class OwnLoop:
    """The browser's event loop: it runs in this thread for as long as the browser is open.

    asyncio would run no other one meanwhile, in tests that have nothing to do with pages.
    """

    loop: AbstractEventLoop | None = None

    def put_aside(self) -> None:
        """Until a page is wanted."""
        self.loop = _get_running_loop()
        _set_running_loop(None)

    def bring_back(self) -> None:
        """For a page."""
        _set_running_loop(self.loop)


@pytest.fixture(scope="session")
def own_loop() -> OwnLoop:
    return OwnLoop()


@pytest.fixture(scope="session")
def browser(own_loop: OwnLoop) -> Iterator[Browser]:
    with open_browser() as opened:
        own_loop.put_aside()
        yield opened
        own_loop.bring_back()


@pytest.fixture
def page(browser: Browser, own_loop: OwnLoop) -> Iterator[Page]:
    """A page in a context of its own; no test sees another one's cookies."""
    own_loop.bring_back()
    context = browser.new_context()
    try:
        yield context.new_page()
    finally:
        context.close()
        own_loop.put_aside()


@pytest.fixture(scope="session")
def long_job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A job with one trial, whose trace has 50,000 steps."""
    job = tmp_path_factory.mktemp("jobs") / "long"
    write_long(job / "trial__1" / "agent" / "trajectory.jsonl")
    return job


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
