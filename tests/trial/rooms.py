"""A small real environment for the tests of trials: a tree, entered by unshare and chroot.

Commands run as root of a user namespace over the host's /usr, with /app, /logs, /tests and the
like in a temporary directory. A process is known by a variable in its environment. It isolates
nothing that a hostile agent would respect.
"""

import asyncio
import contextlib
import os
import shlex
import shutil
import signal
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from proctor.trial.environment import (
    Capabilities,
    Environment,
    EnvironmentOrder,
    ExecResult,
    Process,
    Snapshot,
)
from proctor.trial.finding import Finding
from proctor.trial.paths import TrialPaths

_SYSTEM = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_SHOWN = ("usr", "etc", "dev", "proc")


class Tree:
    """The directory that stands for the root of an environment."""

    def __init__(self) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="room-"))
        for name in (*_SHOWN, "app", "tmp", "workspace", "logs/agent", "logs/verifier"):
            (self.root / name).mkdir(parents=True, exist_ok=True)
        (self.root / "logs/artifacts").mkdir()
        for name in _SYSTEM:
            if Path("/", name).is_symlink():
                (self.root / name).symlink_to(Path("/", name).readlink())
            elif Path("/", name).is_dir():
                (self.root / name).mkdir()
        self.rooms = 0

    def place(self, inside: str) -> Path:
        return self.root / inside.lstrip("/")


class PlainEnvironment:
    """One that speaks harbor's dialect and no more."""

    is_mounted = False

    def __init__(self, order: EnvironmentOrder, tree: Tree | None = None, room: int = 0) -> None:
        self.order = order
        self.tree = tree or Tree()
        self.room = room
        self.default_user: str | int | None = None
        self.session_id = order.session_id
        self.trial_paths: TrialPaths = order.trial_paths
        self.commands: list[str] = []
        self.stops = 0

    @property
    def os(self) -> str:
        return "linux"

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(mounted=self.is_mounted)

    async def start(self, force_build: bool) -> None:
        del force_build

    async def stop(self, delete: bool) -> None:
        del delete
        self.stops += 1
        for pid in _find_processes(self.tree.root.name):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.tree.root, ignore_errors=True)

    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        del user
        self.commands.append(command)
        variables = {"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "ROOM": self.tree.root.name}
        process = await asyncio.create_subprocess_exec(
            *("unshare", "--user", "--map-root-user", "--mount", "bash", "-c"),
            self._enter(command, cwd or "/app"),
            env={**variables, **self.order.persistent_env, **(env or {})},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            output, _ = await asyncio.wait_for(process.communicate(), timeout_sec)
        except TimeoutError:
            await _kill(process)
            raise RuntimeError(f"Command timed out after {timeout_sec} seconds") from None
        except asyncio.CancelledError:
            await _kill(process)
            raise
        text = output.decode(errors="replace")
        return ExecResult(text or None, None, process.returncode or 0)

    def _enter(self, command: str, cwd: str) -> str:
        root = shlex.quote(str(self.tree.root))
        lines = [f"mount --rbind /{name} {root}/{name}" for name in _SHOWN]
        if self.is_mounted:
            for mount in self.order.mounts:
                source = shlex.quote(str(mount["source"]))
                lines += [f"mount --bind {source} {root}{mount['target']}"]
        if self.room:
            own = f"{root}/.rooms/{self.room}"
            lines += [f"mkdir -p {root}/tests"]
            lines += [f"mount --bind {own}/tests {root}/tests"]
            lines += [f"mount --bind {own}/verifier {root}/logs/verifier"]
        inner = shlex.quote(f"cd {shlex.quote(cwd)} && {{ {command}\n}}")
        return " && ".join([*lines, f"exec chroot {root} /bin/bash -c {inner}"])

    def place(self, inside: str) -> Path:
        """Where a path of the environment is on the host."""
        if self.room:
            for name, own in (("/tests", "tests"), ("/logs/verifier", "verifier")):
                if inside == name or inside.startswith(f"{name}/"):
                    return (
                        self.tree.root / ".rooms" / str(self.room) / own / inside[len(name) + 1 :]
                    )
        if self.is_mounted:
            for mount in self.order.mounts:
                target = str(mount["target"])
                if inside == target or inside.startswith(f"{target}/"):
                    return Path(str(mount["source"])) / inside[len(target) + 1 :]
        return self.tree.place(inside)

    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        place = self.place(target_path)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source_path, place)

    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        shutil.copytree(source_dir, self.place(target_dir), dirs_exist_ok=True)

    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        shutil.copy(self.place(source_path), target_path)

    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        shutil.copytree(self.place(source_dir), target_dir, dirs_exist_ok=True)

    async def is_dir(self, path: str, user: str | int | None = None) -> bool:
        del user
        return self.place(path).is_dir()

    async def is_file(self, path: str, user: str | int | None = None) -> bool:
        del user
        return self.place(path).is_file()


class MountedEnvironment(PlainEnvironment):
    """One whose log directories are the trial's own."""

    is_mounted = True


class WatchedEnvironment(PlainEnvironment):
    """One that says what it is and gives the verifier a room."""

    @property
    def snapshot(self) -> Snapshot:
        return Snapshot("host:test@sha256:" + "0" * 64, "rooms", {"kernel": "6.1"})

    @property
    def findings(self) -> Sequence[Finding]:
        return ()

    async def list_processes(self, *, with_services: bool = False) -> Sequence[Process]:
        return [Process(pid, _command(pid)) for pid in _find_processes(self.tree.root.name)]

    async def open_room(self, fresh: Sequence[str]) -> Environment:
        assert sorted(fresh) == ["/logs/verifier", "/tests"]
        self.tree.rooms += 1
        for name in ("tests", "verifier"):
            (self.tree.root / ".rooms" / str(self.tree.rooms) / name).mkdir(parents=True)
        return PlainEnvironment(self.order, self.tree, self.tree.rooms)


async def _kill(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()


_ENOUGH_LOOKS = 5


def _find_processes(room: str) -> list[int]:
    marked = f"ROOM={room}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and marked in _environment_of(entry):
                found.append(int(entry.name))
    return found


def _environment_of(process: Path) -> list[bytes]:
    """A process's variables; in the midst of an exec it has none for a moment, so look again.

    Then it has no command line either. One that has, and still no variables, was started without.
    """
    empty = 0
    for _ in range(100):
        empty = empty + 1 if (process / "cmdline").read_bytes() else 0
        if variables := (process / "environ").read_bytes():
            return variables.split(b"\0")
        if empty == _ENOUGH_LOOKS:
            break
        (process / "exe").readlink()  # Neither a kernel thread nor a dead process has one.
        time.sleep(0.001)
    return []


def _command(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
    return "gone"
