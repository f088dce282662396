"""Starts and removes containers, with labels by which the reaper finds them.

Processes in a container have the capabilities of root in the sandbox, and AUDIT_WRITE: sshd and PAM
refuse logins if the kernel's audit refuses their messages, and only the sandbox hides it from them.
Those in a verifier's room have one more, which the agent's processes never have.
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
