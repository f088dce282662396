"""The table of routes. Each group of pages has a module of its own, with its `routes`.

    /                                    what there is: experiments, or jobs
    /experiments/{experiment}            one of them, trial by trial
    /experiments/{experiment}/events     … and when something of it changed
    /boards, /boards/{dataset}           what every agent scored, at a position of the ledger
    /static/{path}                       style and script

Paths are plain and absolute, so that a link can be sent to a colleague.
"""

import contextlib
from collections.abc import AsyncIterator

from anyio.to_thread import current_default_thread_limiter
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import BaseRoute, Mount
from starlette.staticfiles import StaticFiles

from proctor.web import boards, experiments, job_page
from proctor.web.guard import LOOPBACK, Guard
from proctor.web.live import Listeners
from proctor.web.pages import STATIC
from proctor.web.problems import HANDLERS
from proctor.web.subject import Subject

ROUTES: list[BaseRoute] = [
    *experiments.routes,
    *job_page.routes,
    *boards.routes,
    Mount("/static", StaticFiles(directory=STATIC), name="static"),
]

_THREADS = 8
"""Pages that are made at a time: what each holds in memory adds up."""


def make_app(
    subject: Subject, *, token: str | None = None, hosts: tuple[str, ...] = LOOPBACK
) -> Starlette:
    """The viewer of a subject; without a token nothing can be written."""
    app = Starlette(
        routes=ROUTES,
        middleware=[Middleware(Guard, hosts=hosts)],
        exception_handlers=HANDLERS,
        lifespan=_with_few_threads,
    )
    app.state.subject = subject
    app.state.token = token
    app.state.listeners = Listeners()
    return app


@contextlib.asynccontextmanager
async def _with_few_threads(_app: Starlette) -> AsyncIterator[None]:
    current_default_thread_limiter().total_tokens = _THREADS
    yield
