"""The tiers of the suite: which tests are pure, and what each of the others needs.

    make quick           `--tier pure`: no mark at all; they start no process
    make tier-docker     `--tier docker`: this mark, and none that stands before it in MARKS
    make test            all tiers but soak

The marks come from here: from a test's directory, its fixtures, and what its code names. A test
that starts processes in another way carries its mark itself. `Guard` fails a test that has none
and starts a process, imports harbor or connects elsewhere, so no mark can be forgotten.
"""

import inspect
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import cache
from types import CodeType, FunctionType, ModuleType
from typing import Any

import pytest

from tests.lazy_imports import LazyModule

MARKS = ("soak", "harbor", "docker", "browser", "sandbox", "process")
PURE = "pure"
TIERS = (*MARKS, PURE)

_DIRECTORIES = {
    "tests/cheaters/": "sandbox",
    "tests/cli/test_import_inspect.py": "process",
    "tests/cluster/": "process",
    "tests/environments/docker/": "docker",
    "tests/environments/sandbox/": "sandbox",
    "tests/exchange/inspect/": "process",
    "tests/faults/": "process",
    "tests/parity/": "harbor",
    "tests/rerun/": "sandbox",
    "tests/test_benchmarks.py": "process",
}
_FIXTURES = {
    "browser": "browser",
    "cache": "sandbox",
    "harbor": "harbor",
    "ray_cluster": "process",
    "small_image": "docker",
    "uv_on_path": "process",
}
_NAMES = {
    "asyncio.subprocess": "process",
    "harbor": "harbor",
    "multiprocessing": "process",
    "proctor.environments.docker.environment": "docker",
    "proctor.environments.sandbox.environment": "sandbox",
    "pty": "process",
    "subprocess": "process",
    "tests.conformance.theirs": "harbor",
}
"""Modules, and whatever is defined in them, by the first words of their names."""
_ATTRIBUTES = {"create_subprocess_exec", "create_subprocess_shell", "fork", "posix_spawn"}
"""Functions of os and asyncio that start a process."""


def find_marks(item: pytest.Item) -> set[str]:
    """What a test needs beyond this process."""
    found = {mark for name, mark in _DIRECTORIES.items() if item.nodeid.startswith(name)}
    if isinstance(item, pytest.Function):
        found |= {_FIXTURES[name] for name in item.fixturenames if name in _FIXTURES}
        for function in _functions_of(item):
            found |= marks_of(function)
    return found


def is_without_pure(path: str) -> bool:
    """Whether all tests at a path below the root have a mark by their directory."""
    return any(f"{path}/".startswith(name) or path == name for name in _DIRECTORIES)


def tier_of(item: pytest.Item) -> str:
    """The tier of a test that has its marks: a test is in exactly one."""
    marks = {mark.name for mark in item.iter_markers()}
    return next((mark for mark in MARKS if mark in marks), PURE)


def _functions_of(item: pytest.Function) -> Iterator[FunctionType]:
    """A test, and the fixtures that it uses."""
    inner = getattr(item.obj, "hypothesis", None)
    test = inspect.unwrap(inner.inner_test if inner else item.obj)
    if isinstance(found := getattr(test, "__func__", test), FunctionType):
        yield found
    for definitions in item._fixtureinfo.name2fixturedefs.values():
        function = inspect.unwrap(definitions[-1].func)
        if isinstance(function, FunctionType) and _is_of_the_suite(function):
            yield function


@cache
def marks_of(function: Callable[..., object]) -> frozenset[str]:
    """What a function names, it or a function of the suite that it names, and so on."""
    found: set[str] = set()
    todo = [*_functions_in(function)]
    seen = {*todo}
    while todo:
        marks, named = _marks_and_functions_in(todo.pop())
        found |= marks
        todo += named - seen
        seen |= named
    return frozenset(found)


@cache
def _marks_and_functions_in(
    function: FunctionType,
) -> tuple[frozenset[str], frozenset[FunctionType]]:
    """What a function names itself: thousands of tests reach the same helpers."""
    values = [*_named_in(function)]
    return (
        frozenset(mark for value in values for mark in _marks_of_value(value)),
        frozenset(below for value in values for below in _functions_in(value)),
    )


def _named_in(function: FunctionType) -> Iterator[Any]:
    """The values of the global names that a function uses."""
    names = set(_names_of(function.__code__))
    for name in names:
        value = function.__globals__.get(name)
        if isinstance(value, ModuleType):
            yield from (vars(value).get(each) for each in names)
        yield value


def _names_of(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names_of(constant)


def _marks_of_value(value: Any) -> Iterator[str]:
    if isinstance(value, LazyModule):
        name = value.module
    elif isinstance(value, ModuleType):
        name = value.__name__
    else:
        name = str(getattr(value, "__module__", ""))
        if getattr(value, "__name__", "") in _ATTRIBUTES:
            yield "process"
    for first, mark in _NAMES.items():
        if name == first or name.startswith(f"{first}."):
            yield mark


def _functions_in(value: Any) -> Iterator[FunctionType]:
    """A function of the suite, or the methods of a class of it."""
    if isinstance(value, type) and _is_of_the_suite(value):
        for each in vars(value).values():
            yield from _functions_in(each)
        return
    function = inspect.unwrap(value) if callable(value) else value
    if isinstance(function, FunctionType) and _is_of_the_suite(function):
        yield function


def _is_of_the_suite(value: Any) -> bool:
    return str(value.__module__).startswith(("tests.", "benchmarks."))


class Guard:
    """A plugin that fails a pure test where it does what needs a mark."""

    # Not os.fork: whether proctor reads in several processes depends on the number of processors.
    _EVENTS = frozenset({"subprocess.Popen", "os.posix_spawn", "os.system"})

    def __init__(self) -> None:
        self._guarded: str | None = None
        sys.addaudithook(self._see)

    # Not its teardown: that may end what earlier tests, with marks, have started.
    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None]:
        """Watch a test that has none of the marks."""
        with self.watching(item.nodeid if tier_of(item) == PURE else None):
            return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None]:
        """Watch a test that has none of the marks."""
        with self.watching(item.nodeid if tier_of(item) == PURE else None):
            return (yield)

    @contextmanager
    def watching(self, name: str | None) -> Iterator[None]:
        """Fail what happens within, by the name of a test."""
        self._guarded = name
        try:
            yield
        finally:
            self._guarded = None

    def _see(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self._guarded is None:
            return
        if event in self._EVENTS:
            did = f"started a process ({event} {arguments[:1]})"
        elif event == "socket.connect" and not _is_near(arguments[1]):
            did = f"connected to {arguments[1]}"
        elif event == "import" and arguments[0].partition(".")[0] == "harbor":
            did = f"imported {arguments[0]}"
        else:
            return
        pytest.fail(
            f"{self._guarded} {did}, and has no mark. Mark it with one of {', '.join(MARKS)}, "
            "or add what it uses to tests/tiers.py."
        )


def _is_near(address: object) -> bool:
    """Whether an address is this machine's own."""
    if not isinstance(address, tuple):
        return True
    host = str(address[0])
    return host.startswith("127.") or host in {"", "::1", "localhost", "0.0.0.0"}  # noqa: S104
