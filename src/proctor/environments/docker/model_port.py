"""The way from a container to the job's model gateway: a socket in the container's network.

A thread of this process enters the network namespace of the container and listens there on the
gateway's port, before anything runs inside; `ModelPort` forwards its connections. That works on
every Docker network, `none` included, and needs nothing in the image. It requires root on the
engine's machine.
"""

import os
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from proctor.environments.forwarding import ModelPort
from proctor.environments.sandbox.privileges import is_all_powerful
from proctor.environments.sandbox.routes import bring_loopback_up, listen_for_models
from proctor.errors import DockerError, UnsupportedError
from proctor.sentence import reason_of

HOST = "host"
"""The Docker network whose containers share the network of the engine's machine."""

_ELSEWHERE = ("tcp:", "http:", "https:", "ssh:", "npipe:")
_TO_DO = "pass --no-gateway to let the agent reach models by itself, or use -e sandbox"


@dataclass(frozen=True, slots=True)
class Container:
    """A container that runs, as the engine describes it."""

    id: str
    pid: int
    """Pid of its first process on the engine's machine."""
    network: str
    """Name of its Docker network."""


def check_can_forward(network: str) -> None:
    """Check, before there is a container, that one on this network can reach the gateway.

    Raises:
        UnsupportedError: it cannot; the message says why, and what to do.
    """
    host = os.environ.get("DOCKER_HOST", "")
    if sys.platform != "linux":
        raise _refusal(f"its engine does not run on this machine's own kernel ({sys.platform})")
    if host.startswith(_ELSEWHERE):
        raise _refusal(f"its engine is on another machine (DOCKER_HOST is {host})")
    if network != HOST and not is_all_powerful():
        raise _refusal("opening a port in its network requires root", "run as root, ")


def open_model_port(container: Container, port: int) -> ModelPort | None:
    """Listen on the gateway's port in the network of a container; None if it is the host's own.

    Raises:
        UnsupportedError: the engine is not on this machine.
        DockerError: the container has ended, or the port cannot be opened.
    """
    if not container.pid:
        raise DockerError(f"container {container.id[:12]} has ended")
    try:
        process = os.open(f"/proc/{container.pid}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise _not_here() from error
    try:
        _check_is_here(container, process)
        if container.network == HOST:
            return None
        # A thread of its own, because it stays in the container's network until it ends.
        with ThreadPoolExecutor(1) as thread:
            listening = thread.submit(_listen_in, process, port).result()
    except OSError as error:
        raise DockerError(
            f"container {container.id[:12]}: port {port} for models cannot be opened in its "
            f"network: {reason_of(error)}"
        ) from error
    finally:
        os.close(process)
    with listening:
        return ModelPort(port, listening.fileno())


def _check_is_here(container: Container, process: int) -> None:
    """Check that a process of this machine is the container's: the pid alone may be another's."""
    # Files that the engine mounts in /etc have its id in their paths. Only root may read this.
    for name in ("cgroup", "mountinfo"):
        try:
            fd = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=process)
            with os.fdopen(fd, encoding="utf-8", errors="replace") as file:
                if container.id and container.id in file.read():
                    return
        except OSError:
            continue
    raise _not_here()


def _listen_in(process: int, port: int) -> socket.socket:
    namespace = os.open("ns/net", os.O_RDONLY | os.O_CLOEXEC, dir_fd=process)
    try:
        os.setns(namespace, os.CLONE_NEWNET)
    finally:
        os.close(namespace)
    bring_loopback_up()
    return listen_for_models(port)


def _not_here() -> UnsupportedError:
    return _refusal("its engine runs on another machine, in a virtual machine or in a container")


def _refusal(reason: str, first: str = "") -> UnsupportedError:
    return UnsupportedError(
        f"a Docker container cannot reach the job's model gateway: {reason}; {first}{_TO_DO}"
    )
