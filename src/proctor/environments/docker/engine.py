"""What the Docker engine is: asked once a process, before anything is created. Starts nothing."""

import json
import os
from dataclasses import dataclass

from proctor.environments.docker.program import run_docker
from proctor.errors import EngineError

BRIDGE = "bridge"
_PATIENCE_SEC = 30.0


@dataclass(frozen=True, slots=True)
class Engine:
    """An engine that answers."""

    version: str
    kernel: str
    networks: frozenset[str]
    """Names of its networks."""


_KNOWN: dict[str, Engine] = {}
"""Engines that have answered, by what chooses one."""


async def find_engine() -> Engine:
    """The engine that the docker program talks to, asked once.

    Raises:
        EngineError: there is none, or it may not be used; says what to do.
    """
    key = name_choice()
    if key not in _KNOWN:
        _KNOWN[key] = await _ask()
    return _KNOWN[key]


def name_choice() -> str:
    """What decides which engine the docker program talks to, as far as this process changes it."""
    return "\n".join(
        os.environ.get(name, "") for name in ("DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CONFIG")
    )


async def _ask() -> Engine:
    told = await run_docker("version", "--format", "{{json .Server}}", patience_sec=_PATIENCE_SEC)
    server = json.loads(told.out or "null")
    if not isinstance(server, dict):
        raise EngineError("the Docker engine does not say which it is; see docker version")
    if server.get("Os") != "linux":
        raise EngineError(f"the Docker engine runs {server.get('Os')} containers; expected linux")
    listed = await run_docker("network", "ls", "--format", "{{.Name}}", patience_sec=_PATIENCE_SEC)
    return Engine(
        version=str(server.get("Version", "unknown")),
        kernel=str(server.get("KernelVersion", "unknown")),
        networks=frozenset(listed.out.split()),
    )
