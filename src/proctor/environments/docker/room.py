"""The verifier's room: a second container with the first one's files, processes and network.

    here      the first container's root is on this machine: it becomes the room's as one mount
              (whole_root.py), fresh directories are in our scratch, and a test script is the
              room's only program
    there     the engine is reachable only by its command line: fresh directories are volumes
    no room   the engine does not report where the root is: the directories are emptied instead,
              and a finding says so

Processes in a room have a capability that the agent's never have, and the kernel lets no process
inspect or trace another one with more capabilities. Users other than root have no capabilities, so
their rooms get their own pid namespace.
"""

import asyncio
import csv
import io
import os
import posixpath
import stat
import tarfile
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from proctor.digest import sha256_hex
from proctor.environments.docker.command import Call, Order, run_command, words_of_waiting
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
from proctor.environments.docker.merged import MergedFiles, run_apart
from proctor.environments.docker.program import (
    explain,
    lock_of,
    name_choice,
    run_docker,
    run_docker_whole,
)
from proctor.environments.docker.whole_root import (
    PLACE,
    enter_whole_root,
    guard_directories,
    is_same,
)
from proctor.environments.sandbox.limits import Limits
from proctor.environments.sandbox.link import settled
from proctor.environments.sandbox.locks import locked_soon
from proctor.environments.sandbox.output import Finished
from proctor.environments.sandbox.users import UnknownUserError, User, find_user
from proctor.environments.sandbox.watch import watched
from proctor.errors import DockerError
from proctor.sentence import reason_of
from proctor.trial.environment import ExecResult, OpenedFile, SeenFile

# The top level of a container's root, and how a room gets the same
#
# Docker bind-mounts these entries, one by one, on an image that contains only their symlinks, so
# that it sees everything the agent created, changed or deleted at the top. Of a directory that
# contains a fresh one, the entries are bound instead: otherwise removing the directory would also
# remove what is mounted on it, even for other rooms.
#
# The container must be paused meanwhile: an entry that is replaced by a symlink after the listing
# would lead to a path of the host.


# Entries that every container has itself.
_GATE = "/proctor-gate"
_OWN = frozenset({"proc", "sys", "dev", ".dockerenv", PLACE.strip("/"), _GATE.strip("/")})
_END = "end"
_ROOM_IMAGE = "proctor-room"

# Names are untrusted, so each ends with NUL. The last word is the number of entries, because docker
# may lose a part of a container's output.
_LOOK = f"""cd {PLACE} || exit 1
n=0
look() {{
  for each in "$1"* "$1".[!.]* "$1"..?*; do
    if [ -L "$each" ]; then printf 'l%s\\0%s\\0' "$each" "$(readlink "$each")"
    elif [ -d "$each" ] || [ -f "$each" ]; then printf 'b%s\\0' "$each"
    else continue; fi
    n=$((n+1))
  done
}}
look ''
for apart in "$@"; do [ -L "$apart" ] || look "$apart/"; done
printf '{_END}%d\\0' $n"""
_TOP_LEVEL_TRIES = 5

# Images for rooms that are known to exist, each with its engine.
_MADE: set[str] = set()


@dataclass(frozen=True, slots=True)
class TopLevel:
    """The entries at the top of a root."""

    bound: tuple[str, ...]
    """Names of directories and regular files."""
    links: Mapping[str, str]
    """Symlinks and their targets."""


def find_apart(fresh: Sequence[str]) -> tuple[str, ...]:
    """Return the top-level directories that contain a fresh one, and so are bound by entry.

    Raises:
        DockerError: a fresh directory is deeper.
    """
    depths = {path: path.strip("/").split("/") for path in fresh}
    for path, parts in depths.items():
        if len(parts) > 2:
            raise DockerError(f"{path}: a room has fresh directories at most two levels deep")
    return tuple(dict.fromkeys(parts[0] for parts in depths.values() if len(parts) == 2))


