"""What runs in a container, as the engine or the kernel sees it: nothing in it is asked."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from proctor.environments.docker.program import run_docker
from proctor.environments.sandbox.processes import (
    LONGEST_COMMAND,
    Lister,
    find_living,
    read_stat,
)
from proctor.trial.environment import Process

_KEEPER = "sleep infinity"
_DEAD = ("Z", "X")
_FIELDS = "pid,ppid,stat,args"


@dataclass(frozen=True, slots=True)
class _Row:
    pid: int
    """For the engine."""
    parent: int
    process: Process
    """Its pid is that inside, where that is known."""


async def list_processes(container: str, first: int) -> list[Process]:
    """Everything but the first process and the one sleeper that it keeps; command lines alone.

    A process is listed while any of its threads lives. An engine whose `ps` lists no threads, such
    as busybox's, takes one whose first thread has ended for dead.

    Raises:
        DockerError: the container or the engine is gone.
    """
    told = await run_docker("top", container, "-eLo", _FIELDS, is_checked=False)
    if told.code != 0:
        told = await run_docker("top", container, "-eo", _FIELDS)
    fields = [line.split(None, 3) for line in told.out.splitlines()[1:]]
    rows: dict[int, _Row] = {}
    for pid, parent, state, command in (each for each in fields if len(each) == 4):
        if not state.startswith(_DEAD):
            shown = Process(int(pid), command[:LONGEST_COMMAND])
            rows.setdefault(int(pid), _Row(int(pid), int(parent), shown))
    return _without_own(list(rows.values()), first)


def list_processes_here(first: int) -> list[Process]:
    """The same, where the engine's processes are this machine's; looked for in /proc.

    Raises:
        OSError: the container is gone.
    """
    namespace = str(Path(f"/proc/{first}/ns/pid").readlink())
    lister = Lister(f"/proc/{first}/root")
    return _without_own(sorted(_find_in(namespace, lister), key=lambda row: row.pid), first)


def _find_in(namespace: str, lister: Lister) -> Iterator[_Row]:
    for place in Path("/proc").iterdir():
        # One that ends meanwhile is none.
        with suppress(OSError, ValueError):
            if place.name.isdecimal() and str((place / "ns/pid").readlink()) == namespace:
                yield from _describe(int(place.name), lister)


def _describe(pid: int, lister: Lister) -> Iterator[_Row]:
    name, fields = read_stat(f"/proc/{pid}")
    place = find_living(pid, fields)
    if place is None:
        return
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace")
    facts = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    seen = lister.describe(place, name, int(facts["Uid"].split()[0]))
    inside = int(facts["NSpid"].split()[-1])
    yield _Row(pid, int(fields[1]), Process(inside, **seen._asdict()))


def _without_own(rows: Sequence[_Row], first: int) -> list[Process]:
    found, has_keeper = [], False
    for row in rows:
        if row.pid == first:
            continue
        if row.parent == first and row.process.command == _KEEPER and not has_keeper:
            # One, and no more: whoever calls himself so is seen.
            has_keeper = True
            continue
        found.append(row.process)
    return found
