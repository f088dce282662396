"""The verifier's room: a second container with the first one's files, processes and network.

    here      the first one's root lies on this machine: fresh directories are ours, and a test
              script is the room's only program
    there     it lies with an engine that is reached by its command line alone: fresh directories
              are volumes of the room's
    no room   the engine does not say where it lies: what is to be fresh is emptied instead, which
              is a finding

Who is in a room holds a capability that nothing of the agent ever has: the kernel lets nobody look
into, or trace, a process that holds more than himself. Other users than root hold none: their
rooms have processes of their own.
"""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from proctor.environments.docker.command import Call, Order, run_command, words_of
from proctor.environments.docker.containers import (
    ROOM_CAPABILITY,
    name_container,
    pass_on,
    remove_containers,
    words_of_labels,
    words_of_limits,
    words_of_rights,
)
from proctor.environments.docker.copies import CopiedFiles
from proctor.environments.docker.files import Files
from proctor.environments.docker.inside import Inside, Running
from proctor.environments.docker.merged import MergedFiles
from proctor.environments.docker.program import explain, run_docker, run_docker_whole
from proctor.environments.docker.room_files import RoomFiles
from proctor.environments.docker.top_level import (
    TopLevel,
    find_apart,
    list_here,
    list_there,
    prepare_room_image,
    words_of_bind,
    words_of_binds,
)
from proctor.environments.sandbox.limits import Limits
from proctor.environments.sandbox.link import settled
from proctor.environments.sandbox.output import Finished
from proctor.environments.sandbox.users import UnknownUserError, User, find_user
from proctor.environments.sandbox.watch import watched
from proctor.errors import DockerError
from proctor.trial.environment import ExecResult, OpenedFile

SLEEP = ("sleep", "infinity")
"""What the first process of a container does."""
_PATIENCE_SEC = 10.0
_NOT_STARTED = (125, 126, 127, 128)
_TRIES = 3
"""How often a container is asked to stand still before it is made to."""


@dataclass(frozen=True, slots=True)
class Outside:
    """The container that a room is of."""

    running: Running
    merged: str
    """Where its root lies, for the engine."""
    limits: Limits
    fresh: tuple[str, ...]
    """Directories that are new in the room."""
    scratch: Path | None
    """Below it they lie, where the engine is on this machine."""