def list_here(merged: str, apart: Sequence[str]) -> TopLevel:
    """List the top level of a root on this machine, and the entries of directories there."""
    bound, links = [], {}
    for directory in ("", *apart):
        if Path(merged, directory).is_symlink() or not Path(merged, directory).is_dir():
            continue
        for path in sorted(Path(merged, directory).iterdir()):
            name = str(path.relative_to(merged))
            mode = path.lstat().st_mode
            if stat.S_ISLNK(mode):
                links[name] = os.readlink(path)  # noqa: PTH115 - the text as it is
            elif stat.S_ISDIR(mode) or stat.S_ISREG(mode):
                bound.append(name)
    return TopLevel(tuple(bound), links)


async def list_there(merged: str, apart: Sequence[str], image: str, shell: str) -> TopLevel:
    """List the same with a container of the image, in which nothing of the agent is run.

    Raises:
        DockerError: it could not be started, or its output was lost.
    """
    for _ in range(_TOP_LEVEL_TRIES):
        listed = await run_docker(
            *("run", "--rm", *words_of_labels(), "--pull", "never", "--network", "none"),
            *("--security-opt", "no-new-privileges", "--cap-drop", "ALL", "--user", "0"),
            *("--mount", f"type=bind,source={merged},target={PLACE},readonly"),
            *("--entrypoint", shell, image, "-c", _LOOK, shell, *apart),
        )
        *fields, last, _ = ["", *listed.out.split("\0")]
        bound, links = [], {}
        waiting = iter(fields)
        for field in waiting:
            if field.startswith("l"):
                links[field[1:]] = next(waiting, "")
            elif field.startswith("b"):
                bound.append(field[1:])
        top = TopLevel(tuple(bound), links)
        # A container that ends at once may do so before docker is attached to its output.
        if last == f"{_END}{len(top.bound) + len(top.links)}":
            return top
    raise DockerError(f"{merged}: cannot be listed by a container")


def words_of_binds(merged: str, top: TopLevel, fresh: Sequence[str]) -> Iterator[str]:
    """Yield options that bind all entries, except what is fresh in the room."""
    left_out = _OWN | {path.strip("/") for path in fresh} | set(find_apart(fresh))
    for name in top.bound:
        if name not in left_out:
            yield from words_of_bind(f"{merged}/{name}", f"/{name}")


def words_of_bind(source: str, target: str) -> list[str]:
    """Return an option that binds a path of the engine's machine, with any characters."""
    # docker parses a mount's fields as a line of CSV.
    line = io.StringIO()
    csv.writer(line).writerow(["type=bind", f"source={source}", f"target={target}"])
    return ["--mount", line.getvalue().removesuffix("\r\n")]


async def prepare_room_image(top: TopLevel, fresh: Sequence[str]) -> str:
    """Return the image for rooms with these symlinks, made once per engine."""
    own = _OWN | {path.strip("/") for path in fresh} | set(find_apart(fresh))
    links = {name: to for name, to in top.links.items() if name not in own}
    listed = "\n".join([PLACE, *(f"{name}\0{to}" for name, to in sorted(links.items()))])
    name = f"{_ROOM_IMAGE}:{sha256_hex(listed.encode(errors='surrogateescape'))[:24]}"
    key = f"{name_choice()}\n{name}"
    if key not in _MADE:
        async with locked_soon(lock_of(name)):
            if (await run_docker("image", "inspect", name, is_checked=False)).code != 0:
                await run_docker("import", "-", name, data=_pack(links))
        _MADE.add(key)
    return name


def _pack(links: Mapping[str, str]) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        top = tarfile.TarInfo(PLACE.strip("/"))
        top.type, top.mode = tarfile.DIRTYPE, 0o755
        tar.addfile(top)
        for name, to in links.items():
            member = tarfile.TarInfo(name)
            member.type, member.linkname, member.mode = tarfile.SYMTYPE, to, 0o777
            tar.addfile(member)
    return made.getvalue()


# Files of a room on this machine


