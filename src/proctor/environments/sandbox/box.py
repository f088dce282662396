"""Sandboxes as the runner sees them: spawn one, run commands in it, move files, kill it.

    zygote = await shared_zygote()
    box = await zygote.spawn(blueprint)
    finished = await box.run(Command(("/bin/true",), "/"))
    await box.kill()

All processes started here end with this process, even if it is killed. The blueprint says what is
in a sandbox and where its files are.
"""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import weakref
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec

from proctor.environments.sandbox.archive import Limits
from proctor.environments.sandbox.blueprint import Blueprint, Command, as_json
from proctor.environments.sandbox.channel import Message, close_all, make_pair
from proctor.environments.sandbox.link import Ends, Link, Questions, Router, settled
from proctor.environments.sandbox.output import Finished, Hearing, Output
from proctor.environments.sandbox.transfer import PATIENCE_SEC, explain_slow, put_files, take_files
from proctor.environments.sandbox.unpack import unpack
from proctor.errors import SandboxDiedError, SandboxError, SlowTransferError
from proctor.trial.environment import Process, SeenFile

MOST_ENTRIES = 100_000
"""Default limit of files and directories in one download."""
MOST_LISTED = 256 << 20
"""Default limit of bytes that are read to compute digests."""

_START = (
    "import sys; sys.path.append(sys.argv[1]);"
    "from proctor.environments.sandbox.zygote import main; main()"
)
_PACKAGES = Path(__file__).resolve().parents[3]
_FOUND = list[tuple[str, str, bool]]
_LISTED = list[tuple[str, int | None, str | None]]
# A process: its pid, and when it started, because pids are used again.
type _Started = tuple[int, int]
_BROKEN = "Broken pipe"


@dataclass(frozen=True, slots=True)
class FoundSource:
    """A file or directory that COPY --from names."""

    path: str
    real: str
    """The path without symlinks."""
    is_directory: bool


@dataclass(frozen=True, slots=True)
class Placing:
    """Where files are unpacked in a sandbox, and what replaces their owners and modes."""

    target: str
    """A directory, created if missing."""
    owner: str | None = None
    """User and group by name or number; None: those of the files."""
    mode: int | None = None
    owns_target: bool = False
    """Whether the target gets the owner too if it is new."""


