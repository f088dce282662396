"""Processes of a container, as the engine or the kernel reports them; nothing is run inside."""

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from proctor.environments.docker.program import run_docker
from proctor.environments.image_config import KEEPER, SERVED_SEC, describe_end
from proctor.environments.sandbox.processes import (
    LONGEST_COMMAND,
    STARTED,
    Lister,
    find_living,
    read_stat,
)
from proctor.errors import DockerError
from proctor.trial.environment import Process

# How often harbor's command is looked for.
_LOOK_SEC = 0.05
_DEAD = ("Z", "X")
_FIELDS = "pid,ppid,stat,args"


@dataclass(frozen=True, slots=True)
class Listed:
    """A process of a container."""

    pid: int
    """Pid on the engine's machine."""
    parent: int
    process: Process
    """The process, with its pid inside if known."""
    started: int = 0
    """When it started, in clock ticks; 0 if the engine does not report it."""

    @property
    def identity(self) -> tuple[int, int | str]:
        """What no other process has: pids are used again."""
        return self.pid, self.started or self.process.command


async def list_processes(container: str, first: int) -> list[Listed]:
    """List all processes but the first and its `sleep`, with only their command lines.

    A process is listed while any of its threads is alive. If the engine's `ps` cannot list
    threads, as busybox's, a process whose first thread has ended counts as dead.
    """
    listed = await run_docker("top", container, "-eLo", _FIELDS, is_checked=False)
    if listed.code != 0:
        listed = await run_docker("top", container, "-eo", _FIELDS)
    fields = [line.split(None, 3) for line in listed.out.splitlines()[1:]]
    rows: dict[int, Listed] = {}
    for pid, parent, state, command in (each for each in fields if len(each) == 4):
        if not state.startswith(_DEAD):
            shown = Process(int(pid), command[:LONGEST_COMMAND])
            rows.setdefault(int(pid), Listed(int(pid), int(parent), shown))
    return _without_own(list(rows.values()), first)


def list_processes_here(first: int, model_port: int) -> list[Listed]:
    """List the processes from /proc, if the engine runs on this machine."""
    namespace = str(Path(f"/proc/{first}/ns/pid").readlink())
    lister = Lister(f"/proc/{first}/root", model_port)
    return _without_own(sorted(_find_in(namespace, lister), key=lambda row: row.pid), first)


def _find_in(namespace: str, lister: Lister) -> Iterator[Listed]:
    for place in Path("/proc").iterdir():
        # A process may end while it is read.
        with suppress(OSError, ValueError):
            if place.name.isdecimal() and str((place / "ns/pid").readlink()) == namespace:
                yield from _describe(int(place.name), lister)


def _describe(pid: int, lister: Lister) -> Iterator[Listed]:
    name, fields = read_stat(f"/proc/{pid}")
    place = find_living(pid, fields)
    if place is None:
        return
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace")
    facts = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    seen = lister.describe(place, name, int(facts["Uid"].split()[0]))
    inside = int(facts["NSpid"].split()[-1])
    process = Process(inside, **seen._asdict())
    yield Listed(pid, int(fields[1]), process, int(fields[STARTED]))


def _without_own(rows: Sequence[Listed], first: int) -> list[Listed]:
    found, has_keeper = [], False
    for row in rows:
        if row.pid == first:
            continue
        if row.parent == first and row.process.command == KEEPER and not has_keeper:
            # Only one: a process of the agent that takes this name is listed.
            has_keeper = True
            continue
        found.append(row)
    return found


async def wait_until_served(container: str) -> None:
    """Wait until the ENTRYPOINT of a container has started harbor's command, or half a second.

    Raises:
        DockerError: it ended, and the container with it.
    """
    until = time.monotonic() + SERVED_SEC
    while time.monotonic() < until:
        look = "{{.State.Running}} {{.State.ExitCode}}"
        state = (await run_docker("inspect", "--format", look, container)).out.split()
        if state[0] != "true":
            raise DockerError(f"{container}: {describe_end(int(state[1]))}")
        listed = await run_docker("top", container, "-eo", "pid,args", is_checked=False)
        if any(line.split(None, 1)[1:] == [KEEPER] for line in listed.out.splitlines()):
            return
        await asyncio.sleep(_LOOK_SEC)
