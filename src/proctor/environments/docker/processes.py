"""What runs in a container, as the engine or the kernel sees it: nothing in it is asked."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from proctor.environments.docker.program import run_docker
from proctor.trial.environment import Process

_LONGEST_COMMAND = 512
_KEEPER = "sleep infinity"
_DEAD = ("Z", "X")


@dataclass(frozen=True, slots=True)
class _Row:
    pid: int
    """For the engine."""
    parent: int
    inside: int
    """As seen inside, where that is known."""
    command: str


async def list_processes(container: str, first: int) -> list[Process]:
    """Everything but the first process and the one sleeper that it keeps.

    Raises:
        DockerError: the container or the engine is gone.
    """
    told = await run_docker("top", container, "-eo", "pid,ppid,stat,args")
    fields = [line.split(None, 3) for line in told.out.splitlines()[1:]]
    rows = [
        _Row(int(pid), int(parent), int(pid), command)
        for pid, parent, state, command in (each for each in fields if len(each) == 4)
        if not state.startswith(_DEAD)
    ]
    return _without_own(rows, first)


def list_processes_here(first: int) -> list[Process]:
    """The same, where the engine's processes are this machine's; looked for in /proc.

    Raises:
        OSError: the container is gone.
    """
    namespace = str(Path(f"/proc/{first}/ns/pid").readlink())
    return _without_own(sorted(_find_in(namespace), key=lambda row: row.pid), first)


def _find_in(namespace: str) -> Iterator[_Row]:
    for place in Path("/proc").iterdir():
        # One that ends meanwhile is none.
        with suppress(OSError, ValueError):
            if place.name.isdecimal() and str((place / "ns/pid").readlink()) == namespace:
                yield from _describe(int(place.name))


def _describe(pid: int) -> Iterator[_Row]:
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace")
    facts = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    if facts["State"].split()[0].startswith(_DEAD):
        return
    with Path(f"/proc/{pid}/cmdline").open("rb") as file:
        words = file.read(_LONGEST_COMMAND).rstrip(b"\0").replace(b"\0", b" ")
    command = words.decode(errors="replace") or f"[{facts['Name'].strip()}]"
    yield _Row(pid, int(facts["PPid"]), int(facts["NSpid"].split()[-1]), command)


def _without_own(rows: Sequence[_Row], first: int) -> list[Process]:
    found, has_keeper = [], False
    for row in rows:
        if row.pid == first:
            continue
        if row.parent == first and row.command == _KEEPER and not has_keeper:
            # One, and no more: whoever calls himself so is seen.
            has_keeper = True
            continue
        found.append(Process(row.inside, row.command[:_LONGEST_COMMAND]))
    return found
