"""The program that answers, and its connections."""

import socket
import threading

import httpx
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from proctor.web import server
from proctor.web.app import make_app
from proctor.web.data_source import DataSource
from tests.web.browsing import NO_TLS
from tests.web.jobs import JOB
from tests.web.subjects import JOBS


def test_small_answers_do_not_wait_for_each_other() -> None:
    app = make_app(DataSource(jobs=(JOBS / JOB,)))
    seen: list[int] = []

    async def look(_request: Request) -> Response:
        for each in running.server_state.connections:
            opened = each.transport.get_extra_info("socket")
            seen.append(opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        return PlainTextResponse("seen")

    app.router.routes.insert(0, Route("/look", look))
    listening, running = server.listen(0), server.make_server(app)
    thread = threading.Thread(target=running.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    try:
        address = f"http://127.0.0.1:{listening.getsockname()[1]}"
        assert httpx.get(f"{address}/look", verify=NO_TLS, trust_env=False).text == "seen"
    finally:
        running.end()
        thread.join(20)
        listening.close()
    assert seen == [1]
