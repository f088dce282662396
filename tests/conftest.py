"""Fixtures that every test may use. What only one unit's tests need lives beside them."""

import asyncio
import gc
import inspect
import itertools
import os
import re
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import certifi
import pytest
from hypothesis import settings

from tests.cluster.ray_cluster import ADDRESS, RayCluster, make_token

# One engine for all directories: a fixture that several import is started once for each.
from tests.environments.docker.fixtures import engine as engine
from tests.environments.docker.fixtures import own_engine as own_engine
from tests.environments.docker.fixtures import shared_engine as shared_engine
from tests.environments.docker.fixtures import small_image as small_image
from tests.services import Services
from tests.tiers import PURE, TIERS, Guard, find_marks, is_without_pure, tier_of

# How long an example takes is the machine's business, not the test's.
# Half of what hypothesis itself runs; `make soak` runs ten times what it does.
settings.register_profile("proctor", deadline=None, max_examples=50)
settings.register_profile("soak", deadline=None, max_examples=1000)
settings.register_profile("quick", deadline=None, max_examples=10)
settings.load_profile("proctor")

# A shell starts what it puts into the background deaf to Ctrl-C, and nohup what it runs to the end
# of its terminal. Every child would be so too.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

# Collecting makes a million objects, and all of them stay: a third of its time went into looking
# for garbage among them.
gc.disable()

ROOT = Path(__file__).resolve().parent.parent

_PREPARED_ONCE = (
    "tests/cli/test_clean_room.py",
    "tests/cli/test_clean_room_packages.py",
    "tests/environments/sandbox/test_pull_builders.py",
    "tests/parity/test_agents_for_harbor.py",
    "tests/parity/test_beside_harbor.py",
    "tests/parity/test_harbor_takes_our_jobs.py",
    "tests/parity/test_harbors_agents.py",
    "tests/publish/test_bucket.py",
    "tests/test_benchmarks.py",
)
"""Files whose tests share what takes many seconds to make: one worker has all of a file."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--tier TIER`, for a part of the suite."""
    parser.addoption("--tier", choices=TIERS, help="only the tests of one tier: see tests/tiers.py")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine in a loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    given = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    asyncio.run(pyfuncitem.obj(**given))
    return True


