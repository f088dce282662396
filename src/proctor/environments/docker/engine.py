"""What the Docker engine is: asked once a process, before anything is created. Starts nothing."""

import asyncio
import json
import os
from dataclasses import dataclass
from pathlib import Path

from proctor.digest import sha256_hex
from proctor.environments.docker.program import run_docker
from proctor.environments.sandbox.locks import make_private
from proctor.environments.sandbox.scratch import cache_directory
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
    is_mapped: bool
    """Users inside are others outside: rootless, or with user namespaces."""


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


def lock_of(name: str) -> Path:
    """A file for whoever makes something of this name in the engine to be alone with it.

    Raises:
        ImageError, SandboxError: there is no place for it.
    """
    directory = make_private(cache_directory() / "docker")
    return directory / f"{sha256_hex(f'{name_choice()}\n{name}'.encode())[:24]}.lock"


async def _ask() -> Engine:
    # Alone first: it is what says best that there is no engine.
    server = await _load("version", "{{json .Server}}")
    if not isinstance(server, dict):
        raise EngineError("the Docker engine does not say which it is; see docker version")
    if server.get("Os") != "linux":
        raise EngineError(f"the Docker engine runs {server.get('Os')} containers; expected linux")
    listed, options = await asyncio.gather(
        run_docker("network", "ls", "--format", "{{.Name}}", patience_sec=_PATIENCE_SEC),
        _load("info", "{{json .SecurityOptions}}"),
    )
    return Engine(
        version=str(server.get("Version", "unknown")),
        kernel=str(server.get("KernelVersion", "unknown")),
        networks=frozenset(listed.out.split()),
        is_mapped=any(name in str(options) for name in ("name=rootless", "name=userns")),
    )


async def _load(deed: str, wanted: str) -> object:
    told = await run_docker(deed, "--format", wanted, patience_sec=_PATIENCE_SEC)
    return json.loads(told.out or "null")
