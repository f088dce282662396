"""The table of routes. Each group of pages has a module of its own, with its `routes`.

    /                                    what there is: experiments, or jobs
    /experiments/{experiment}            one of them, trial by trial
    /trials/{experiment}/{trial}         one trial
    /static/{path}                       style and script

Paths are plain and absolute, so that a link can be sent to a colleague.
"""

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import BaseRoute, Mount
from starlette.staticfiles import StaticFiles

from proctor.web import experiments, files, ledger, reviews, trial
from proctor.web.guard import LOOPBACK, Guard
from proctor.web.pages import STATIC
from proctor.web.problems import HANDLERS
from proctor.web.subject import Subject

ROUTES: list[BaseRoute] = [
    *experiments.routes,
    *trial.routes,
    *files.routes,
    *reviews.routes,
    *ledger.routes,
    Mount("/static", StaticFiles(directory=STATIC), name="static"),
]


def make_app(
    subject: Subject, *, token: str | None = None, hosts: tuple[str, ...] = LOOPBACK
) -> Starlette:
    """The viewer of a subject; without a token nothing can be written."""
    app = Starlette(
        routes=ROUTES,
        middleware=[Middleware(Guard, hosts=hosts)],
        exception_handlers=HANDLERS,
    )
    app.state.subject = subject
    app.state.token = token
    return app
