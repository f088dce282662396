"""The table of routes. Each group of pages has a module that defines its `routes`.

    /                                    list of experiments or jobs
    /experiments/{experiment}            one of them, trial by trial
    /experiments/{experiment}/events     its changes, as server-sent events
    /trials/{experiment}/{trial}         one trial; …/files/{path}: a file, …/reviews: write one
    /ledger, /ledger/entries/{seq}       the ledger, an entry; …/verification: verify all of it
    /compare?a=E&b=E                     two experiments side by side
    /trials/{experiment}/{trial}/trace   what an agent did, step by step
    /diff                                two traces side by side
    /search                              search all traces
    /boards, /boards/{dataset}           scores of all agents, at a position of the ledger
    /static/{path}                       style and script

Paths are plain and absolute, so links can be shared.
"""

import contextlib
from collections.abc import AsyncIterator, MutableMapping
from typing import Any, Final

from anyio.to_thread import current_default_thread_limiter
from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from proctor.web import (
    boards,
    compare,
    diff,
    experiments,
    files,
    job_page,
    ledger,
    reviews,
    search,
    trace,
    trial,
)
from proctor.web.data_source import DataSource
from proctor.web.live import Listeners
from proctor.web.pages import HEADERS, HERE, SOURCE, STATIC
from proctor.web.problems import HANDLERS, say_problem
from proctor.web.reviews import exchange_token

ROUTES: list[BaseRoute] = [
    *experiments.routes,
    *job_page.routes,
    *trial.routes,
    *files.routes,
    *reviews.routes,
    *ledger.routes,
    *compare.routes,
    *trace.routes,
    *diff.routes,
    *search.routes,
    *boards.routes,
    Mount("/static", StaticFiles(directory=STATIC), name="static"),
]

LOOPBACK: Final = ("127.0.0.1", "localhost")
"""Host names that requests may use."""
# Pages rendered at a time: their memory adds up.
_THREADS = 8
_LONGEST_PATH = 4096


def make_app(
    source: DataSource, *, token: str | None = None, hosts: tuple[str, ...] | None = LOOPBACK
) -> Starlette:
    """Make the viewer of a source; without a token it is read-only."""
    app = Starlette(
        routes=ROUTES,
        middleware=[Middleware(Guard, hosts=hosts)],
        exception_handlers=HANDLERS,
        lifespan=_living,
    )
    app.state.source = source
    app.state.token = token
    app.state.listeners = Listeners()
    return app


@contextlib.asynccontextmanager
async def _living(app: Starlette) -> AsyncIterator[None]:
    # The limiter belongs to the event loop, so it can only be set once that runs.
    current_default_thread_limiter().total_tokens = _THREADS
    yield
    app.state.source.close()


class Guard:
    """Checks the Host header, exchanges tokens, and sets the response headers.

    The Host check prevents DNS rebinding: a site that resolves its name to this machine sends that
    name. `hosts` None: requests are authorized elsewhere.
    """

    def __init__(self, app: ASGIApp, hosts: tuple[str, ...] | None = LOOPBACK) -> None:
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1008})
            else:
                await self._app(scope, receive, send)
            return
        sending = _sending_headers(send)
        request = Request(scope)
        try:
            self._check(request)
            response: Response | None = exchange_token(request)
        except HTTPException as error:
            response = say_problem(error.status_code, error.detail, error.headers)
        if response is not None:
            await response(scope, receive, sending)
            return
        source, here = SOURCE.set(scope["app"].state.source), HERE.set(scope["path"])
        try:
            await self._app(scope, receive, sending)
        finally:
            SOURCE.reset(source)
            HERE.reset(here)

    def _check(self, request: Request) -> None:
        host = request.headers.get("host", "").lower()
        name, _, port = host.partition(":")
        hosts = self._hosts
        if hosts is not None and (name not in hosts or (port and not port.isdecimal())):
            raise HTTPException(400, f"only {' or '.join(hosts)} may connect to this viewer")
        if len(request.scope.get("raw_path") or b"") > _LONGEST_PATH:
            raise HTTPException(414, f"an address has at most {_LONGEST_PATH:,} characters")


def _sending_headers(send: Send) -> Send:
    async def with_headers(message: MutableMapping[str, Any] | Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                # A response may set a stricter policy, as downloads do.
                headers.setdefault(name, value)
        await send(message)

    return with_headers
