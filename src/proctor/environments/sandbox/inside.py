"""Commands and files in a running sandbox, in the agent's namespace or in a verifier's room.

Implements harbor's interface on a Box. Does not start or stop sandboxes.
"""

import asyncio
import fcntl
import os
import signal
import sys
import termios
import threading
import time
import tty
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from proctor.environments.image_config import COMMAND, KEEPER, SERVED_SEC, describe_end
from proctor.environments.running import RunningEnvironment
from proctor.environments.sandbox.blueprint import Command
from proctor.environments.sandbox.box import Box
from proctor.environments.sandbox.roots.build import Root
from proctor.environments.sandbox.watch import watched
from proctor.errors import SandboxError, UnsupportedError
from proctor.files import write_all
from proctor.sentence import without_escapes
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


# Runs what an image starts by itself, its ENTRYPOINT, as long as its sandbox runs


# How often harbor's command is looked for.
_LOOK_SEC: Final = 0.02
# Return codes above it: killed by a signal, or that of a shell whose command was.
_KILLED: Final = 128


def find_service(root: Root) -> Command | None:
    """Return the command of the image's ENTRYPOINT; None if it has none."""
    if not root.entrypoint:
        return None
    argv = (*root.entrypoint, *COMMAND)
    return Command(argv=argv, cwd=root.workdir or "/", env=dict(root.env), user=root.user)


async def start_service(box: Box, service: Command) -> None:
    """Start the ENTRYPOINT of an image, and wait until harbor's command runs, or half a second.

    The sandbox ends with it, as a container does; later not if it is killed, because in a container
    no process can kill it.
    """
    started = asyncio.Event()
    serving = asyncio.ensure_future(_serve(box, service, started))
    # Nobody waits for it: it ends with the sandbox.
    serving.add_done_callback(lambda each: each.cancelled() or each.exception())
    until = time.monotonic() + SERVED_SEC
    while time.monotonic() < until:
        # Most programs of images start it last. Others, such as supervisors, never do: they run,
        # which is enough for Docker too.
        with suppress(SandboxError):
            if any(each.command == KEEPER for each in await box.list_processes()):
                break
        await asyncio.wait({serving}, timeout=_LOOK_SEC)
        if serving.done():
            serving.result()
            # Raises, with the reason: the sandbox has ended.
            await box.list_processes()
    started.set()


async def _serve(box: Box, service: Command, started: asyncio.Event) -> None:
    ended = await box.run(service)
    if started.is_set() and ended.return_code > _KILLED:
        return
    last = ended.output.decode(errors="replace").strip().rpartition("\n")[2]
    await box.kill(describe_end(ended.return_code, without_escapes(last)))


# Connects a command in a sandbox to the standard input and output of this process
#
# A command never gets our own files: with a terminal it could type for the user. It gets the other
# ends of a new terminal if standard input is one, or else of two pipes, and threads copy.


_STDIN, _STDOUT = 0, 1
_PIECE = 1 << 16
_WINDOW_SIZE = bytes(8)
# For the last output of the command, if something that it left running keeps the files open.
_PATIENCE_SEC = 1.0


class Relay:
    """A connection for one command; use it in an `async with` block."""

    def __init__(self) -> None:
        self.is_terminal = os.isatty(_STDIN)
        self._to_command, self._from_command = -1, -1
        # The command's ends: standard input, output.
        self._files: tuple[int, ...] = ()
        self._settings: list[Any] | None = None
        self._printing: threading.Thread | None = None

    @property
    def env(self) -> dict[str, str]:
        """Variables for the command: which terminal it has."""
        return {"TERM": os.environ.get("TERM", "dumb")} if self.is_terminal else {}

    def hand_over(self) -> tuple[int, int]:
        """Return the standard input and output for the command; the caller closes them."""
        (stdin, output), self._files = self._files, ()
        return stdin, output

    async def __aenter__(self) -> Self:
        """Begin to copy; a terminal is in raw mode meanwhile, so that Ctrl-C is typed inside."""
        if self.is_terminal:
            master, slave = os.openpty()
            self._to_command = self._from_command = master
            self._files = slave, os.dup(slave)
            self._resize()
            asyncio.get_running_loop().add_signal_handler(signal.SIGWINCH, self._resize)
            self._settings = termios.tcgetattr(_STDIN)
            # Draining, not flushing: what was typed meanwhile is for the command.
            tty.setraw(_STDIN, termios.TCSADRAIN)
        else:
            stdin, self._to_command = os.pipe2(os.O_CLOEXEC)
            self._from_command, output = os.pipe2(os.O_CLOEXEC)
            self._files = stdin, output
        self._printing = threading.Thread(target=self._print, name="printing", daemon=True)
        self._printing.start()
        # Never joined: it may wait for standard input for ever.
        threading.Thread(target=self._type, name="typing", daemon=True).start()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Print the last output, and leave the terminal as it was."""
        for fd in self._files:
            os.close(fd)
        if self._printing is not None:
            await asyncio.to_thread(self._printing.join, _PATIENCE_SEC)
        if self._settings is not None:
            asyncio.get_running_loop().remove_signal_handler(signal.SIGWINCH)
            termios.tcsetattr(_STDIN, termios.TCSADRAIN, self._settings)

    def _resize(self) -> None:
        """Give the command's terminal the size of ours; the kernel signals the command."""
        with suppress(OSError):
            size = fcntl.ioctl(_STDIN, termios.TIOCGWINSZ, _WINDOW_SIZE)
            fcntl.ioctl(self._to_command, termios.TIOCSWINSZ, size)

    def _type(self) -> None:
        with suppress(OSError):
            while data := os.read(_STDIN, _PIECE):
                write_all(self._to_command, data)
        if not self.is_terminal:
            # The end of our input is the end of the command's.
            os.close(self._to_command)

    def _print(self) -> None:
        # A terminal gives an error when its last user closed it, a pipe gives nothing.
        with suppress(OSError):
            while data := os.read(self._from_command, _PIECE):
                sys.stdout.flush()
                write_all(_STDOUT, data)
        # A reader of ours that has gone is noticed by the command.
        os.close(self._from_command)
