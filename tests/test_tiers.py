"""Marks follow from what a test uses, and an unmarked test that starts a process fails."""

import asyncio
import os
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache

import pytest

from proctor.environments.sandbox.environment import SandboxEnvironment
from tests.cli.programs import run_child, run_here
from tests.conformance.theirs import verify
from tests.lazy_imports import LazyModule
from tests.tiers import Guard, marks_of

HARBOR = LazyModule("harbor.models.trial")
SCIPY = LazyModule("scipy.stats")


class Starter:
    def start(self) -> None:
        subprocess.run(["true"], check=True)


@contextmanager
def started() -> Iterator[None]:
    Starter().start()
    yield


@cache
def known() -> object:
    return run_child("--version")


def nothing() -> object:
    return SCIPY, run_here


def itself() -> None:
    os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0)


def by_a_method_in_a_context() -> None:
    with started():
        nothing()


def by_a_helper_of_another_file() -> None:
    assert [known() for _ in range(2)]


async def in_a_loop() -> None:
    await asyncio.create_subprocess_exec("true")


def one_of_harbors() -> object:
    return HARBOR


def in_the_sandbox() -> object:
    return SandboxEnvironment


@pytest.mark.parametrize(
    ("function", "marks"),
    [
        (nothing, set()),
        (itself, {"process"}),
        (by_a_method_in_a_context, {"process"}),
        (by_a_helper_of_another_file, {"process"}),
        (in_a_loop, {"process"}),
        (one_of_harbors, {"harbor"}),
        (verify, {"harbor"}),
        (in_the_sandbox, {"sandbox"}),
    ],
)
def test_a_test_is_marked_by_what_its_code_names(
    function: Callable[..., object], marks: set[str]
) -> None:
    assert marks_of(function) == marks


@pytest.fixture(scope="module")
def guard() -> Guard:
    return Guard()


@pytest.mark.process
@pytest.mark.parametrize("start", [itself, by_a_method_in_a_context])
def test_a_process_that_a_pure_test_starts_fails_it(
    guard: Guard, start: Callable[[], object]
) -> None:
    with (
        guard.watching("test_pure"),
        pytest.raises(pytest.fail.Exception, match=r"test_pure started a process .* has no mark"),
    ):
        start()


@pytest.mark.process
def test_a_pure_test_may_connect_to_this_machine_alone(guard: Guard) -> None:
    with guard.watching("test_pure"), socket.socket(type=socket.SOCK_DGRAM) as connection:
        connection.connect(("127.0.0.1", 9))
        with pytest.raises(
            pytest.fail.Exception, match=r"test_pure connected to \('192.0.2.1', 9\)"
        ):
            connection.connect(("192.0.2.1", 9))
