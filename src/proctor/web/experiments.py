"""The first page: what there is."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from proctor.web.pages import render_page
from proctor.web.subject import Subject


def _show_index(request: Request) -> Response:
    subject: Subject = request.app.state.subject
    return render_page("index.html", title="Experiments", subject=subject)


routes: list[BaseRoute] = [Route("/", _show_index, name="index")]
