"""Client libraries raise their usual exceptions for errors of the gateway, with its sentence."""

import json
from typing import Any

import httpx
import pytest

from proctor.gateway.exchange import Wire
from proctor.gateway.wire import render_error
from tests.lazy_imports import LazyModule

OPENAI = LazyModule("openai")

SENTENCE = "proctor: the trial reached its limit of $1.00 (--max-cost)."


def _client(status: int, wire: Wire | None) -> Any:
    body = render_error(wire, status, SENTENCE, "limit_reached")

    def answer(_request: httpx.Request) -> httpx.Response:
        return httpx.Response(status, content=body, headers={"content-type": "application/json"})

    transport = httpx.Client(transport=httpx.MockTransport(answer))
    return OPENAI.OpenAI(api_key="x", base_url="http://x/v1", http_client=transport, max_retries=0)


def _ask(client: Any, wire: Wire | None) -> None:
    if wire is Wire.OPENAI_RESPONSES:
        client.responses.create(model="x", input="x")
    else:
        client.chat.completions.create(model="x", messages=[])


@pytest.mark.parametrize(
    ("status", "expected", "kind"),
    [
        (400, "BadRequestError", "invalid_request_error"),
        (401, "AuthenticationError", "authentication_error"),
        (403, "PermissionDeniedError", "permission_error"),
        (404, "NotFoundError", "invalid_request_error"),
        (429, "RateLimitError", "rate_limit_error"),
        (502, "InternalServerError", "server_error"),
    ],
)
@pytest.mark.parametrize("wire", [None, Wire.OPENAI_CHAT, Wire.OPENAI_RESPONSES])
def test_openais_client_raises_its_exception(
    wire: Wire | None, status: int, expected: str, kind: str
) -> None:
    client = _client(status, wire)
    with pytest.raises(getattr(OPENAI, expected)) as raised:
        _ask(client, wire)
    assert SENTENCE in str(raised.value)
    assert (raised.value.code, raised.value.type) == ("limit_reached", kind)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (413, "request_too_large"),
        (418, "invalid_request_error"),
        (429, "rate_limit_error"),
        (500, "api_error"),
        (529, "overloaded_error"),
    ],
)
def test_anthropics_form(status: int, kind: str) -> None:
    body: dict[str, Any] = json.loads(render_error(Wire.ANTHROPIC, status, SENTENCE, "limit"))
    assert body["type"] == "error"
    assert (body["error"]["type"], body["error"]["message"]) == (kind, SENTENCE)


@pytest.mark.parametrize(
    ("status", "name"),
    [
        (400, "INVALID_ARGUMENT"),
        (429, "RESOURCE_EXHAUSTED"),
        (500, "INTERNAL"),
        (503, "UNAVAILABLE"),
    ],
)
def test_geminis_form(status: int, name: str) -> None:
    body: dict[str, Any] = json.loads(render_error(Wire.GEMINI, status, SENTENCE, "limit"))
    error = body["error"]
    assert (error["code"], error["status"], error["message"]) == (status, name, SENTENCE)
    assert error["details"][0]["reason"] == "LIMIT"
