"""Starts and removes containers, with labels by which the reaper finds them.

Processes in a container have the capabilities of root in the sandbox, and AUDIT_WRITE: sshd and PAM
refuse logins if the kernel's audit refuses their messages, and only the sandbox hides it from them.
Those in a verifier's room have one more, which the agent's processes never have.
"""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from proctor.digest import sha256_hex
from proctor.environments.docker.program import run_docker, run_docker_whole
from proctor.environments.image_config import KEEPER, SERVED_SEC, describe_end
from proctor.environments.sandbox.limits import Limits
from proctor.environments.sandbox.processes import (
    LONGEST_COMMAND,
    STARTED,
    Lister,
    find_living,
    read_stat,
)
from proctor.environments.sandbox.scratch import find_attempt, fit_name, this_run
from proctor.errors import DockerError
from proctor.trial.environment import Process

RUN = "proctor.run"
"""Label: the process that started it; see RunId."""
OWNER = "proctor.owner"
"""Label: the machine and the user that it belongs to."""
TRIAL = "proctor.trial"
"""Label: the directory of its trial; a room has none."""
ATTEMPT = "proctor.attempt"
"""Label: device and inode of the trial's config.json."""

_CAPABILITIES = (
    *("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID"),
    *("NET_BIND_SERVICE", "SYS_CHROOT", "SETFCAP", "AUDIT_WRITE"),
)
ROOM_CAPABILITY = "WAKE_ALARM"
"""Additional capability of a room: harmless, but the kernel then protects its processes."""

_INIT = "docker-init"

# Variables that affect the docker program itself.
_CLIENTS_OWN = frozenset(
    {"PATH", "HOME", "TMPDIR", "USER", "HOSTNAME", "SSH_AUTH_SOCK", "XDG_CONFIG_HOME", "LANG"}
)
_CLIENTS_PREFIXES = ("DOCKER_", "BUILDKIT", "LD_", "GO", "SSL_", "XDG_", "OTEL_")


@dataclass(frozen=True, slots=True)
class Variables:
    """Variables for a container, as arguments and as variables of the docker program.

    Values are not in the arguments, where other users of this machine can see them, except for
    variables that would affect the docker program itself.
    """

    words: tuple[str, ...]
    env: Mapping[str, str]


def pass_on(variables: Mapping[str, str]) -> Variables:
    """Return how to pass variables to a container."""
    words: list[str] = []
    env: dict[str, str] = {}
    for name, value in variables.items():
        if (
            name in _CLIENTS_OWN
            or name.startswith(_CLIENTS_PREFIXES)
            or name.lower().endswith("_proxy")
        ):
            words += ["--env", f"{name}={value}"]
        else:
            words += ["--env", name]
            env[name] = value
    return Variables(tuple(words), env)


def name_container(session: str) -> str:
    """Return a new name for a container: the trial's, with a random suffix."""
    return f"proctor-{fit_name(session)[:60]}-{os.urandom(6).hex()}"


def words_of_limits(limits: Limits) -> list[str]:
    """Return limits as options of `docker run`."""
    words = ["--pids-limit", str(limits.pids)]
    if limits.cpus is not None:
        words += ["--cpus", str(limits.cpus)]
    if limits.memory_mb is not None:
        # memory-swap includes memory: the same value means no swap.
        words += ["--memory", f"{limits.memory_mb}m", "--memory-swap", f"{limits.memory_mb}m"]
    return words


def words_of_rights(*further: str) -> list[str]:
    """Return options that restrict capabilities; `further` ones are added."""
    words = ["--security-opt", "no-new-privileges", "--cap-drop", "ALL"]
    for capability in (*_CAPABILITIES, *further):
        words += ["--cap-add", capability]
    return words


def words_of_labels(trial: Path | None = None) -> list[str]:
    """Return options for the labels of this run's containers."""
    labels = {RUN: str(this_run()), OWNER: owner()}
    if trial is not None:
        labels[TRIAL] = str(trial.absolute())
        if attempt := find_attempt(trial):
            labels[ATTEMPT] = f"{attempt[0]}:{attempt[1]}"
    return [word for name, value in labels.items() for word in ("--label", f"{name}={value}")]


@cache
def owner() -> str:
    """Return an id of this user on this machine: an engine may serve several of both."""
    machine = next(filter(None, map(_read, ("/etc/machine-id", "/proc/sys/kernel/hostname"))), "")
    return f"{sha256_hex(machine.encode())[:16]}-{os.geteuid()}"


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


type Fill = Callable[[str], Awaitable[None]]
"""Copies files to a container, given its name, that was created but not started."""


async def start_container(words: Sequence[str], name: str, fill: Fill | None = None) -> None:
    """Start a container, with an init process that reaps zombies if the engine has one.

    Raises:
        DockerError: it cannot be started.
        Exception: raised by `fill`.
    """
    try:
        await _start(["--init", *words], name, fill)
    except DockerError as error:
        # Some installations lack docker-init; without it, zombies are not reaped.
        if _INIT not in str(error):
            raise
        await remove_containers([name])
        await _start(words, name, fill)


async def _start(words: Sequence[str], name: str, fill: Fill | None) -> None:
    if fill is None:
        await run_docker_whole("run", "--detach", *words)
        return
    await run_docker_whole("create", *words)
    await fill(name)
    await run_docker_whole("start", name)


async def remove_containers(names: Sequence[str]) -> None:
    """Remove containers with their volumes, if they exist.

    Raises:
        DockerError: one cannot be removed.
    """
    if not names:
        return
    done = await run_docker("rm", "--force", "--volumes", *names, is_checked=False)
    lines = [line for line in done.err.splitlines() if line.strip()]
    faults = [line for line in lines if "No such container" not in line]
    if done.code != 0 and any("already in progress" not in line for line in faults):
        raise DockerError(f"docker rm {' '.join(names)}: {' '.join(faults)}")


# Processes of a container, as the engine or the kernel reports them; nothing is run inside


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
