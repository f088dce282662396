"""Attributes and methods of harbor's environments beyond our protocol, for harbor's agents.

proctor itself uses none of them. Environments by import path define their own.
"""

import contextlib
import logging
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePath
from typing import Protocol
from uuid import uuid4

from proctor.task.environment import EnvironmentConfig as TaskEnvironment
from proctor.task.environment import Healthcheck
from proctor.task.network import NetworkPolicy
from proctor.trial.environment import Environment, EnvironmentOrder, ExecResult
from proctor.trial.inside import run_healthcheck

_TRANSFER_SECONDS = 120


class HarborInterface(Environment, Protocol):
    """The rest of harbor's environment interface, implemented with `exec` and `download_dir`."""

    default_user: str | int | None
    """User of commands that name none."""
    _order: EnvironmentOrder
    """Options that the environment was made from."""

    @property
    def environment_dir(self) -> Path:
        """Directory that the environment is built from."""
        return self._order.environment_dir

    @property
    def environment_name(self) -> str:
        """Short name of the task."""
        return self._order.environment_name

    @property
    def task_env_config(self) -> TaskEnvironment:
        """The task's [environment] table."""
        return self._order.task_env_config

    @property
    def network_policy(self) -> NetworkPolicy:
        """Network policy in effect."""
        return self._order.network

    @property
    def logger(self) -> logging.Logger:
        """Logger of the trial."""
        return self._order.logger

    @contextlib.contextmanager
    def with_default_user(self, user: str | int | None) -> Iterator[None]:
        """Change the default user within a `with` block."""
        before = self.default_user
        self.default_user = user
        try:
            yield
        finally:
            self.default_user = before

    async def ensure_dirs(
        self, dirs: Sequence[PurePath | str], *, chmod: bool = True
    ) -> ExecResult | None:
        """Create directories, writable by everyone if `chmod`."""
        if not dirs:
            return None
        command = f"mkdir -p {_words(dirs)}"
        if not chmod:
            return await self.exec(command)
        return await self.exec(f"{command} && chmod 777 {_words(dirs)}", user="root")

    async def empty_dirs(
        self, dirs: Sequence[PurePath | str], *, chmod: bool = True
    ) -> ExecResult | None:
        """Create directories, or empty existing ones without removing them."""
        if not dirs:
            return None
        return await self.exec(
            " && ".join(_empty_command(path, chmod=chmod) for path in dirs), user="root"
        )

    async def reset_dirs(
        self,
        *,
        remove_dirs: Sequence[PurePath | str],
        create_dirs: Sequence[PurePath | str],
        chmod_dirs: Sequence[PurePath | str] | None = None,
    ) -> ExecResult:
        """Remove some directories and create others."""
        steps = (("rm -rf", remove_dirs), ("mkdir -p", create_dirs), ("chmod 777", chmod_dirs))
        commands = [f"{step} {_words(dirs)}" for step, dirs in steps if dirs]
        return await self.exec(" && ".join(commands), user="root")

    async def download_dir_with_exclusions(
        self, *, source_dir: str, target_dir: Path | str, exclude: Sequence[str]
    ) -> None:
        """Copy the contents of a directory out, without files that match tar's --exclude patterns.

        Raises:
            RuntimeError: they could not be packed.
        """
        # The archive is unpacked inside too: on the host, a hostile one could write anywhere.
        place = f"/tmp/transfer-{uuid4().hex}"  # noqa: S108 - of the environment
        without = " ".join(f"--exclude={shlex.quote(pattern)}" for pattern in exclude)
        packing = (
            f"mkdir -p -m 700 {place}/copy && "
            f"tar cf {place}/archive.tar {without} -C {shlex.quote(source_dir)} . && "
            f"tar xf {place}/archive.tar -C {place}/copy"
        )
        try:
            done = await self.exec(packing, timeout_sec=_TRANSFER_SECONDS, user="root")
            if done.return_code != 0:
                said = done.stdout or "no output"
                raise RuntimeError(f"{source_dir}: could not be packed: {said}")
            await self.download_dir(f"{place}/copy", target_dir)
        finally:
            await self.exec(f"rm -rf {place}", timeout_sec=_TRANSFER_SECONDS, user="root")

    async def prepare_logs_for_host(self) -> None:
        """Do nothing: downloaded files already belong to the user who runs proctor."""
        self.logger.debug("logs need no preparation")

    async def run_healthcheck(self, healthcheck: Healthcheck | None = None) -> None:
        """Wait until the environment is healthy, by this check or else by the task's.

        Raises:
            HealthcheckError: the check failed too often in a row.
        """
        if check := healthcheck or self.task_env_config.healthcheck:
            await run_healthcheck(self, check)


def _words(paths: Sequence[PurePath | str]) -> str:
    return " ".join(shlex.quote(str(path)) for path in paths)


def _empty_command(path: PurePath | str, *, chmod: bool) -> str:
    at = shlex.quote(str(path))
    commands = [
        # Replace a symlink or a file with a directory; the target of the symlink is kept.
        f"if [ -L {at} ] || {{ [ -e {at} ] && [ ! -d {at} ]; }}; then rm -f {at}; fi",
        f"mkdir -p {at}",
        f"find {at} -mindepth 1 -delete",
        *([f"chmod 777 {at}"] if chmod else []),
    ]
    return " && ".join(commands)
