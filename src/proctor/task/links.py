"""Links of a task that lead the runner to files which are not the dataset's.

harbor follows them: a stranger's task whose instruction.md is a link to a key of yours would tell
the agent that key. Only what the host itself reads or enters by name is looked at. Links deeper in
tests/, solution/ and environment/ are put into the environment as links, and lead nowhere else.
"""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from proctor.errors import TaskError
from proctor.task.terminal_bench import is_terminal_bench_task

_BUILT = ("Dockerfile", ".dockerignore", "Dockerfile.dockerignore")
_OF_A_PART = (
    *("instruction.md", "solution", "workdir", "tests"),
    *(f"tests/{name}" for name in _BUILT),
)
_OF_A_TASK = (
    *("task.toml", "environment", "steps"),
    *(f"environment/{name}" for name in (*_BUILT, "docker-compose.yaml")),
    *_OF_A_PART,
)


def check_links(directory: Path, within: Path | None = None) -> None:
    """See that what is read of a task lies in it, or in the dataset that it is `within`.

    Raises:
        TaskError: a link leads out; names it.
    """
    home = Path(os.path.realpath(directory))
    around = home if within is None else Path(os.path.realpath(within))
    for name in _find_links(home):
        real = Path(os.path.realpath(home / name))
        if not (real.is_relative_to(home) or real.is_relative_to(around)) and real.exists():
            raise TaskError(_explain(name, real, home, around))


def _find_links(home: Path) -> Iterator[str]:
    """What is followed by the host and is a link; in an older task, which is copied, any link."""
    if is_terminal_bench_task(home):
        yield from _walk(home)
        return
    yield from (name for name in _OF_A_TASK if _is_link(f"{home}/{name}"))
    for step in _list(home / "steps"):
        names = (f"steps/{step}", *(f"steps/{step}/{name}" for name in _OF_A_PART))
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
        # Whoever reads the task says what is wrong with it.
        return False


def _list(directory: Path) -> list[str]:
    try:
        return sorted(path.name for path in directory.iterdir())
    except OSError:
        return []


def _explain(name: str, real: Path, home: Path, around: Path) -> str:
    place = "the task's directory" if around == home else f"the dataset {around}"
    hint = "; -p with the whole dataset lets it share files" if around == home else ""
    return (
        f"{name} is a link that leads out of {place}, to {real}; the agent could be given files of "
        f"this machine by it: put a copy there{hint}"
    )
