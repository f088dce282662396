"""Check the Host header of every request, exchange tokens, and set the response headers.

The Host check prevents DNS rebinding: a site that resolves its name to this machine sends that
name.
"""

from collections.abc import MutableMapping
from typing import Any, Final

from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from proctor.web.pages import HEADERS, HERE, SUBJECT
from proctor.web.problems import say_problem
from proctor.web.writing import exchange_token

LOOPBACK: Final = ("127.0.0.1", "localhost")
"""Host names that requests may use."""
_LONGEST_PATH = 4096


class Guard:
    """Middleware around the application; `hosts` None: requests are authorized elsewhere."""

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
        subject_token, here = SUBJECT.set(scope["app"].state.subject), HERE.set(scope["path"])
        try:
            await self._app(scope, receive, sending)
        finally:
            SUBJECT.reset(subject_token)
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
