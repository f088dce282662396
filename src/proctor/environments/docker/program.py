"""Calls the docker command line, and explains its errors."""

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from proctor.digest import sha256_hex
from proctor.environments.sandbox.link import settled
from proctor.environments.sandbox.locks import make_private
from proctor.environments.sandbox.scratch import cache_directory
from proctor.environments.sandbox.syscalls import PR_SET_PDEATHSIG, prctl
from proctor.errors import ContainerDiedError, DockerError, EngineError

PATIENCE_SEC = 120.0
"""Default timeout: an engine that takes longer for a small request is not responding."""

# How different versions of Docker report an engine that cannot be reached.
_GONE = (
    *("cannot connect to the docker daemon", "error during connect", "unexpected eof"),
    *("connection refused", "connection reset", "is the docker daemon running", "broken pipe"),
    *("dial unix", "failed to connect to the docker api", "transport is closing"),
    *("error reading from server", "server closed the stream"),
)
_DEAD = re.compile(r"container \S+ is not running")
_NO_SPACE = "no space left on device"
# Characters of a message that are shown, from its end, which has the cause.
_SHOWN = 600


@dataclass(frozen=True, slots=True)
class Done:
    """Result of a call."""

    code: int
    out: str
    err: str


def find_docker() -> str:
    """Return the path of the docker program.

    Raises:
        EngineError: there is none on PATH.
    """
    found = _which("docker", os.environ.get("PATH", ""))
    if found is None:
        raise EngineError(
            "there is no docker program on PATH; install Docker, or use the sandbox: -e sandbox"
        )
    return found


@lru_cache(maxsize=16)
def _which(name: str, path: str) -> str | None:
    return shutil.which(name, path=path)


def _ending_with_us(words: Sequence[str]) -> tuple[list[str], Callable[[], None] | None]:
    """Return a command that is killed with this process, and its preexec function, if any."""
    # With setpriv no preexec function is needed, so Python can use vfork, which is much faster.
    call = [find_docker(), *words]
    setpriv = _which("setpriv", os.environ.get("PATH", ""))
    if setpriv is not None:
        return [setpriv, "--pdeathsig", "KILL", "--", *call], None
    return call, _end_with_parent


def _end_with_parent() -> None:
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


async def start_docker(
    words: Sequence[str],
    *,
    stdin: int | None = asyncio.subprocess.DEVNULL,
    stdout: int | None = asyncio.subprocess.PIPE,
    stderr: int | None = asyncio.subprocess.PIPE,
    env: Mapping[str, str] | None = None,
    is_foreground: bool = False,
) -> asyncio.subprocess.Process:
    """Start a call; `env` is added to the variables of this process.

    With `is_foreground` it uses the terminal of this process.

    Raises:
        EngineError: there is no docker program.
        DockerError: it cannot be started, for example because the arguments are too long.
    """
    call, before = _ending_with_us(words)
    try:
        return await asyncio.create_subprocess_exec(
            *call,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            env={**os.environ, **env} if env else None,
            # Ctrl-C is for this process, which ends its calls itself.
            start_new_session=not is_foreground,
            preexec_fn=before,
        )
    except (OSError, ValueError) as error:
        raise DockerError(f"docker {words[0]} cannot be started: {error}") from error


async def run_docker(
    *words: str,
    data: bytes | None = None,
    patience_sec: float | None = PATIENCE_SEC,
    env: Mapping[str, str] | None = None,
    is_checked: bool = True,
) -> Done:
    """Call docker and wait for its end; cancellation kills the call.

    Raises:
        EngineError: no program, no engine, no access to it, or no answer in time.
        DockerError: it failed, and `is_checked`.
    """
    stdin = asyncio.subprocess.DEVNULL if data is None else asyncio.subprocess.PIPE
    process = await start_docker(words, stdin=stdin, env=env)
    try:
        out, err = await asyncio.wait_for(process.communicate(data), patience_sec)
    except TimeoutError as error:
        raise EngineError(
            f"docker {words[0]} had no answer within {patience_sec:g} seconds; check the Docker "
            "engine: docker info"
        ) from error
    finally:
        await end_call(process)
    return _judge(words, process.returncode or 0, (out, err), is_checked=is_checked)


