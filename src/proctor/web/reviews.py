"""Reviews submitted from the page of a trial: new entries of the ledger, signed by the user.

    POST /trials/{experiment}/{trial}/reviews    verdict, reviewer, note

Append-only: existing entries never change. Invalid reviews are refused before anything is written.
Writing is only for the user who started the viewer, from its pages or a program:

    proctor view            prints http://127.0.0.1:8380/?token=…
    …/?token=…              opened once, sets a cookie and redirects to the page without the token
    POST                    needs the cookie and a page of our own, or `Authorization: Bearer TOKEN`
"""

import hmac
import os
import secrets
from typing import Final, get_args
from urllib.parse import parse_qsl, urlencode

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from proctor.errors import BusyError, KeyFileError, LedgerError
from proctor.ledger.entry import Verdict
from proctor.ledger.keys import default_key_path, load_key
from proctor.ledger.place import open_writer
from proctor.ledger.review import LONGEST_NAME, LONGEST_TEXT, append_review, check_words
from proctor.web.data_source import DataSource, find_row
from proctor.web.format import trial_path

PATIENCE_SEC: Final = 3.0
"""How long to wait for a running job that has locked the ledger before the review is refused."""
_VERDICTS: Final = get_args(Verdict.__value__)


async def _take_review(request: Request) -> Response:
    require_token(request)
    fields = await read_form(request)
    experiment, trial = request.path_params["experiment"], request.path_params["trial"]
    seq = await run_in_threadpool(_append, request.app.state.source, (experiment, trial), fields)
    return RedirectResponse(
        f"{trial_path(experiment, trial)}?review={seq}#review-{seq}", status_code=303
    )


def _append(source: DataSource, name: tuple[str, str], fields: dict[str, str]) -> int:
    """Append the review; return the number of its entry."""
    if source.ledger is None:
        source.trial_directory(*name)
        raise HTTPException(409, "reviews are stored in a ledger; these are plain job directories")
    verdict, reviewer, note = _read_fields(fields)
    try:
        key = load_key(default_key_path(os.environ))
        with open_writer(source.ledger, key, patience_sec=PATIENCE_SEC) as ledger:
            row = find_row(ledger, *name)
            seq = append_review(ledger, row, verdict, reviewer=reviewer, note=note)
            ledger.refresh()
            return seq
    except KeyFileError as error:
        raise HTTPException(403, f"nothing was written: {error}") from error
    except BusyError as error:
        raise HTTPException(503, str(error), {"Retry-After": "5"}) from error
    except LedgerError as error:
        is_forbidden = isinstance(error.__cause__, PermissionError)
        code = 403 if is_forbidden else 503
        raise HTTPException(code, f"nothing was written: {error}") from error


def _read_fields(fields: dict[str, str]) -> tuple[str, str, str]:
    """Verdict, reviewer and note, validated."""
    verdict = fields.get("verdict", "")
    if verdict not in _VERDICTS:
        raise HTTPException(
            400, f"the verdict is {verdict[:40]!r}; expected one of {', '.join(_VERDICTS)}"
        )
    reviewer = fields.get("reviewer", "").strip()
    # Forms send line ends as \r\n, whatever was typed.
    note = fields.get("note", "").replace("\r\n", "\n").strip()
    for text, longest, what in (
        (reviewer, LONGEST_NAME, "the reviewer's name"),
        (note, LONGEST_TEXT, "the note"),
    ):
        if len(text) > longest:
            raise HTTPException(
                413, f"{what} has {len(text):,} characters; expected at most {longest:,}"
            )
    try:
        check_words(reviewer, "the reviewer", longest=LONGEST_NAME)
    except LedgerError as error:
        raise HTTPException(400, str(error)) from error
    if not reviewer.isprintable():
        raise HTTPException(400, "the reviewer's name has control characters")
    return verdict, reviewer, note


routes: list[BaseRoute] = [
    Route("/trials/{experiment}/{trial}/reviews", _take_review, methods=["POST"], name="reviews")
]


