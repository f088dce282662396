"""Ends programs that fixtures of the session start with the last test of the group that uses them.

An engine, a browser or a cluster takes processor time for as long as it runs, which would be to the
end of the whole run.
"""

from collections.abc import Callable, Generator
from functools import partial
from typing import Any

import pytest

_SERVICES = {"browser", "ray_cluster", "seaweedfs", "shared_engine"}
"""The fixtures that start such programs. Should a later test ask again, they start again."""


class Services:
    """A plugin that knows which of them are running."""

    def __init__(self) -> None:
        self._running: list[Callable[[], None]] = []

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[Any], request: Any
    ) -> Generator[None, object, object]:
        """Note what is started."""
        made = yield
        if fixturedef.argname in _SERVICES:
            self._running.append(partial(fixturedef.finish, request))
        return made

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> Generator[None]:
        """End what runs, if the next test is of another group."""
        yield
        if nextitem is None or _group_of(nextitem) != _group_of(item):
            while self._running:
                self._running.pop()()


def _group_of(item: pytest.Item) -> str | None:
    """The name of the tests that one worker runs one after the other, with this one."""
    mark = item.get_closest_marker("xdist_group")
    return None if mark is None else str(mark.args[0])
