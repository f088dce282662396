"""The same promises where an ordinary user makes the sandbox: the same tests, run as one."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.become_user import FIRST_ID, IDS, ROOT
from tests.cli.programs import Ran
from tests.ordinary_user import environment, ordinary_home, run_as_ordinary_user

HERE = Path(__file__).resolve().parent
BY_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="root becomes an ordinary user here")


@pytest.fixture
def place() -> Iterator[Path]:
    with ordinary_home() as directory:
        yield directory


def run_python(place: Path, *words: str, machine: tuple[str, ...] = ()) -> Ran:
    """Run Python as her."""
    env = environment(place)
    return run_as_ordinary_user(sys.executable, *words, home=place, env=env, machine=machine)


@BY_ROOT
@pytest.mark.parametrize(
    "name",
    [
        *("rooms", "transfers", "lifetimes", "pausing"),
        *(pytest.param(name, marks=pytest.mark.soak) for name in ("box", "probes", "filter")),
    ],
)
def test_an_ordinary_users_sandbox_keeps_the_same_promises(place: Path, name: str) -> None:
    # The runner of this suite may be one of several; the one in there is alone.
    options = ("-q", "-x", "-p", "no:cacheprovider", "-p", "no:randomly", "-p", "no:xdist")
    base = (f"--basetemp={place / 'pytest'}", f"--rootdir={ROOT}", f"-c{ROOT / 'pyproject.toml'}")
    ran = run_python(place, "-m", "pytest", *options, *base, str(HERE / f"test_{name}.py"))
    assert ran.code == 0, ran.out[-8000:] + ran.err[-2000:]
    assert " passed" in ran.out


LINES = f"((1, {FIRST_ID}, 65535),)"
USER_SCRIPT = """
import sys
from pathlib import Path
from proctor.errors import SandboxError
from tests.environments.sandbox.boxes import look
changes = {"subordinate": eval(sys.argv[2])} if len(sys.argv) > 2 else {}
try:
    print(look(Path(sys.argv[1]), "id; touch /tmp/x; stat -c %U /tmp/x", user="guest", **changes))
except SandboxError as error:
    print(error)
"""


@BY_ROOT
def test_another_user_is_refused_without_subordinate_ids(place: Path) -> None:
    ran = run_python(place, "-c", USER_SCRIPT, str(place / "t"))
    assert ran.out.strip() == (
        "user 1000:1000 does not exist in this sandbox (Invalid argument): it belongs to an "
        "unprivileged user without enough subordinate ids; add some to /etc/subuid and "
        "/etc/subgid and install newuidmap, or run as root"
    )


@BY_ROOT
@pytest.mark.skipif(shutil.which("newuidmap") is None, reason="newuidmap is not installed")
def test_another_user_is_there_with_subordinate_ids(place: Path) -> None:
    ran = run_python(place, "-c", USER_SCRIPT, str(place / "t"), LINES, machine=(IDS,))
    assert ran.out.strip() == (
        "uid=1000(guest) gid=1000(guest) groups=1000(guest),50(staff)\nguest"
    ), ran.err
    # What it wrote belongs to an id that she can only have by such a map.
    subprocess.run(["rm", "-rf", str(place / "t")], check=True)


@BY_ROOT
def test_ids_that_are_not_the_users_own_are_refused_by_the_tools(place: Path) -> None:
    ran = run_python(place, "-c", USER_SCRIPT, str(place / "t"), LINES)
    assert "sandbox box could not be built: " in ran.out
    assert "newuidmap" in ran.out
