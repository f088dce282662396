"""One Chromium for all tests of pages that run in a process, and one ledger to look at."""

import contextlib
from asyncio import AbstractEventLoop
from asyncio.events import _get_running_loop, _set_running_loop
from collections.abc import Generator, Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, Page

from proctor.web.app import make_app
from proctor.web.data_source import DataSource
from tests.web.browsing import NEW_CONNECTIONS, NO_TLS, open_browser, serving
from tests.web.subjects import all_jobs, seal_jobs
from tests.web.traces import write_long


class OwnLoop:
    """The browser's event loop: it runs in this thread for as long as the browser is open.

    asyncio would run no other one meanwhile, in tests that have nothing to do with pages.
    """

    loop: AbstractEventLoop | None = None

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """It is there within; put aside before and after."""
        _set_running_loop(self.loop)
        try:
            yield
        finally:
            self.loop = _get_running_loop()
            _set_running_loop(None)


OWN_LOOP = OwnLoop()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Function) -> Generator[None]:
    with _wanted_loop(item):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Function) -> Generator[None]:
    with _wanted_loop(item):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown() -> Generator[None]:
    # What is taken down may be a page of an earlier test.
    with OWN_LOOP.running():
        return (yield)


def _wanted_loop(item: pytest.Function) -> contextlib.AbstractContextManager[None]:
    return OWN_LOOP.running() if "browser" in item.fixturenames else contextlib.nullcontext()


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with contextlib.ExitStack() as stack:
        yield stack.enter_context(open_browser())
        # The last test may be one that knows nothing of pages.
        with OWN_LOOP.running() if OWN_LOOP.loop else contextlib.nullcontext():
            stack.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page in a context of its own; no test sees another one's cookies."""
    with contextlib.closing(browser.new_context()) as context:
        yield context.new_page()


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
        serving(make_app(DataSource(jobs=all_jobs()), token=TOKEN)) as address,
        httpx.Client(base_url=address, timeout=30, verify=NO_TLS, limits=NEW_CONNECTIONS) as client,
    ):
        yield client


@pytest.fixture(scope="session")
def ledger_client(sealed: Path) -> Iterator[httpx.Client]:
    """A client of a viewer of the ledger."""
    with (
        serving(make_app(DataSource(ledger=sealed), token=TOKEN)) as address,
        httpx.Client(base_url=address, timeout=30, verify=NO_TLS, limits=NEW_CONNECTIONS) as client,
    ):
        yield client
