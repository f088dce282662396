"""Whether a request writes does not depend on its Host header."""

import pytest
from starlette.datastructures import URL
from starlette.requests import Request

from proctor.serve.app import _is_reading


@pytest.mark.parametrize("url", [None, "http://x/artifacts/missing?/submit"])
def test_the_host_header_does_not_say_what_may_be_written(url: str | None) -> None:
    class Asked(Request):
        """A request whose address is made of the Host header, as in Starlette 1.0.0."""

        @property
        def url(self) -> URL:
            return URL(url) if url else super().url

    def is_reading(path: str) -> bool:
        headers = [(b"host", b"x/artifacts/missing?")]
        scope = {"type": "http", "method": "POST", "path": path, "headers": headers}
        return _is_reading(Asked({**scope, "query_string": b"", "scheme": "http"}))

    assert not is_reading("/submit")
    assert is_reading("/artifacts/missing")
