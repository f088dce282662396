"""Finds the Docker engine, once per process, before anything is created."""

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
    """Whether ids inside differ from those outside: rootless, or with user namespaces."""


# Engines that were found, by the variables that select one.
_KNOWN: dict[str, Engine] = {}


async def find_engine() -> Engine:
    """Return the engine that the docker program uses, cached."""
    key = name_choice()
    if key not in _KNOWN:
        _KNOWN[key] = await _ask()
    return _KNOWN[key]


def name_choice() -> str:
    """Return the variables that select the engine, as a key."""
    return "\n".join(
        os.environ.get(name, "") for name in ("DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CONFIG")
    )


def lock_of(name: str) -> Path:
    """Return a file to lock while something of this name is made in the engine."""
    directory = make_private(cache_directory() / "docker")
    return directory / f"{sha256_hex(f'{name_choice()}\n{name}'.encode())[:24]}.lock"


async def _ask() -> Engine:
    # First and alone, because it gives the best error if there is no engine.
    server = await _load("version", "{{json .Server}}")
    if not isinstance(server, dict):
        raise EngineError("the Docker engine does not report its version; see docker version")
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


async def _load(command: str, template: str) -> object:
    done = await run_docker(command, "--format", template, patience_sec=_PATIENCE_SEC)
    return json.loads(done.out or "null")
