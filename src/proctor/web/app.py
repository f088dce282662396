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
from collections.abc import AsyncIterator

from anyio.to_thread import current_default_thread_limiter
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import BaseRoute, Mount
from starlette.staticfiles import StaticFiles

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
from proctor.web.guard import LOOPBACK, Guard
from proctor.web.live import Listeners
from proctor.web.pages import STATIC
from proctor.web.problems import HANDLERS
from proctor.web.subject import Subject

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

# Pages rendered at a time: their memory adds up.
_THREADS = 8


def make_app(
    subject: Subject, *, token: str | None = None, hosts: tuple[str, ...] | None = LOOPBACK
) -> Starlette:
    """Make the viewer of a subject; without a token it is read-only."""
    app = Starlette(
        routes=ROUTES,
        middleware=[Middleware(Guard, hosts=hosts)],
        exception_handlers=HANDLERS,
        lifespan=_living,
    )
    app.state.subject = subject
    app.state.token = token
    app.state.listeners = Listeners()
    return app


@contextlib.asynccontextmanager
async def _living(app: Starlette) -> AsyncIterator[None]:
    # The limiter belongs to the event loop, so it can only be set once that runs.
    current_default_thread_limiter().total_tokens = _THREADS
    yield
    app.state.subject.close()