class Box:
    """One sandbox."""

    def __init__(self, pid: int, handle: int, blueprint: Blueprint, ends: Ends) -> None:
        # Host pid of its PID 1.
        self.pid = pid
        # Open files of its network namespace and, if it has one, its user namespace, for the helper
        # that connects it; empty if none is needed. Closed with the sandbox.
        self.namespaces: tuple[int, ...] = ()
        # Sockets bound, in its network, to the host ports of the blueprint, and then the one that
        # listens on its model port. Closed with the sandbox.
        self.bound: tuple[int, ...] = ()
        self._model_port = blueprint.model_port
        self._n_bound = len(blueprint.host_ports) + bool(blueprint.model_port)
        self._session = blueprint.session
        self._root_id = blueprint.first_id
        self._handle = handle
        # Error that PID 1 sent before it ended.
        self._last_words = ""
        self._ended_by = "its PID 1 ended before it was up"
        self._outputs: set[Output] = set()
        self._loop = asyncio.get_running_loop()
        # Whether a command ran in it or files were put there; its memory is empty until then.
        self.is_touched = False
        # Whether processes may be paused.
        self._is_holding = False
        self._up: asyncio.Future[str | None] = self._loop.create_future()
        self._gone: asyncio.Future[None] = self._loop.create_future()
        self._services: frozenset[_Started] = frozenset()
        self._router = Router(ends.channel, self._hear, self._hang_up)
        self._router.add_line(0, ends.line)

    @property
    def is_alive(self) -> bool:
        """Whether it accepts requests."""
        return self._router.is_open

    async def run(
        self, command: Command, timeout_sec: float | None = None, hearing: Hearing | None = None
    ) -> Finished:
        """Run a command and wait for it, but not for processes it leaves in the background.

        `hearing` receives what it prints, as it comes.

        On timeout or cancellation, the command and its process group are dead before this returns.
        """
        self.is_touched = True
        output = Output(self._root_id, hearing)
        self._outputs.add(output)
        try:
            async with asyncio.timeout(timeout_sec):
                request = {"op": "run", "command": as_json(command)}
                number, answer = await self._router.pose(request, output.write_end)
                message = await self._router.hear_out(number, answer)
        finally:
            printed, n_cut = output.finish()
            self._outputs = {one for one in self._outputs if not one.is_closed}
        _check(message)
        return Finished(printed, n_cut, int(str(message["code"])))

    async def attach(self, command: Command, stdin: int, output: int) -> int:
        """Run a command with these files as its standard streams; return its exit code.

        Closes the files. A terminal becomes its controlling terminal. On cancellation, the command
        and its process group are dead before this returns.
        """
        self.is_touched = True
        if self._root_id:
            # Otherwise opening /dev/stdout, which reopens the file, would be refused.
            os.fchown(stdin, self._root_id, self._root_id)
            os.fchown(output, self._root_id, self._root_id)
        # Alone: workers only start commands without input.
        request = {"op": "run", "command": as_json(command), "alone": True}
        return int(str((await self._ask(request, output, stdin))["code"]))

    async def put(self, source: Path, target: str, *, room: int = 0) -> None:
        """Copy a file to a path, or the contents of a directory into one; create parents."""
        self.is_touched = True
        request = {"op": "put", "target": target, "name": source.name, "room": room}
        await put_files(self._router, request, source)

    async def take(
        self,
        source: str,
        target: Path,
        *,
        room: int = 0,
        limit: int | None = None,
        most_entries: int = MOST_ENTRIES,
    ) -> tuple[str, ...]:
        """Copy a file out, or the contents of a directory; return the files that were refused."""
        limits = Limits(limit, most_entries)
        request = {"op": "take", "source": source, "room": room}
        request |= {"n_bytes": limit, "n_entries": most_entries}
        name = source.rstrip("/").rpartition("/")[2]
        return await take_files(
            self._router, request, lambda stream: unpack(stream, target, name, limits)
        )

    async def list_files(
        self, places: Sequence[str], n_files: int, *, room: int = 0, limit: int = MOST_LISTED
    ) -> list[SeenFile]:
        """List the files at or below these paths, with digests of those that are not too large.

        Raises:
            SlowTransferError: it took too long.
            SandboxError: the sandbox has ended.
        """
        request = {"op": "list_files", "places": list(places), "room": room}
        request |= {"n_files": n_files, "n_bytes": limit}
        try:
            async with asyncio.timeout(PATIENCE_SEC):
                answer = await self._ask(request)
        except TimeoutError as error:
            raise SlowTransferError(explain_slow(PATIENCE_SEC)) from error
        return seen_in(answer)

    async def kind_of(self, path: str, *, room: int = 0) -> str | None:
        """Return what is at a path, following links: file, directory, other, None for nothing."""
        kind = (await self._ask({"op": "kind_of", "path": path, "room": room}))["kind"]
        return None if kind is None else str(kind)

    async def find_sources(self, sources: Sequence[tuple[str, Sequence[str]]]) -> list[FoundSource]:
        """Find files by directories and expressions for the names at each level below them."""
        answer = await self._ask({"op": "find_sources", "sources": sources, "room": 0})
        return [FoundSource(*one) for one in msgspec.convert(answer["found"], _FOUND)]

    async def send_files(
        self, places: Sequence[tuple[str, str]], other: "Box", placing: Placing
    ) -> None:
        """Copy files to another sandbox, with owners; `places` are paths here and names there.

        Raises:
            SandboxError: one of them cannot be read or written, or is a device or a pipe.
        """
        theirs, ours = os.pipe2(os.O_CLOEXEC)
        packing = self._ask({"op": "pack_tar", "places": places, "room": 0}, ours)
        both = packing, other.unpack_files(theirs, placing)
        packed, unpacked = await asyncio.gather(*both, return_exceptions=True)
        # A broken pipe is only the consequence of the other side's failure.
        is_broken = isinstance(packed, SandboxError) and _BROKEN in str(packed)
        for error in (unpacked, packed) if is_broken else (packed, unpacked):
            if isinstance(error, BaseException):
                raise error

    async def unpack_files(self, archive: int, placing: Placing) -> None:
        """Unpack a tar archive that is read from an open file, which is closed."""
        self.is_touched = True
        await self._ask({"op": "unpack_tar", "room": 0, **asdict(placing)}, archive)

    async def list_processes(self, *, with_services: bool = False) -> list[Process]:
        """List its processes as seen inside, without PID 1, its workers, and services."""
        listed = await self._list_processes()
        hidden = () if with_services else self._services
        shown = [each for each in listed if (each["pid"], each["started"]) not in hidden]
        return msgspec.convert(shown, list[Process])

    async def note_services(self) -> None:
        """Take all processes that run now for services of the image."""
        listed = await self._list_processes()
        self._services = frozenset((each["pid"], each["started"]) for each in listed)

    async def _list_processes(self) -> list[dict[str, Any]]:
        request = {"op": "list_processes", "room": 0, "model_port": self._model_port}
        return msgspec.convert((await self._ask(request))["processes"], list[dict[str, Any]])

    async def hold(self, *, is_still: bool) -> int:
        """Stop all processes but PID 1 and its workers, or continue them.

        Returns how many could not be stopped.
        """
        if not is_still and not self._is_holding:
            return 0
        self._is_holding = True
        answer = await self._ask({"op": "pause" if is_still else "resume"})
        self._is_holding = bool(answer["is_holding"])
        return int(str(answer["n_running"]))

    async def open_room(self, fresh: Sequence[str]) -> int:
        """Open a room for a verifier, with the same files except new, empty directories `fresh`.

        Processes outside the room cannot reach them.

        Raises:
            SandboxError: one of them is not guarded by the blueprint.
        """
        ours, theirs = make_pair()
        try:
            request = {"op": "open_room", "fresh": list(fresh)}
            answer = await self._ask(request, theirs.detach())
        except BaseException:
            ours.close()
            raise
        room = int(str(answer["room"]))
        self._router.add_line(room, ours)
        return room

    async def make_directories(self, paths: Sequence[str], *, room: int = 0) -> None:
        """Create directories, with parents, writable by everyone."""
        await self._ask({"op": "make_directories", "paths": list(paths), "room": room})

    async def remove(self, paths: Sequence[str]) -> None:
        """Remove files, if they exist."""
        if paths:
            await self._ask({"op": "remove", "paths": list(paths), "room": 0})

    async def kill(self, why: str = "") -> None:
        """Kill the sandbox; all its processes are dead and reaped when this returns."""
        if why:
            self._last_words = f": {why}"
        if self._handle >= 0 and not self._gone.done():
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._handle, signal.SIGKILL)
        self._router.close()
        await asyncio.shield(self._gone)

    async def _ask(self, request: Mapping[str, object], *files: int) -> Message:
        number, answer = await self._router.pose(request, *files)
        return _check(await self._router.hear_out(number, answer))

    def _hear(self, message: Message, files: list[int]) -> None:
        if not self._up.done():
            error = message.get("error")
            at = len(files) - self._n_bound if error is None else 0
            self.namespaces, self.bound = tuple(files[:at]), tuple(files[at:])
            self._up.set_result(None if error is None else str(error))
        elif "error" in message:
            self._last_words = f": {message['error']}"

    def watch(self, reason: str) -> None:
        """Watch for its end without the zygote, which has ended and cannot report it."""
        self._loop.add_reader(self._handle, self._lose_watched, reason)

    def _lose_watched(self, reason: str) -> None:
        self._loop.remove_reader(self._handle)
        self.lose(reason, SandboxError)

    def _hang_up(self) -> None:
        if not self._up.done():
            # The zygote reports the reason.
            self._up.set_result("")

    async def wait_until_up(self) -> None:
        """Wait until it accepts requests.

        Raises:
            SandboxError: it could not be built, and has ended.
        """
        try:
            problem = await asyncio.shield(self._up)
        except asyncio.CancelledError:
            await self.kill()
            raise
        if problem is not None:
            await self.kill()
            raise SandboxError(
                f"sandbox {self._session} could not be built: {problem or self._ended_by}"
            )

    def lose(self, reason: str, kind: type[SandboxError]) -> None:
        """Record that it has ended, and fail its pending requests."""
        # Its last message may still be unread.
        self._router.read()
        self._router.close()
        self._router.end(kind(f"sandbox {self._session}: {reason}{self._last_words}"))
        self._ended_by = reason
        for output in self._outputs:
            output.close()
        close_all((*self.namespaces, *self.bound))
        self.namespaces = self.bound = ()
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1
        if not self._gone.done():
            self._gone.set_result(None)


