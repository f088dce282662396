"""Commands as an ordinary user: a person with a home of her own, whom root becomes.

    ran = run_as_ordinary_user("proctor", "run", …, home=home)

In a mount namespace of its own, where the Python of this suite and this repository can be reached
by everybody: a Python below /root is nobody else's otherwise. There the machine can have more, or
less, than it has. Nothing outside changes. Whoever is not root already is somebody ordinary.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from proctor.environments.sandbox.delete import delete_tree
from tests import become_user
from tests.become_user import PERSON, ROOT
from tests.cli.programs import Ran

_PATIENCE_SEC = 600


def ordinary_uid() -> int:
    """Whose files an ordinary user's are."""
    return PERSON if os.geteuid() == 0 else os.geteuid()


@contextmanager
def ordinary_home() -> Iterator[Path]:
    """A directory of hers; pytest's own lie below one that root keeps to itself."""
    home = Path(tempfile.mkdtemp())
    give(home)
    try:
        yield home
    finally:
        delete_tree(home)


def give(*paths: Path) -> None:
    """Make files hers."""
    for path in paths:
        if os.geteuid() == 0:
            os.lchown(path, PERSON, PERSON)


def command_line(*words: object, machine: tuple[str, ...] = ()) -> list[str]:
    """The words that run a command as her; the first of them is a program's path."""
    if os.geteuid() != 0:
        assert not machine, "only root can furnish a machine"
        return list(map(str, words))
    return [sys.executable, become_user.__file__, *machine, *map(str, words)]


def environment(home: Path, **changes: str) -> dict[str, str]:
    """What she has in her environment: no variable that says where root's things are."""
    path = f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
    found = f"{ROOT / 'src'}:{ROOT}"
    return {
        "HOME": str(home),
        "TMPDIR": str(home),
        "PATH": path,
        "PYTHONPATH": found,
        "PYTHONDONTWRITEBYTECODE": "1",
        "LANG": "C.UTF-8",
        "PROCTOR_BASE": "host",
        **changes,
    }


def run_as_ordinary_user(
    *words: object,
    home: Path,
    env: Mapping[str, str] | None = None,
    machine: tuple[str, ...] = (),
) -> Ran:
    """Run a command to its end, in her home; `proctor` is this suite's own."""
    first, *rest = words
    program = [sys.executable, "-m", "proctor"] if first == "proctor" else [first]
    done = subprocess.run(
        command_line(*program, *rest, machine=machine),
        cwd=home,
        env=environment(home) if env is None else env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=_PATIENCE_SEC,
    )
    return Ran(done.returncode, done.stdout, done.stderr)