class Room(Inside):
    """A verifier's room; its container is started when the first command comes."""

    _phase = "verify"

    def __init__(self, of: Inside, outside: Outside, names: list[str]) -> None:
        """`names` is told of every container that is started."""
        super().__init__(of._order)  # noqa: SLF001 - its own kind
        self.default_user = of.default_user
        self._outside = outside
        self._names = names
        self._is_up = False
        now, name = outside.running, name_container(f"{self.session_id}-room")
        files: Files = CopiedFiles(name)
        if isinstance(now.files, MergedFiles) and outside.scratch is not None:
            fresh = MergedFiles(str(outside.scratch))
            files = RoomFiles(now.files, fresh, outside.fresh)
        self._running = replace(now, container=name, files=files)

    async def start(self, force_build: bool) -> None:  # noqa: FBT001 - harbor's signature
        """Nothing to do: it starts by itself."""

    async def stop(self, delete: bool) -> None:  # noqa: FBT001 - harbor's signature
        """Nothing to do: it ends with the container that it is of."""

    async def open(self) -> None:
        """Make its fresh directories, or bring it up where only that makes them.

        Raises:
            DockerError: that cannot be done.
        """
        if self._outside.scratch is not None:
            for path in self._outside.fresh:
                place = Path(f"{self._outside.scratch}{path}")
                place.mkdir(parents=True)
                place.chmod(0o777)  # whoever the verifier is, it writes there
            return
        await self._bring_up()
        places = " ".join(self._outside.fresh)
        await self.exec(f"chmod 777 {places}", user="root")

    def watch_files(
        self, scripts: Sequence[str] = ()
    ) -> AbstractContextManager[Sequence[OpenedFile] | None]:
        """Which programs open its files; see Watching. Nobody can say where they lie elsewhere."""
        outside = self._outside
        places = {f"{outside.scratch}{path}": path for path in outside.fresh if outside.scratch}
        return watched(places, scripts=scripts)

    async def exec_script(
        self,
        command: str,
        script: str,
        env: Mapping[str, str] | None = None,
        timeout_sec: int | None = None,
    ) -> ExecResult:
        """Run a script that everybody may execute; in a room that is here, as all that it does."""
        if self._is_up or self._outside.scratch is None:
            return await super().exec_script(command, script, env, timeout_sec)
        user = self._resolve_user(None)
        await self._mark(script, user)
        order = self._make_order(command, None, env, user)
        return await self._carry_out(order, timeout_sec, self._run_alone)

    async def _run(self, order: Order, timeout_sec: int | None) -> Finished:
        if not self._is_up:
            await self._bring_up()
        user = await self._find_user(order.user)
        env = {"HOME": user.home, **self._now().image.env, **order.env}
        numbered = replace(order, env=env, user=f"{user.uid}:{user.gid}")
        return await run_command(numbered, timeout_sec)

    async def _run_alone(self, order: Order, timeout_sec: int | None) -> Finished:
        """Run a command as the only program of a container of its own.

        Raises:
            TimeoutError: it took too long; it is dead.
        """
        name = name_container(f"{self.session_id}-room")
        self._names.append(name)
        call: Call | None = None
        try:
            async with self._paused():
                call = await self._begin_alone(order, name)
            async with asyncio.timeout(timeout_sec):
                code = await call.wait()
            if code in _NOT_STARTED:
                # Without a room there is nothing that could be verified.
                call.check_begun()
            return call.finish(code)
        except (TimeoutError, asyncio.CancelledError):
            ending = asyncio.ensure_future(_abandon(call, name))
            await settled(ending)
            raise
        finally:
            if call is not None:
                await call.close()

    async def _begin_alone(self, order: Order, name: str) -> Call:
        user = await self._find_user(order.user)
        variables = pass_on({"HOME": user.home, **self._now().image.env, **order.env})
        options = [*variables.words, "--workdir", order.workdir]
        words = await self._words(name, user, options)
        call = Call([*words, *words_of(order)], variables.env)
        try:
            await call.begin()
            await call.wait_until_begun()
        except BaseException:
            await settled(asyncio.ensure_future(_abandon(call, name)))
            await call.close()
            raise
        return call

    async def _bring_up(self) -> None:
        """Start a container that waits for commands."""
        user = await self._find_user(self._resolve_user(None))
        name = self._now().container
        self._names.append(name)
        async with self._paused():
            words = await self._words(name, user, ["--detach"])
            await run_docker_whole(*words, *SLEEP)
        self._is_up = True

    async def _words(self, name: str, user: User, options: Sequence[str]) -> list[str]:
        """The words that start a container for this room, up to its image."""
        outside, now = self._outside, self._outside.running
        top = await self._list_top()
        of = f"container:{now.container}"
        words = ["run", "--name", name, "--pull", "never", "--log-driver", "none"]
        words += [*words_of_labels(), *words_of_limits(outside.limits)]
        words += [*words_of_rights(ROOM_CAPABILITY), "--network", of, "--ipc", of]
        words += ["--pid", of] if user.uid == 0 else []
        words += ["--user", f"{user.uid}:{user.gid}"]
        words += [word for group in user.groups for word in ("--group-add", str(group))]
        words += words_of_binds(outside.merged, top, outside.fresh)
        words += ["--volumes-from", now.container] if now.image.has_volumes else []
        for path in outside.fresh:
            if outside.scratch is not None:
                words += words_of_bind(f"{outside.scratch}{path}", path)
            else:
                words += ["--mount", f"type=volume,volume-nocopy,target={path}"]
        return [*words, *options, await prepare_room_image(top, outside.fresh)]

    async def _list_top(self) -> TopLevel:
        """What lies at the top of the paused container."""
        outside, now = self._outside, self._outside.running
        apart = find_apart(outside.fresh)
        if isinstance(now.files, MergedFiles):
            return list_here(outside.merged, apart)
        return await list_there(outside.merged, apart, now.image.id, now.shell)

    async def _find_user(self, name: str) -> User:
        """Who a name is by the container's own files: the room's image knows nobody.

        Raises:
            DockerError: nobody.
        """
        now = self._outside.running
        wanted = name or now.image.user or "0"
        try:
            if isinstance(now.files, MergedFiles):
                return await now.files.find_user(wanted)
            with tempfile.TemporaryDirectory() as etc:
                for file in ("passwd", "group"):
                    with suppress(FileNotFoundError):
                        await now.files.take(f"/etc/{file}", Path(etc, file))
                return find_user(wanted, etc)
        except UnknownUserError as error:
            raise DockerError(str(error)) from error

    @asynccontextmanager
    async def _paused(self) -> AsyncIterator[None]:
        """While the container that the room is of stands still."""
        name = self._outside.running.container
        await pause_container(name, self._outside.limits)
        try:
            yield
        finally:
            await settled(asyncio.ensure_future(run_docker("unpause", name)))


async def pause_container(name: str, limits: Limits) -> None:
    """Have a container stand still, also one whose processes start others without an end.

    Raises:
        DockerError: it does not.
    """
    for _ in range(_TRIES):
        done = await run_docker_whole("pause", name, is_checked=False)
        if done.code == 0:
            return
        if "not running" in done.err:
            raise explain("pause", done.err)
    # While nothing in it can start a process, it holds still long enough.
    await run_docker_whole("update", "--pids-limit", "1", name)
    try:
        await run_docker_whole("pause", name)
    finally:
        await run_docker_whole("update", "--pids-limit", str(limits.pids), name)


async def _abandon(call: Call | None, name: str) -> None:
    """Remove a container that is no longer wanted, also one that is only just being made."""
    if call is not None:
        with suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE_SEC):
                await call.wait_until_begun()
    await remove_containers([name])
