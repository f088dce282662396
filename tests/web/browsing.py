"""A real Chromium, and the real viewer on a port of its own, for tests of pages."""

import contextlib
import os
import shutil
import ssl
import threading
from collections.abc import Iterator

import httpx
import pytest
from playwright.sync_api import Browser, sync_playwright
from starlette.applications import Starlette

from proctor.web.server import listen, make_server

FLAGS = (
    "--no-sandbox",  # we are root
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--no-proxy-server",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)
"""Nothing but loopback is reached."""
NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""For clients that never need it: to load the authorities anew takes each of them 80 ms."""
NEW_CONNECTIONS = httpx.Limits(max_keepalive_connections=0)
"""For clients of many tests: the server ends a connection that was idle for 5 s, perhaps just as
the next request is sent."""


def find_chromium() -> str:
    """The system's Chromium; who has none sees the test skipped."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        pytest.skip("needs Chromium: apt-get install chromium")
    return found


@contextlib.contextmanager
def open_browser() -> Iterator[Browser]:
    """A browser of one's own."""
    chromium = find_chromium()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium, args=list(FLAGS), env=dict(os.environ)
        )
        try:
            yield browser
        finally:
            browser.close()


@contextlib.contextmanager
def serving(app: Starlette) -> Iterator[str]:
    """The app on a port of its own; its address, without a slash at the end."""
    listening = listen(0)
    server = make_server(app)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.end()
        thread.join(20)
        listening.close()
