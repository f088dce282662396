"""Commands and files in a running container, the agent's or a verifier's room.

Implements harbor's interface with commands and files. Does not start or stop containers.
"""

import os
import shlex
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from proctor.environments.docker.command import Order, attach, run_command
from proctor.environments.docker.files import Files
from proctor.environments.docker.image import Image
from proctor.environments.running import RunningEnvironment
from proctor.environments.sandbox.output import Finished
from proctor.errors import DockerError
from proctor.trial.environment import EnvironmentOrder, ExecResult, SeenFile
from proctor.trial.finding import Finding

_ROOT = frozenset({"", "0", "root"})


@dataclass(slots=True)
class Running:
    """A running container, and the defaults of its commands."""

    container: str
    """Its name."""
    image: Image
    shell: str
    workdir: str
    env: Mapping[str, str]
    """Variables of every command, in addition to the image's."""
    files: Files
    findings: list[Finding] = field(default_factory=list)
    is_owed: bool = False
    """A download failed, so it is tried again before the container is removed."""


class Inside(RunningEnvironment):
    """Commands and files of a container."""

    def __init__(self, order: EnvironmentOrder) -> None:
        self._take_order(order)
        self._running: Running | None = None

    @staticmethod
    def type() -> str:
        """Return harbor's name of this environment type."""
        return "docker"

    def _now(self) -> Running:
        if self._running is None:
            raise DockerError(f"{self.session_id}: the container does not run: start it first")
        return self._running

    async def attach(self) -> int:
        """Run its shell on the standard input and output of this process; see Attaching."""
        is_terminal = os.isatty(0)
        env = {"TERM": os.environ.get("TERM", "dumb")} if is_terminal else {}
        order = self._make_order("", None, env, self._resolve_user(None))
        return await attach(order, is_terminal=is_terminal)

    async def _exec(
        self,
        command: str,
        cwd: str | None,
        env: Mapping[str, str] | None,
        timeout_sec: int | None,
        user: str | int | None,
        script: str = "",
    ) -> ExecResult:
        chosen = self._resolve_user(user)
        unmarked = await self._mark(script, chosen) if script else ""
        order = self._make_order(command, cwd, env, chosen, unmarked)
        return await self._carry_out(order, timeout_sec, self._run)

    async def _mark(self, script: str, user: str) -> str:
        """Make a script executable; return it if the command has to do that, or else empty."""
        if await self._now().files.mark(script):
            return ""
        if user in _ROOT:
            return script
        # It is no command of the agent's.
        log, self.output_log = self.output_log, None
        try:
            await self.exec(f"chmod +x {shlex.quote(script)}", user="root")
        finally:
            self.output_log = log
        return ""

    def _make_order(
        self,
        command: str,
        cwd: str | None,
        env: Mapping[str, str] | None,
        user: str,
        script: str = "",
    ) -> Order:
        now = self._now()
        return Order(
            container=now.container,
            shell=now.shell,
            text=command,
            workdir=cwd or now.workdir,
            env={**now.env, **(env or {})},
            user=user,
            script=script,
        )

    async def _carry_out(
        self,
        order: Order,
        timeout_sec: int | None,
        run: Callable[[Order, int | None], Awaitable[Finished]],
    ) -> ExecResult:
        try:
            done = await run(order, timeout_sec)
        except TimeoutError as error:
            raise RuntimeError(f"Command timed out after {timeout_sec} seconds") from error
        return self._result_of(order.text, done)

    async def _run(self, order: Order, timeout_sec: int | None) -> Finished:
        with self._heard(order.text) as output:
            done = await run_command(order, timeout_sec, self._hearing(output))
            if output is not None:
                output.end(done.return_code)
        return done

    def _resolve_user(self, user: str | int | None) -> str:
        chosen = next((one for one in (user, self.default_user) if one is not None), "")
        # By number: an image may have no /etc/passwd entry for root.
        return "0" if chosen == "root" else str(chosen)

    def _found(self) -> list[Finding]:
        return self._now().findings

    async def _put(self, source: Path, target: str) -> None:
        await self._now().files.put(source, target)

    async def _fetch(self, source: str, target: Path) -> tuple[str, ...]:
        now = self._now()
        try:
            return await now.files.take(source, target)
        except FileNotFoundError:
            raise
        except OSError:
            # It may succeed when the container is removed, and nothing runs in it any more.
            now.is_owed = True
            raise

    async def list_files(self, places: Sequence[str], limit: int) -> Sequence[SeenFile]:
        """List the files at or below these paths; see Listing."""
        return await self._now().files.list_files(places, limit)

    async def _kind_of(self, path: str) -> str | None:
        return await self._now().files.kind_of(path)
