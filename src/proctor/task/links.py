"""Refuse links in a task that lead the host to files outside of the dataset.

harbor follows them: an untrusted task whose instruction.md links to your private key would show
the agent that key. Only paths that the host itself reads or enters are checked. Links deeper in
tests/, solution/ and environment/ are copied as links, and resolve inside the environment.
"""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from proctor.errors import TaskError
from proctor.task.terminal_bench import is_terminal_bench_task

_BUILT = ("Dockerfile", ".dockerignore", "Dockerfile.dockerignore")
_OF_A_STEP = (
    *("instruction.md", "solution", "workdir", "tests"),
    *(f"tests/{name}" for name in _BUILT),
)
_OF_A_TASK = (
    *("task.toml", "environment", "steps"),
    *(f"environment/{name}" for name in (*_BUILT, "docker-compose.yaml")),
    *_OF_A_STEP,
)


def check_links(directory: Path, within: Path | None = None) -> None:
    """Check that what the host reads of a task is inside the task, or inside the dataset `within`.

    Raises:
        TaskError: a link leads out; the message names it.
    """
    home = Path(os.path.realpath(directory))
    around = home if within is None else Path(os.path.realpath(within))
    for name in _find_links(home):
        real = Path(os.path.realpath(home / name))
        if not (real.is_relative_to(home) or real.is_relative_to(around)) and real.exists():
            raise TaskError(_explain(name, real, home, around))


def _find_links(home: Path) -> Iterator[str]:
    """Yield each link that the host follows; in an older task, which is copied, every link."""
    if is_terminal_bench_task(home):
        yield from _walk(home)
        return
    yield from (name for name in _OF_A_TASK if _is_link(f"{home}/{name}"))
    for step in _list(home / "steps"):
        names = (f"steps/{step}", *(f"steps/{step}/{name}" for name in _OF_A_STEP))
        yield from (name for name in names if _is_link(f"{home}/{name}"))


def _walk(home: Path) -> Iterator[str]:
    for place, directories, files in home.walk():
        for name in (*directories, *files):
            if _is_link(f"{place}/{name}"):
                yield str((place / name).relative_to(home))


def _is_link(path: str) -> bool:
    try:
        return stat.S_ISLNK(os.lstat(path).st_mode)
    except OSError:
        # Loading the task reports what is wrong with it.
        return False


def _list(directory: Path) -> list[str]:
    try:
        return sorted(path.name for path in directory.iterdir())
    except OSError:
        return []


def _explain(name: str, real: Path, home: Path, around: Path) -> str:
    place = "the task's directory" if around == home else f"the dataset {around}"
    hint = "; or pass the whole dataset with -p, to share files in it" if around == home else ""
    return (
        f"{name} is a link that leads out of {place}, to {real}; it could give the agent files of "
        f"this machine: replace it with a copy{hint}"
    )
