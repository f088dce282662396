"""Helpers for working inside an environment."""

import asyncio
import shlex
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePath

from proctor.errors import HealthcheckError
from proctor.task.environment import Healthcheck
from proctor.trial.environment import Environment, ExecResult, ScriptExecuting

_ARCHIVE_SEC = 120


@contextmanager
def acting_as(environment: Environment, user: str | int | None) -> Iterator[None]:
    """Change the default user of commands inside the context; None for the environment's own."""
    previous = environment.default_user
    environment.default_user = user
    try:
        yield
    finally:
        environment.default_user = previous


async def empty_directories(
    environment: Environment, directories: Sequence[PurePath | str], *, open_to_all: bool
) -> ExecResult:
    """Create or empty directories in place, without replacing them: one may be a mount."""
    commands = []
    for directory in directories:
        name = shlex.quote(str(directory))
        commands += [
            f"if [ -L {name} ] || {{ [ -e {name} ] && [ ! -d {name} ]; }}; then rm -rf {name}; fi",
            f"mkdir -p {name}",
            f"find {name} -mindepth 1 -maxdepth 1 -exec rm -rf -- {{}} +",
        ]
        commands += [f"chmod 777 {name}"] if open_to_all else []
    return await environment.exec(command=" && ".join(commands), user="root")


async def download_without(
    environment: Environment, source: str, target: Path | str, exclude: Sequence[str]
) -> None:
    """Fetch a directory without files that match tar's --exclude, by copying it inside first.

    The intermediate archive is unpacked inside, not on the host: the agent may have replaced the
    tool that makes it, and unpacking a hostile archive on the host would be dangerous.

    Raises:
        RuntimeError: it could not be packed; harbor's message.
    """
    # An unguessable name, so that no process of the agent can prepare the directory.
    place = f"/tmp/.hb-transfer-{uuid.uuid4()}"  # noqa: S108 - inside the environment
    excluded = " ".join(f"--exclude={shlex.quote(pattern)}" for pattern in exclude)
    command = (
        f"mkdir -p -m 700 {place}/copy && "
        f"tar cf {place}/archive.tar {excluded} -C {shlex.quote(source)} . && "
        f"tar xf {place}/archive.tar -C {place}/copy"
    )
    try:
        made = await environment.exec(command=command, timeout_sec=_ARCHIVE_SEC, user="root")
        if made.return_code != 0:
            output = made.stderr or made.stdout or "no output"
            raise RuntimeError(
                f"Failed to create transfer archive for {source!r} with code "
                f"{made.return_code}: {output}"
            )
        await environment.download_dir(source_dir=f"{place}/copy", target_dir=target)
    finally:
        removing = f"rm -rf {place}"
        await environment.exec(command=removing, timeout_sec=_ARCHIVE_SEC, user="root")


async def exec_script(
    environment: Environment,
    command: str,
    script: str,
    env: Mapping[str, str] | None,
    timeout_sec: int | None = None,
) -> ExecResult:
    """Make a script executable for everyone, then run a command that uses it.

    If that fails, running the script reports it.
    """
    if isinstance(environment, ScriptExecuting):
        return await environment.exec_script(command, script, env, timeout_sec)
    await environment.exec(command=f"chmod +x {shlex.quote(script)}", user="root")
    return await environment.exec(command=command, env=env, timeout_sec=timeout_sec)


def is_mounted(environment: Environment) -> bool:
    """Whether /logs/* are the trial's own directories, so nothing needs to be downloaded."""
    return environment.capabilities.mounted


def kind_of(environment: Environment) -> str:
    """The environment's own name for its kind, for messages."""
    kind = getattr(environment, "type", None)
    return str(kind()) if callable(kind) else type(environment).__name__


async def run_healthcheck(environment: Environment, check: Healthcheck) -> None:
    """Repeat a command until it succeeds; failures within the start period do not count.

    Raises:
        HealthcheckError: it failed too often in a row.
        RuntimeError: a single try timed out.
    """
    grace_ends = time.monotonic() + check.start_period_sec
    failures = 0
    while True:
        is_starting = time.monotonic() < grace_ends
        tried = await environment.exec(command=check.command, timeout_sec=int(check.timeout_sec))
        if tried.return_code == 0:
            return
        if is_starting:
            await asyncio.sleep(check.start_interval_sec)
            continue
        failures += 1
        if failures >= check.retries:
            raise HealthcheckError(
                f"Healthcheck failed after {check.retries} consecutive retries: {check.command}"
            )
        await asyncio.sleep(check.interval_sec)