class RoomFiles:
    """Files of a room on this machine: its fresh directories, and the container's other files."""

    def __init__(self, outside: MergedFiles, fresh: MergedFiles, places: Sequence[str]) -> None:
        self._outside = outside
        self._fresh = fresh
        self._places = places

    def _of(self, path: str) -> MergedFiles:
        plain = posixpath.normpath(f"/{path}").replace("//", "/")
        is_fresh = any(plain == place or plain.startswith(f"{place}/") for place in self._places)
        return self._fresh if is_fresh else self._outside

    async def put(self, source: Path, target: str) -> None:
        """See Files."""
        await self._of(target).put(source, target)

    async def take(self, source: str, target: Path) -> tuple[str, ...]:
        """See Files."""
        return await self._of(source).take(source, target)

    async def list_files(self, places: Sequence[str], n_files: int) -> Sequence[SeenFile]:
        """See Files."""
        seen: list[SeenFile] = []
        for files in (self._fresh, self._outside):
            mine = [place for place in places if self._of(place) is files]
            if mine and len(seen) < n_files:
                seen += await files.list_files(mine, n_files - len(seen))
        return seen

    async def kind_of(self, path: str) -> str | None:
        """See Files."""
        return await self._of(path).kind_of(path)

    async def open_directories(self, paths: Sequence[str]) -> None:
        """See Files."""
        for path in paths:
            await self._of(path).open_directories([path])

    async def mark(self, script: str) -> bool:
        """See Files."""
        return await self._of(script).mark(script)


SLEEP = ("sleep", "infinity")
"""Command of the first process of a container."""
_PATIENCE_SEC = 10.0
# Exit codes of `docker run` itself.
_NOT_STARTED = (125, 126, 127, 128)
# Attempts to pause a container before its processes are limited.
_TRIES = 3


@dataclass(frozen=True, slots=True)
class Outside:
    """The agent's container, to which a room belongs."""

    running: Running
    first: int
    """Pid of its first process on the engine's machine."""
    merged: str
    """Its root directory on the engine's machine."""
    limits: Limits
    fresh: tuple[str, ...]
    """Directories that are new in the room."""
    scratch: Path | None
    """Parent of these directories, if the engine is on this machine."""


