"""Server-sent events that report when an experiment changes.

    event: change    data: {"version": …}     reload the page
    event: end       data: {"version": …}     the job has finished; no more events follow

Files are checked at most twice a second, however many clients listen, and the number of clients is
limited. The stream ends when the job does, when the client disconnects, or when the viewer exits.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from proctor.errors import ProctorError
from proctor.web.data_source import DataSource

MOST_LISTENERS = 32
_EVERY = 0.5
# Seconds between keep-alive lines, by which a disconnected client is noticed.
_BEAT = 15.0


class Listeners:
    """Number of listeners, and whether the viewer is shutting down."""

    def __init__(self) -> None:
        self.number = 0
        self.is_closing = False


async def stream_events(request: Request) -> Response:
    """Stream the events of one experiment.

    Raises:
        HTTPException: 503: too many clients listen.
        NotThereError: there is none of that name.
    """
    source: DataSource = request.app.state.source
    listeners: Listeners = request.app.state.listeners
    name: str = request.path_params["experiment"]
    # After a reconnect the browser sends the last event's id; the first time the page passes its
    # own version.
    known = request.headers.get("last-event-id") or request.query_params.get("since", "")
    version = await run_in_threadpool(source.version, name)
    if request.method == "HEAD":
        return Response(media_type="text/event-stream")
    if listeners.number >= MOST_LISTENERS:
        raise HTTPException(503, "too many open live pages", {"Retry-After": "10"})
    stream = _watch(source, name, listeners, (known, version))
    return StreamingResponse(stream, media_type="text/event-stream")


async def _watch(
    source: DataSource, name: str, listeners: Listeners, versions: tuple[str, str]
) -> AsyncIterator[str]:
    known, version = versions
    listeners.number += 1
    try:
        yield "retry: 2000\n\n"
        beat = time.monotonic()
        while not listeners.is_closing:
            if version != known:
                known = version
                yield _event("change", version)
                beat = time.monotonic()
            if await run_in_threadpool(source.has_ended, name):
                yield _event("end", version)
                return
            await asyncio.sleep(_EVERY)
            try:
                version = await run_in_threadpool(source.version, name)
            except ProctorError:
                # The experiment is gone; reloading the page reports it.
                yield _event("change", "")
                return
            if time.monotonic() - beat >= _BEAT:
                beat = time.monotonic()
                yield ": still here\n\n"
    finally:
        listeners.number -= 1


def _event(kind: str, version: str) -> str:
    return f"id: {version}\nevent: {kind}\ndata: {json.dumps({'version': version})}\n\n"
