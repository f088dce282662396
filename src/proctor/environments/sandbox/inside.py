"""Commands and files in a running sandbox, in the agent's namespace or in a verifier's room.

Implements harbor's interface on a Box. Does not start or stop sandboxes.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from proctor.environments.running import RunningEnvironment
from proctor.environments.sandbox.blueprint import Command
from proctor.environments.sandbox.box import Box
from proctor.environments.sandbox.relay import Relay
from proctor.environments.sandbox.watch import watched
from proctor.errors import SandboxError, UnsupportedError
from proctor.task.environment import Healthcheck
from proctor.trial.environment import EnvironmentOrder, ExecResult, OpenedFile, SeenFile
from proctor.trial.finding import Finding

_ROOT = frozenset({"root", "0"})
# Limit for one download, so that an agent cannot fill the host's disk.
_MOST_BYTES = 8 << 30


@dataclass(slots=True)
class Running:
    """A running sandbox, and the defaults of its commands."""

    box: Box
    shell: str
    workdir: str
    env: Mapping[str, str]
    user: str
    """Default user of commands."""
    only_root: bool
    """There are no users but root: the runner is unprivileged and has no subordinate ids."""
    findings: list[Finding] = field(default_factory=list)
    is_owed: bool = False
    """A download failed, so it is tried again before the sandbox's files are deleted."""
    service: Command | None = None
    """The image's ENTRYPOINT, which runs as long as the sandbox does."""
    healthcheck: Healthcheck | None = None
    """The image's HEALTHCHECK."""


class Inside(RunningEnvironment):
    """Commands and files of a sandbox, in one of its rooms; room 0 is the agent's."""

    def __init__(self, order: EnvironmentOrder, room: int) -> None:
        self._take_order(order)
        self._room = room
        self._running: Running | None = None

    def _now(self) -> Running:
        if self._running is None:
            raise SandboxError(f"{self.session_id}: the sandbox does not run: start it first")
        return self._running

    async def attach(self) -> int:
        """Run its shell on the standard input and output of this process; see Attaching."""
        now = self._now()
        async with Relay() as relay:
            shell = Command(
                argv=(now.shell,),
                cwd=now.workdir,
                env={**now.env, **relay.env},
                user=self._resolve_user(None),
                room=self._room,
            )
            return await now.box.attach(shell, *relay.hand_over())

    async def _exec(
        self,
        command: str,
        cwd: str | None,
        env: Mapping[str, str] | None,
        timeout_sec: int | None,
        user: str | int | None,
        script: str = "",
    ) -> ExecResult:
        now = self._now()
        order = Command(
            argv=(now.shell, "-c", command),
            cwd=cwd or now.workdir,
            env={**now.env, **(env or {})},
            user=self._resolve_user(user),
            room=self._room,
            script=script,
        )
        try:
            with self._heard(command) as output:
                done = await now.box.run(order, timeout_sec, self._hearing(output))
                if output is not None:
                    output.end(done.return_code)
        except TimeoutError as error:
            raise RuntimeError(f"Command timed out after {timeout_sec} seconds") from error
        return self._result_of(command, done)

    def _resolve_user(self, user: str | int | None) -> str:
        now = self._now()
        chosen = next(str(one) for one in (user, self.default_user, now.user) if one is not None)
        check_user(chosen, only_root=now.only_root)
        return chosen

    def _found(self) -> list[Finding]:
        return self._now().findings

    async def _put(self, source: Path, target: str) -> None:
        await self._now().box.put(source, target, room=self._room)

    async def _fetch(self, source: str, target: Path) -> tuple[str, ...]:
        now = self._now()
        try:
            return await now.box.take(source, target, room=self._room, limit=_MOST_BYTES)
        except FileNotFoundError:
            raise
        except (OSError, SandboxError):
            # It may succeed when the sandbox has ended, directly from its layers.
            now.is_owed = True
            raise

    async def list_files(self, places: Sequence[str], limit: int) -> Sequence[SeenFile]:
        """List the files at or below these paths; see Listing."""
        return await self._now().box.list_files(places, limit, room=self._room)

    async def _kind_of(self, path: str) -> str | None:
        return await self._now().box.kind_of(path, room=self._room)


class Room(Inside):
    """A verifier's room. It ends with its sandbox."""

    _phase = "verify"

    def __init__(
        self, of: Inside, running: Running, room: int, directories: Mapping[str, str]
    ) -> None:
        super().__init__(of._order, room)  # noqa: SLF001 - its own kind
        self.default_user = of.default_user
        self._running = running
        # Its own directories: path on the host to path inside.
        self._directories = directories

    def watch_files(
        self, scripts: Sequence[str] = ()
    ) -> AbstractContextManager[Sequence[OpenedFile] | None]:
        """Record which programs open its files; see Watching."""
        return watched(self._directories, self._now().box.pid, scripts)

    async def start(self, force_build: bool) -> None:  # noqa: FBT001 - harbor's signature
        """Do nothing: it already runs."""

    async def stop(self, delete: bool) -> None:  # noqa: FBT001 - harbor's signature
        """Do nothing: it ends with its sandbox."""


def check_user(user: str, *, only_root: bool) -> None:
    """Check that a user can exist in a sandbox.

    Raises:
        UnsupportedError: only root can.
    """
    if only_root and user.partition(":")[0] not in _ROOT:
        raise UnsupportedError(
            f"user {user!r}: without subordinate ids, an unprivileged user's sandbox has no users "
            "but root; add lines for this user to /etc/subuid and /etc/subgid and install "
            "newuidmap (package uidmap), or run as root"
        )
