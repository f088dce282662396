"""How containers are started and removed, and the labels by which they are found again.

Who is in one has no more rights than root has in the sandbox; a verifier's room has one capability
more, which nothing of the agent ever has. Nothing here runs a command in a container.
"""

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from proctor.digest import sha256_hex
from proctor.environments.docker.program import run_docker, run_docker_whole
from proctor.environments.sandbox.limits import Limits
from proctor.environments.sandbox.runs import this_run
from proctor.environments.sandbox.scratch import find_attempt, fit_name
from proctor.errors import DockerError

RUN = "proctor.run"
"""Label: which process started it; see RunId."""
OWNER = "proctor.owner"
"""Label: on which machine, and for which user."""
TRIAL = "proctor.trial"
"""Label: the directory of its trial; a room has none."""
ATTEMPT = "proctor.attempt"
"""Label: device and inode of the trial's config.json."""

_CAPABILITIES = (
    *("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID"),
    *("NET_BIND_SERVICE", "SETFCAP"),
)
ROOM_CAPABILITY = "WAKE_ALARM"
"""What a room has beyond that: harmless, and enough for the kernel to keep others out of it."""

_INIT = "docker-init"

_CLIENTS_OWN = frozenset(
    {"PATH", "HOME", "TMPDIR", "USER", "HOSTNAME", "SSH_AUTH_SOCK", "XDG_CONFIG_HOME", "LANG"}
)
"""Variables by which the docker program itself goes."""
_CLIENTS_PREFIXES = ("DOCKER_", "BUILDKIT", "LD_", "GO", "SSL_", "XDG_", "OTEL_")


@dataclass(frozen=True, slots=True)
class Variables:
    """Variables for a container, as words and as variables of the docker program.

    What others on this machine can see in a list of processes holds no values, but for names that
    the docker program would itself go by.
    """

    words: tuple[str, ...]
    env: Mapping[str, str]


def pass_on(variables: Mapping[str, str]) -> Variables:
    """How variables are handed to a container."""
    words: list[str] = []
    env: dict[str, str] = {}
    for name, value in variables.items():
        if _is_clients_own(name):
            words += ["--env", f"{name}={value}"]
        else:
            words += ["--env", name]
            env[name] = value
    return Variables(tuple(words), env)


def _is_clients_own(name: str) -> bool:
    return (
        name in _CLIENTS_OWN
        or name.startswith(_CLIENTS_PREFIXES)
        or name.lower().endswith("_proxy")
    )


def name_container(session: str) -> str:
    """A new name for a container: the trial's, and what makes it the only one."""
    return f"proctor-{fit_name(session)[:60]}-{os.urandom(6).hex()}"


def words_of_limits(limits: Limits) -> list[str]:
    """Limits as options of `docker run`."""
    words = ["--pids-limit", str(limits.pids)]
    if limits.cpus is not None:
        words += ["--cpus", str(limits.cpus)]
    if limits.memory_mb is not None:
        words += ["--memory", f"{limits.memory_mb}m", "--memory-swap", f"{limits.memory_mb}m"]
    return words


def words_of_rights(*further: str) -> list[str]:
    """What root may do in a container, as options; `further` capabilities besides."""
    words = ["--security-opt", "no-new-privileges", "--cap-drop", "ALL"]
    for capability in (*_CAPABILITIES, *further):
        words += ["--cap-add", capability]
    return words


def words_of_labels(trial: Path | None = None) -> list[str]:
    """By what a container of this run is found again, as options."""
    labels = {RUN: str(this_run()), OWNER: owner()}
    if trial is not None:
        labels[TRIAL] = str(trial.absolute())
        if attempt := find_attempt(trial):
            labels[ATTEMPT] = f"{attempt[0]}:{attempt[1]}"
    return [word for name, value in labels.items() for word in ("--label", f"{name}={value}")]


@cache
def owner() -> str:
    """This user on this machine: an engine may serve several of both."""
    machine = next(filter(None, map(_read, ("/etc/machine-id", "/proc/sys/kernel/hostname"))), "")
    return f"{sha256_hex(machine.encode())[:16]}-{os.geteuid()}"


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


type Fill = Callable[[str], Awaitable[None]]
"""Puts files into a container, by its name, that was made and not yet started."""


async def start_container(words: Sequence[str], name: str, fill: Fill | None = None) -> None:
    """Start a container, with a first process that buries others' dead where the engine has one.

    Raises:
        DockerError: it cannot be started.
        Exception: it cannot be filled.
    """
    try:
        await _start(["--init", *words], name, fill)
    except DockerError as error:
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
    """End containers and remove them with their volumes; fine where one is not there.

    Raises:
        DockerError: one does not go away.
    """
    if not names:
        return
    done = await run_docker("rm", "--force", "--volumes", *names, is_checked=False)
    lines = [line for line in done.err.splitlines() if line.strip()]
    faults = [line for line in lines if "No such container" not in line]
    if done.code != 0 and any("already in progress" not in line for line in faults):
        raise DockerError(f"docker rm {' '.join(names)}: {' '.join(faults)}")
