"""Reads requests and answers of all protocols, and writes errors in their forms. No I/O.

Nothing here raises for what others wrote. What is not understood is named in `problem`; unknown
events and keys are passed over.
"""

import json
from typing import Final
from urllib.parse import unquote

import msgspec

from proctor.digest import sha256_hex
from proctor.gateway.exchange import ModelAnswer, ModelRequest, Wire
from proctor.gateway.protocols import anthropic, gemini, openai_chat, openai_responses
from proctor.gateway.protocols.blocks import bound
from proctor.gateway.protocols.bodies import (
    Assembled,
    Notes,
    Protocol,
    decode_object,
    parse_events,
    read_array,
    read_events,
)
from proctor.traces.entry import Object
from proctor.traces.turn import Turn

_PROTOCOLS: Final[dict[Wire, Protocol]] = {
    Wire.OPENAI_CHAT: openai_chat.PROTOCOL,
    Wire.OPENAI_RESPONSES: openai_responses.PROTOCOL,
    Wire.ANTHROPIC: anthropic.PROTOCOL,
    Wire.GEMINI: gemini.PROTOCOL,
}
_ENDINGS: Final = {
    "/chat/completions": Wire.OPENAI_CHAT,
    "/responses": Wire.OPENAI_RESPONSES,
    "/messages": Wire.ANTHROPIC,
}
_ANTHROPIC_TYPES: Final = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_OPENAI_TYPES: Final = {
    401: "authentication_error",
    403: "permission_error",
    429: "rate_limit_error",
}
_GEMINI_STATUSES: Final = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    409: "ABORTED",
    429: "RESOURCE_EXHAUSTED",
    499: "CANCELLED",
    501: "UNIMPLEMENTED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
_SERVER_ERROR: Final = 500


def find_wire(method: str, path: str) -> Wire | None:
    """Return the protocol of a request; None for one that is passed on without being understood."""
    if method.upper() != "POST":
        return None
    path = _plain(path)
    if gemini.PATH.search(path):
        return Wire.GEMINI
    # OpenAI's assistants have messages too: …/threads/ID/messages.
    if "/threads/" in path:
        return None
    return next((wire for ending, wire in _ENDINGS.items() if path.endswith(ending)), None)


def _plain(path: str) -> str:
    return unquote(path.partition("?")[0]).rstrip("/")


def read_request(wire: Wire, path: str, body: bytes) -> ModelRequest:
    """Read a request; what cannot be understood is left out, and named in `problem`."""
    notes = Notes()
    found = decode_object(body, notes, "the request")
    request = _PROTOCOLS[wire].read_request(found or {}, _plain(path), notes)
    return msgspec.structs.replace(request, problem=notes.problem)


def read_answer(wire: Wire, body: bytes, *, is_stream: bool) -> ModelAnswer:
    """Read a whole answer, or the bytes of a whole stream; what cannot be understood is left out.

    The first bytes decide about the form: an endpoint may answer a request for a stream with a
    plain error, and the other way round.
    """
    notes = Notes()
    assembled = _read_body(wire, body, notes, is_stream=is_stream)
    answer = _PROTOCOLS[wire].read_answer(assembled.body, notes)
    return msgspec.structs.replace(answer, is_complete=assembled.is_complete, problem=notes.problem)


def _read_body(wire: Wire, body: bytes, notes: Notes, *, is_stream: bool) -> Assembled:
    assemble = _PROTOCOLS[wire].assemble
    start = body[:64].removeprefix(b"\xef\xbb\xbf").lstrip()
    if start.startswith(b"["):
        objects, is_closed = read_array(body, notes)
        assembled = assemble((("", one) for one in objects), notes)
        return Assembled(assembled.body, assembled.is_complete and is_closed)
    looks_streamed = start.startswith((b"data:", b"event:", b"id:", b"retry:", b":"))
    if looks_streamed or (is_stream and not start.startswith(b"{")):
        return assemble(read_events(body, notes), notes)
    found = decode_object(body, notes, "the answer")
    return Assembled(found or {}, found is not None)


def render_error(wire: Wire | None, status: int, message: str, code: str) -> bytes:
    """Render an error as the provider does, so that its client libraries raise their exceptions.

    Without a protocol it has OpenAI's form, which most clients know.
    """
    error: Object
    match wire:
        case Wire.ANTHROPIC:
            fallback = "api_error" if status >= _SERVER_ERROR else "invalid_request_error"
            kind = _ANTHROPIC_TYPES.get(status, fallback)
            error = {"type": "error", "error": {"type": kind, "message": message, "code": code}}
        case Wire.GEMINI:
            fallback = "INTERNAL" if status >= _SERVER_ERROR else "FAILED_PRECONDITION"
            reason = {
                "@type": "type.googleapis.com/google.rpc.ErrorInfo",
                "reason": code.upper(),
                "domain": "proctor",
            }
            error = {
                "error": {
                    "code": status,
                    "message": message,
                    "status": _GEMINI_STATUSES.get(status, fallback),
                    "details": [reason],
                }
            }
        case _:
            fallback = "server_error" if status >= _SERVER_ERROR else "invalid_request_error"
            kind = _OPENAI_TYPES.get(status, fallback)
            error = {"error": {"message": message, "type": kind, "param": None, "code": code}}
    return json.dumps(error).encode()


def ask_for_usage(wire: Wire, body: bytes) -> bytes | None:
    """Return the request with `stream_options.include_usage`; None if it needs no edit.

    OpenAI's chat streams report their usage only on request. All other values keep their bytes.
    The provider then sends one more event, which `is_usage_chunk` recognizes and the gateway holds
    back, as the client did not ask for it. The other events get a `usage` of null, as documented.
    """
    if wire is not Wire.OPENAI_CHAT:
        return None
    try:
        fields = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
        options = msgspec.json.decode(fields.get("stream_options", b"null"))
        is_stream = msgspec.json.decode(fields.get("stream", b"false"))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    if is_stream is not True or not isinstance(options, dict | None):
        return None
    options = options or {}
    if options.get("include_usage") is True:
        return None
    options["include_usage"] = True
    fields["stream_options"] = msgspec.Raw(msgspec.json.encode(options))
    return msgspec.json.encode(fields)


def is_usage_chunk(data: bytes) -> bool:
    """Whether an event of a chat stream has only the usage that `ask_for_usage` asked for.

    Takes the event as it came, with its `data:` lines, or its data alone.
    """
    if b'"usage"' not in data:
        return False
    events = list(parse_events(data))
    found = decode_object(events[0].data if len(events) == 1 else data, Notes(), "an event")
    return (
        found is not None
        and found.get("choices") == []
        and isinstance(found.get("usage"), dict)
        and "error" not in found
    )


def digest_answer(turn: Turn) -> str:
    """Return a digest of what an answer says: its text and calls, without whitespace and ids."""
    parts = [turn.text]
    for call in turn.calls:
        parts += [call.name, call.unparsed or json.dumps(bound(call.arguments), sort_keys=True)]
    return sha256_hex("\0".join(map(_dense, parts)).encode(errors="replace"))


def _dense(text: str) -> str:
    return "".join(text.split())