LARGEST_BODY: Final = 1 << 18
"""Largest body of a request, in bytes."""
_MOST_FIELDS = 100
_PARAMETER = "token"
_HINT = "open the address with ?token=… that `proctor view` printed"


def new_token() -> str:
    """Generate an unguessable token."""
    return secrets.token_urlsafe(24)


def require_token(request: Request) -> None:
    """Reject a request that may not write; call it first in every handler that writes.

    Raises:
        HTTPException: 401 without a token, 403 with a wrong one or from a page of another site.
    """
    origin, site = request.headers.get("origin"), request.headers.get("sec-fetch-site")
    own = f"http://{request.headers.get('host', '')}"
    # "none" is a request that the user made directly, such as from a bookmark.
    if (origin is not None and origin != own) or site not in (None, "same-origin", "none"):
        raise HTTPException(403, "a page of another site sent this; nothing was written")
    scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        _check_token(request, bearer.strip())
        return
    cookie = request.cookies.get(cookie_name(request))
    if cookie is None:
        raise HTTPException(401, f"writing needs a token: {_HINT}", {"WWW-Authenticate": "Bearer"})
    _check_token(request, cookie)
    # Browsers send the cookie with requests of other sites too (CSRF), so check the page of origin.
    if not ("origin" in request.headers or request.headers.get("sec-fetch-site") == "same-origin"):
        raise HTTPException(403, "the request does not say that a page of this viewer sent it")


def may_write(request: Request) -> bool:
    """Whether the client has the cookie, so that pages show their forms."""
    cookie = request.cookies.get(cookie_name(request))
    return cookie is not None and _is_token(request, cookie)


async def read_form(request: Request) -> dict[str, str]:
    """The fields of a submitted form; the last of equal names.

    Raises:
        HTTPException: 413 if it is too large, 415 if it is not a form, 400 if it is not text.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise HTTPException(415, "expected a form: application/x-www-form-urlencoded")
    body = await read_body(request)
    try:
        fields = parse_qsl(
            body.decode(), keep_blank_values=True, errors="strict", max_num_fields=_MOST_FIELDS
        )
    except ValueError as error:
        raise HTTPException(400, "the form is no text in UTF-8, or has too many fields") from error
    return dict(fields)


async def read_body(request: Request, most: int = LARGEST_BODY) -> bytes:
    """Read the body of a request.

    Raises:
        HTTPException: 413: it is larger than `most` bytes.
    """
    found = bytearray()
    async for piece in request.stream():
        # Counted as it arrives: Content-Length may be missing or wrong.
        found += piece
        if len(found) > most:
            raise HTTPException(413, f"the request brings more than {most:,} bytes")
    return bytes(found)


def cookie_name(request: Request) -> str:
    """The cookie of this viewer, by its port: browsers share cookies between ports."""
    server = request.scope.get("server")
    return f"proctor-{server[1] if server else 0}"


def exchange_token(request: Request) -> Response | None:
    """Answer an address that contains a token: set a cookie and redirect without it."""
    given = request.query_params.get(_PARAMETER)
    if given is None or request.method != "GET":
        return None
    _check_token(request, given)
    rest = [pair for pair in request.query_params.multi_items() if pair[0] != _PARAMETER]
    # A single slash: the browser would take what follows two of them for a host.
    path = "/" + request.scope.get("raw_path", b"/").partition(b"?")[0].decode("latin-1").lstrip(
        "/"
    )
    response = RedirectResponse(f"{path}?{urlencode(rest)}" if rest else path, 303)
    # Scripts cannot read it, and other sites' requests do not carry it.
    response.set_cookie(cookie_name(request), given, httponly=True, samesite="strict", path="/")
    return response


def _check_token(request: Request, given: str) -> None:
    if not _is_token(request, given):
        raise HTTPException(403, f"this is not the token of this viewer: {_HINT}")


def _is_token(request: Request, given: str) -> bool:
    token: str | None = request.app.state.token
    # Constant time, so that the token cannot be guessed byte by byte.
    return token is not None and hmac.compare_digest(given.encode(), token.encode())