async def end_call(process: asyncio.subprocess.Process) -> None:
    """Kill and reap a call that still runs; what it started in the engine may go on."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            process.kill()
        await settled(asyncio.ensure_future(process.wait()))


async def run_docker_whole(*words: str, is_checked: bool = True) -> Done:
    """Call docker and wait for its end even if cancelled, so that nothing is left half done.

    Raises:
        DockerError: see run_docker.
    """
    call = asyncio.ensure_future(run_docker(*words, is_checked=is_checked))
    try:
        return await asyncio.shield(call)
    except asyncio.CancelledError:
        await asyncio.wait([call])
        raise


def call_docker(*words: str, patience_sec: float = PATIENCE_SEC, is_checked: bool = True) -> Done:
    """Call docker from a thread without an event loop.

    Raises:
        DockerError: see run_docker.
    """
    try:
        done = subprocess.run(
            [find_docker(), *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            start_new_session=True,
            check=False,
            timeout=patience_sec,
        )
    except subprocess.TimeoutExpired as error:
        raise EngineError(
            f"docker {words[0]} had no answer within {patience_sec:g} seconds"
        ) from error
    except (OSError, ValueError) as error:
        raise DockerError(f"docker {words[0]} cannot be started: {error}") from error
    return _judge(words, done.returncode, (done.stdout, done.stderr), is_checked=is_checked)


def _judge(words: Sequence[str], code: int, said: tuple[bytes, bytes], *, is_checked: bool) -> Done:
    out, err = (each.decode(errors="replace") for each in said)
    if code != 0:
        error = explain(words[0], err)
        if is_checked or isinstance(error, EngineError):
            raise error
    return Done(code, out, err)


def explain(command: str, said: str) -> DockerError:
    """Return the exception for an error message of the command line."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    kept = [line for line in lines if not line.startswith(("Run 'docker", "See 'docker"))]
    text = " ".join(kept).removeprefix("docker: ").removeprefix("Error response from daemon: ")
    text = text.removesuffix(" Is the docker daemon running?")
    text = text.removesuffix(".") if len(text) <= _SHOWN else f"…{text[-_SHOWN:]}"
    low = said.lower()
    if "permission denied" in low and ("socket" in low or "dial unix" in low):
        return EngineError(
            f"no permission to talk to the Docker engine: {text}; add this user to the group "
            "docker and log in again, or use the sandbox: -e sandbox"
        )
    if any(words in low for words in _GONE):
        return EngineError(
            f"the Docker engine does not answer: {text}; start it, or set DOCKER_HOST to another "
            "one"
        )
    if _NO_SPACE in low:
        return DockerError(
            f"docker {command}: there is no space left where Docker keeps images and containers: "
            f"{text}; see `docker system df`"
        )
    kind = ContainerDiedError if _DEAD.search(low) else DockerError
    return kind(f"docker {command}: {text or 'failed without a message'}")


# Finds the Docker engine, once per process, before anything is created


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
        # First and alone, because it gives the best error if there is no engine.
        server = await _load("version", "{{json .Server}}")
        if not isinstance(server, dict):
            raise EngineError("the Docker engine does not report its version; see docker version")
        if server.get("Os") != "linux":
            raise EngineError(
                f"the Docker engine runs {server.get('Os')} containers; expected linux"
            )
        listed, options = await asyncio.gather(
            run_docker("network", "ls", "--format", "{{.Name}}", patience_sec=_PATIENCE_SEC),
            _load("info", "{{json .SecurityOptions}}"),
        )
        _KNOWN[key] = Engine(
            version=str(server.get("Version", "unknown")),
            kernel=str(server.get("KernelVersion", "unknown")),
            networks=frozenset(listed.out.split()),
            is_mapped=any(name in str(options) for name in ("name=rootless", "name=userns")),
        )
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


async def _load(command: str, template: str) -> object:
    done = await run_docker(command, "--format", template, patience_sec=_PATIENCE_SEC)
    return json.loads(done.out or "null")