def pytest_configure(config: pytest.Config) -> None:
    """A test that starts a process and is not marked as one that does fails."""
    config.pluginmanager.register(Guard())
    config.pluginmanager.register(Services())
    # Tasks of tests name images that only a registry has.
    os.environ.setdefault("PROCTOR_BASE", "host")
    # Else every process that is started reads the metadata of all packages that are installed for
    # the tests, to find plugins of pydantic.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import nothing for the pure tier that has no test of it."""
    path = collection_path.relative_to(ROOT).as_posix()
    return True if config.getoption("tier") == PURE and is_without_pure(path) else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark tests by what they need, and tell `--dist loadgroup` which belong together."""
    for item in items:
        marks = find_marks(item)
        for mark in marks:
            item.add_marker(mark)
        if group := _find_group(item, marks):
            item.add_marker(pytest.mark.xdist_group(group))
    if tier := config.getoption("tier"):
        config.hook.pytest_deselected(items=[item for item in items if tier_of(item) != tier])
        items[:] = [item for item in items if tier_of(item) == tier]


def _find_group(item: pytest.Item, marks: set[str]) -> str | None:
    """Tests of a group share one cluster, engine or browser (tests/services.py), or their files."""
    file = item.nodeid.partition("::")[0]
    if file.startswith("tests/cluster/") or item.name.endswith("[ray]"):
        return "ray"
    if file in _PREPARED_ONCE:
        return file
    return next((service for service in ("docker", "browser") if service in marks), None)


@pytest.fixture(scope="session")
def ray_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayCluster]:
    """A cluster of two nodes, to which all files of the tests are hidden."""
    if find_spec("ray") is None:
        pytest.skip("ray is not installed: pip install 'proctor[ray]'")
    with tempfile.TemporaryDirectory(prefix="pc-", dir="/tmp") as place:
        cluster = RayCluster(Path(place), [tmp_path_factory.getbasetemp()], make_token())
        try:
            cluster.start()
            yield cluster
        finally:
            cluster.stop()


@pytest.fixture
def connected(ray_cluster: RayCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """This process is a driver of the cluster."""
    for name, value in ray_cluster.variables.items():
        monkeypatch.setenv(name, value)
    connection = import_module("proctor.cluster.connection")
    ray_cluster.restore()
    with ray_cluster.entered():
        connection.connect(ADDRESS, is_insecure=False)
        yield
        connection.disconnect()


def pytest_collection_finish() -> None:
    """Look for garbage again, but never among what was collected."""
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session")
def root() -> Path:
    """The root of the repository."""
    return ROOT


_NUMBERS = itertools.count()


@pytest.fixture(autouse=True, scope="session")
def certificates_read_once() -> Iterator[None]:
    """HTTP clients share the usual certificates: each would read them anew, for 20 ms."""
    make = ssl.create_default_context
    make_once = cache(make)
    # Of certifi, or of the machine if its environment names them.
    usual = [{"cafile": certifi.where()}, {"cafile": os.environ.get("SSL_CERT_FILE", "")}]

    def make_or_share(*purpose: ssl.Purpose, **options: Any) -> ssl.SSLContext:
        # A context reads the name of that file when it is made.
        is_usual = not purpose and options in usual and "SSLKEYLOGFILE" not in os.environ
        return (make_once if is_usual else make)(*purpose, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ssl, "create_default_context", make_or_share)
        yield


@pytest.fixture(autouse=True, scope="session")
def nobodys_key(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """What tests seal and keep: not in ./ledger or a person's cache, nor with a person's key."""
    place = tmp_path_factory.getbasetemp() / "sealed"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PROCTOR_LEDGER", str(place / "ledger"))
        patch.setenv("XDG_CONFIG_HOME", str(place / "config"))
        # One for all tests of a worker: what is made of the host is made once, and each ledger has
        # indexes of its own there.
        patch.setenv("PROCTOR_CACHE", str(place / "cache"))
        patch.delenv("PROCTOR_KEY", raising=False)
        yield place


@pytest.fixture(autouse=True, scope="module")
def modules_ledger(nobodys_key: Path) -> Iterator[None]:
    """A ledger for the jobs that fixtures of a module run: an experiment takes only its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PROCTOR_LEDGER", str(nobodys_key / f"ledger-{next(_NUMBERS)}"))
        yield


@pytest.fixture(autouse=True)
def own_ledger(nobodys_key: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A ledger of its own for each test that seals something."""
    monkeypatch.setenv("PROCTOR_LEDGER", str(nobodys_key / f"ledger-{next(_NUMBERS)}"))


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of the test, numbered by us: pytest lists all earlier ones to find a number."""
    name = re.sub(r"\W", "_", request.node.name)[:30]
    path = tmp_path_factory.getbasetemp() / "tests" / f"{name}{next(_NUMBERS)}"
    path.mkdir(mode=0o700, parents=True)
    return path


@pytest.fixture
def uv_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """The uv of the machine, else the one that `make` keeps for itself."""
    places = [os.environ["PATH"], str(ROOT / ".tools"), str(Path(sys.executable).parent)]
    monkeypatch.setenv("PATH", os.pathsep.join(places))
    assert shutil.which("uv"), "uv is needed: `make test` provides it"


@pytest.fixture
def wheel(tmp_path: Path, uv_on_path: None) -> Path:
    """A directory with harbor 0.25.0, and none of its libraries: those of 0.13.1 will do."""
    place = tmp_path / "wheel"
    words = ("pip", "install", "--quiet", "--no-deps", "--target", place, "harbor==0.25.0")
    subprocess.run(["uv", *words], check=True)
    return place