class Room(Inside):
    """A verifier's room; its container is started with the first command."""

    _phase = "verify"

    def __init__(self, of: Inside, outside: Outside, names: list[str]) -> None:
        """Every container that is started is added to `names`."""
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
        """Do nothing: it starts with the first command."""

    async def stop(self, delete: bool) -> None:  # noqa: FBT001 - harbor's signature
        """Do nothing: it ends with the agent's container."""

    async def open(self) -> None:
        """Create its fresh directories, or start it if they are volumes."""
        if self._outside.scratch is not None:
            for path in self._outside.fresh:
                place = Path(f"{self._outside.scratch}{path}")
                place.mkdir(parents=True)
                place.chmod(0o777)  # the verifier may be any user
            os.mkfifo(self._gate)
            Path(self._gate).chmod(0o444)  # only we write there
            return
        await self._bring_up()
        places = " ".join(self._outside.fresh)
        await self.exec(f"chmod 777 {places}", user="root")

    @property
    def _gate(self) -> str:
        """Pipe from which the program of a room on this machine reads when it may begin."""
        return f"{self._outside.scratch}{_GATE}"

    def watch_files(
        self, scripts: Sequence[str] = ()
    ) -> AbstractContextManager[Sequence[OpenedFile] | None]:
        """Record which programs open its files, if they are on this machine; see Watching."""
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
        """Run a script, made executable first; in a room on this machine, as its only program."""
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
        """Run a command as the only program of a new container."""
        name = name_container(f"{self.session_id}-room")
        self._names.append(name)
        call: Call | None = None
        # For reading too: then neither end waits for the other to open it.
        gate = os.open(self._gate, os.O_RDWR | os.O_CLOEXEC)
        try:
            async with self._paused():
                call = await self._begin_alone(order, name)
            os.write(gate, b"\n")
            async with asyncio.timeout(timeout_sec):
                code = await call.wait()
            if code in _NOT_STARTED:
                # If the room itself did not start, the exit code is not the verifier's.
                call.check_begun()
            return call.finish(code)
        except (TimeoutError, asyncio.CancelledError):
            ending = asyncio.ensure_future(_abandon(call, name))
            await settled(ending)
            raise
        finally:
            os.close(gate)
            if call is not None:
                await call.close()

    async def _begin_alone(self, order: Order, name: str) -> Call:
        user = await self._find_user(order.user)
        variables = pass_on({"HOME": user.home, **self._now().image.env, **order.env})
        options = [*variables.words, "--workdir", order.workdir]
        words = await self._words(name, user, options)
        call = Call([*words, *words_of_waiting(order, _GATE)], variables.env)
        try:
            await call.begin()
            if await call.wait_until_begun() is not None:
                await self._make_whole(name)
        except BaseException:
            try:
                await settled(asyncio.ensure_future(_abandon(call, name)))
            finally:
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
            await self._make_whole(name)
        self._is_up = True

    async def _make_whole(self, name: str) -> None:
        """Replace the mounts of a room on this machine by one; the agent's container is paused."""
        outside = self._outside
        if outside.scratch is None:
            return
        looked = await run_docker("inspect", "--format", "{{.State.Pid}}", name)
        agents, rooms = outside.first, int(looked.out)
        is_here = is_same(f"/proc/{agents}/root/", outside.merged)
        if not is_here or not is_same(f"/proc/{rooms}/root{_GATE}", self._gate):
            # The engine numbers processes differently. The room works, but has several mounts.
            return
        try:
            await run_apart(partial(guard_directories, agents, outside.fresh))
            await run_apart(partial(enter_whole_root, rooms, outside.merged, outside.fresh))
        except OSError as error:
            place = error.filename or outside.merged
            raise DockerError(
                f"{name}: the mounts of the verifier's room cannot be replaced: {place}: "
                f"{reason_of(error)}"
            ) from error

    async def _words(self, name: str, user: User, options: Sequence[str]) -> list[str]:
        """Return the arguments that start a container for this room, up to its image."""
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
        if outside.scratch is not None:
            words += words_of_bind(self._gate, _GATE)
        for path in outside.fresh:
            if outside.scratch is not None:
                words += words_of_bind(f"{outside.scratch}{path}", path)
            else:
                words += ["--mount", f"type=volume,volume-nocopy,target={path}"]
        return [*words, *options, await prepare_room_image(top, outside.fresh)]

    async def _list_top(self) -> TopLevel:
        """List the top level of the paused container."""
        outside, now = self._outside, self._outside.running
        apart = find_apart(outside.fresh)
        if isinstance(now.files, MergedFiles):
            return list_here(outside.merged, apart)
        return await list_there(outside.merged, apart, now.image.id, now.shell)

    async def _find_user(self, name: str) -> User:
        """Find a user in the container's files: the room's image has no users."""
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
        """Pause the agent's container within a `with` block."""
        name = self._outside.running.container
        await pause_container(name, self._outside.limits)
        try:
            yield
        finally:
            await settled(asyncio.ensure_future(run_docker("unpause", name)))


async def pause_container(name: str, limits: Limits) -> None:
    """Pause a container, even one that contains a fork bomb.

    Raises:
        DockerError: it cannot be paused.
    """
    for _ in range(_TRIES):
        done = await run_docker_whole("pause", name, is_checked=False)
        if done.code == 0:
            return
        if "not running" in done.err:
            raise explain("pause", done.err)
    # Without new processes, pausing succeeds.
    await run_docker_whole("update", "--pids-limit", "1", name)
    try:
        await run_docker_whole("pause", name)
    finally:
        await run_docker_whole("update", "--pids-limit", str(limits.pids), name)


async def _abandon(call: Call | None, name: str) -> None:
    """Remove a container, even one that is still being started."""
    if call is not None:
        with suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE_SEC):
                await call.wait_until_begun()
    await remove_containers([name])
