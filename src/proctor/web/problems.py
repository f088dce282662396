"""Error pages with the right status code.

Tracebacks are not shown; those of unexpected errors go to the terminal.
"""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from proctor.errors import DamageError, LedgerError, NotThereError, ProctorError
from proctor.web.pages import HEADERS, render_page

# Most characters of a message, which may quote the request.
_LONGEST = 400


def say_problem(
    code: int, sentence: str | None = None, headers: Mapping[str, str] | None = None
) -> Response:
    """Make an error page."""
    phrase = HTTPStatus(code).phrase
    response = render_page(
        "problem.html", status=code, title=f"{code} {phrase}", sentence=_cut(sentence or phrase)
    )
    # Responses to unexpected errors bypass the middleware that sets the headers.
    response.headers.update(HEADERS)
    response.headers.update(headers or {})
    return response


def _cut(sentence: str) -> str:
    return sentence if len(sentence) <= _LONGEST else sentence[:_LONGEST] + "…"


def _say_http(request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        return _say_defect(request, error)
    if error.status_code == HTTPStatus.NOT_FOUND and error.detail == HTTPStatus.NOT_FOUND.phrase:
        return say_problem(404, "there is no such page", error.headers)
    return say_problem(error.status_code, error.detail, error.headers)


def _say_error(request: Request, error: Exception) -> Response:
    has_ledger = request.app.state.source.ledger is not None
    match error:
        case NotThereError():
            return say_problem(404, str(error))
        case DamageError() if not has_ledger:
            # A file of a job may have been removed since it was listed.
            return say_problem(404, str(error))
        case DamageError():
            return say_problem(500, f"this ledger is damaged: {error}")
        case LedgerError():
            return say_problem(404, str(error))
        case _:
            return say_problem(400, str(error))


def _say_defect(_request: Request, _error: Exception) -> Response:
    return say_problem(500, "a defect of proctor; see the terminal that runs it for details")


HANDLERS: Mapping[Any, Any] = {
    HTTPException: _say_http,
    ProctorError: _say_error,
    Exception: _say_defect,
}
"""Exception handlers of the application; unexpected errors are re-raised after their page is sent.
"""