def seen_in(answer: Message) -> list[SeenFile]:
    """Return the files of the answer to `list_files`."""
    return [SeenFile(*each) for each in msgspec.convert(answer["files"], _LISTED)]


def _check(message: Message) -> Message:
    if "error" in message:
        raise SandboxError(str(message["error"]))
    return message


class Zygote:
    """The process that sandboxes are forked from."""

    def __init__(self, process: subprocess.Popen[bytes], channel: socket.socket) -> None:
        self._process = process
        self._questions = Questions()
        self._ends: dict[int, tuple[Ends, Blueprint]] = {}
        # Live sandboxes, by the host pid of their PID 1.
        self._boxes: dict[int, Box] = {}
        # Sandboxes whose `spawn` has not returned yet, by the number of the request.
        self._new: dict[int, Box] = {}
        self._at_close: list[Callable[[], None]] = []
        self._link = Link(channel, self._hear, self._hang_up)

    @property
    def is_alive(self) -> bool:
        """Whether it can spawn sandboxes."""
        return self._link.is_open

    async def spawn(self, blueprint: Blueprint) -> Box:
        """Build a sandbox.

        Raises:
            SandboxError: it could not be built; the message names the step.
        """
        number, answer = self._questions.ask()
        (channel, their_channel), (line, their_line) = make_pair(), make_pair()
        self._ends[number] = Ends(channel, line), blueprint
        try:
            request = {"spawn": number, "blueprint": as_json(blueprint)}
            await self._link.send(request, (their_channel.fileno(), their_line.fileno()))
        except BaseException:
            self._questions.forget(number)
            self._ends.pop(number)[0].close()
            raise
        finally:
            their_channel.close()
            their_line.close()
        try:
            message = await asyncio.shield(answer)
        except asyncio.CancelledError:
            try:
                await settled(answer)
            finally:
                if box := self._new.pop(number, None):
                    await box.kill()
            raise
        _check(message)
        box = self._new.pop(number)
        await box.wait_until_up()
        return box

    async def close(self) -> None:
        """End the zygote and all its sandboxes. Can be called twice."""
        await asyncio.gather(*(box.kill() for box in list(self._boxes.values())))
        self._link.close()
        await asyncio.to_thread(self._process.wait)
        for act in self._at_close:
            await asyncio.to_thread(act)

    def at_close(self, act: Callable[[], None]) -> None:
        """Register a function to call, in a thread, after it and all its sandboxes have ended."""
        self._at_close.append(act)

    def _hear(self, message: Message, files: list[int]) -> None:
        if "gone" in message:
            # Unknown if the zygote failed to report that it spawned this one.
            if box := self._boxes.pop(int(str(message["gone"])), None):
                box.lose(_reason_of(int(str(message["code"]))), SandboxDiedError)
            return
        number = int(str(message["spawned"]))
        ends, blueprint = self._ends.pop(number)
        if "pid" in message:
            pid = int(str(message["pid"]))
            self._new[number] = self._boxes[pid] = Box(pid, files.pop(), blueprint, ends)
        else:
            ends.close()
        self._questions.answer(number, message, files)

    def _hang_up(self) -> None:
        reason = "the process that its PID 1 was forked from is gone"
        self._questions.end(SandboxError(reason))
        for ends, _ in self._ends.values():
            ends.close()
        for box in self._boxes.values():
            box.watch(reason)
        self._boxes.clear()


