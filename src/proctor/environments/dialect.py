"""What harbor's own environments have beyond the protocol, for agents written for harbor.

Names of the task and the order, and deeds that are made of a command. proctor itself uses none of
them, and an environment by import path brings its own.
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
from proctor.trial.environment import Environment, ExecResult
from proctor.trial.healthcheck import run_healthcheck
from proctor.trial.order import EnvironmentOrder

_TRANSFER_SECONDS = 120


class Dialect(Environment, Protocol):
    """The rest of harbor's environment interface, over what every environment can do."""

    default_user: str | int | None
    """Who runs a command that names nobody."""
    _order: EnvironmentOrder
    """What it was made from."""

    @property
    def environment_dir(self) -> Path:
        """What it is built from."""
        return self._order.environment_dir

    @property
    def environment_name(self) -> str:
        """Short name of the task."""
        return self._order.environment_name

    @property
    def task_env_config(self) -> TaskEnvironment:
        """[environment] of the task."""
        return self._order.task_env_config

    @property
    def network_policy(self) -> NetworkPolicy:
        """The baseline in effect."""
        return self._order.network

    @property
    def logger(self) -> logging.Logger:
        """The trial's."""
        return self._order.logger

    @contextlib.contextmanager
    def with_default_user(self, user: str | int | None) -> Iterator[None]:
        """Let another user run what names nobody, for a while."""
        before = self.default_user
        self.default_user = user
        try:
            yield
        finally:
            self.default_user = before

    async def ensure_dirs(
        self, dirs: Sequence[PurePath | str], *, chmod: bool = True
    ) -> ExecResult | None:
        """Make directories, for everybody to write to unless told otherwise."""
        if not dirs:
            return None
        command = f"mkdir -p {_words(dirs)}"
        if not chmod:
            return await self.exec(command)
        return await self.exec(f"{command} && chmod 777 {_words(dirs)}", user="root")

    async def empty_dirs(
        self, dirs: Sequence[PurePath | str], *, chmod: bool = True
    ) -> ExecResult | None:
        """Make directories, and empty those that are there; they themselves stay."""
        if not dirs:
            return None
        return await self.exec(
            " && ".join(_emptying(path, chmod=chmod) for path in dirs), user="root"
        )

    async def reset_dirs(
        self,
        *,
        remove_dirs: Sequence[PurePath | str],
        create_dirs: Sequence[PurePath | str],
        chmod_dirs: Sequence[PurePath | str] | None = None,
    ) -> ExecResult:
        """Remove directories and make others."""
        deeds = (("rm -rf", remove_dirs), ("mkdir -p", create_dirs), ("chmod 777", chmod_dirs))
        commands = [f"{deed} {_words(dirs)}" for deed, dirs in deeds if dirs]
        return await self.exec(" && ".join(commands), user="root")

    async def download_dir_with_exclusions(
        self, *, source_dir: str, target_dir: Path | str, exclude: Sequence[str]
    ) -> None:
        """Copy the contents of a directory out, without what fits a pattern of tar's.

        Raises:
            RuntimeError: they could not be packed.
        """
        # Unpacked where it was packed: on the host, a hostile archive would write where it likes.
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
        """Do nothing but say so: what is fetched belongs to whoever fetches it."""
        self.logger.debug("logs need no preparation")

    async def run_healthcheck(self, healthcheck: Healthcheck | None = None) -> None:
        """Wait until the environment is healthy, by this check or by the task's own.

        Raises:
            HealthcheckError: it failed too often in a row.
        """
        if check := healthcheck or self.task_env_config.healthcheck:
            await run_healthcheck(self, check)


def _words(paths: Sequence[PurePath | str]) -> str:
    return " ".join(shlex.quote(str(path)) for path in paths)


def _emptying(path: PurePath | str, *, chmod: bool) -> str:
    at = shlex.quote(str(path))
    commands = [
        # A link or a file in its place goes; what a link leads to stays.
        f"if [ -L {at} ] || {{ [ -e {at} ] && [ ! -d {at} ]; }}; then rm -f {at}; fi",
        f"mkdir -p {at}",
        f"find {at} -mindepth 1 -delete",
        *([f"chmod 777 {at}"] if chmod else []),
    ]
    return " && ".join(commands)
