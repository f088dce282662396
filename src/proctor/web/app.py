"""The table of routes, and what becomes of a request that leads nowhere.

    /                                    what there is: experiments, or jobs
    /experiments/{experiment}            one of them, trial by trial
    /trials/{experiment}/{trial}         one trial
    /static/{path}                       style and script

Paths are plain and absolute, so that a link can be sent to a colleague.
"""

from http import HTTPStatus

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from proctor.errors import DamageError, ProctorError
from proctor.web import diff, search, trace
from proctor.web.pages import STATIC, render_page, with_headers
from proctor.web.subject import NotThereError, Subject

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
"""Names by which this machine may be asked: a page of another site that has itself resolved to
this machine goes by another one."""


def make_app(subject: Subject, *, hosts: tuple[str, ...] = LOOPBACK) -> Starlette:
    """The viewer of a subject."""
    app = Starlette(
        routes=[
            Route("/", _show_index, name="index"),
            *trace.routes,
            *diff.routes,
            *search.routes,
            Mount("/static", StaticFiles(directory=STATIC), name="static"),
        ],
        middleware=[
            Middleware(BaseHTTPMiddleware, dispatch=with_headers),
            Middleware(TrustedHostMiddleware, allowed_hosts=list(hosts)),
        ],
        exception_handlers={
            HTTPException: _say_http,
            ProctorError: _say_error,
            Exception: _say_defect,
        },
    )
    app.state.subject = subject
    return app


def _show_index(request: Request) -> Response:
    subject: Subject = request.app.state.subject
    return render_page("index.html", title="Experiments", subject=subject)


def _say_http(_request: Request, error: Exception) -> Response:
    code = error.status_code if isinstance(error, HTTPException) else 500
    return _say(code, HTTPStatus(code).phrase)


def _say_error(_request: Request, error: Exception) -> Response:
    match error:
        case NotThereError():
            return _say(404, str(error))
        case DamageError():
            return _say(500, f"the ledger is damaged: {error}")
        case _:
            return _say(400, str(error))


def _say_defect(_request: Request, _error: Exception) -> Response:
    return _say(500, "a defect of proctor; the terminal that runs it has the details")


def _say(code: int, sentence: str) -> Response:
    return render_page(
        "problem.html", status=code, title=f"{code} {HTTPStatus(code).phrase}", sentence=sentence
    )