def _reason_of(code: int) -> str:
    if code == -signal.SIGKILL:
        return "its PID 1 was killed: it was stopped from outside, or memory ran out"
    return f"its PID 1 is gone, with {code}"


async def start_zygote() -> Zygote:
    """Start the process that sandboxes are forked from."""
    ours, theirs = make_pair()
    with theirs:
        words = [sys.executable, "-I", "-S", "-c", _START, str(_PACKAGES), str(theirs.fileno())]
        # In its own session, because Ctrl-C is for the runner, which then ends its sandboxes.
        process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            cwd="/",
            env={},
            pass_fds=(theirs.fileno(),),
            start_new_session=True,
        )
    return Zygote(process, ours)


_SHARED: weakref.WeakKeyDictionary[
    asyncio.AbstractEventLoop, tuple[Zygote, AsyncGenerator[Zygote]]
] = weakref.WeakKeyDictionary()


async def shared_zygote() -> Zygote:
    """Return the zygote of this event loop, started on first use and closed with the loop."""
    loop = asyncio.get_running_loop()
    if (shared := _SHARED.get(loop)) and shared[0].is_alive:
        return shared[0]
    # asyncio closes asynchronous generators when the loop ends, and this one closes the zygote.
    keeper = _keep_zygote()
    zygote = await anext(keeper)
    _SHARED[loop] = zygote, keeper
    return zygote


async def _keep_zygote() -> AsyncGenerator[Zygote]:
    zygote = await start_zygote()
    try:
        yield zygote
    finally:
        await zygote.close()
