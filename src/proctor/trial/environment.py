"""Protocols of environments: harbor's interface, and the optional ones that ours add.

An environment given by import path implements only `Environment`. Ours also implement `Watched`:
they report what they run on, and give the verifier a room that the agent's processes cannot reach.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

import msgspec

from proctor.harbor.configs import EnvironmentConfig
from proctor.task.environment import EnvironmentConfig as TaskEnvironment
from proctor.task.network import NetworkPolicy
from proctor.trial.changes import Change, LeftOut, Surroundings
from proctor.trial.finding import Finding
from proctor.trial.output_log import OutputLog
from proctor.trial.paths import TrialPaths


class ExecResult(msgspec.Struct, frozen=True):
    """Result of one command."""

    stdout: str | None
    """Output, and error output, unchanged; None if there was none."""
    stderr: str | None
    """None if both streams are in stdout."""
    return_code: int
    """128 + signal for a command that was killed."""


class Capabilities(msgspec.Struct, frozen=True):
    """What an environment can do, under harbor's names."""

    gpus: bool = False
    tpus: bool = False
    disable_internet: bool = False
    network_allowlist: bool = False
    dynamic_network_policy: bool = False
    windows: bool = False
    mounted: bool = False
    """/logs/* are the trial's own directories, so nothing needs to be downloaded."""
    docker_compose: bool = False


class Environment(Protocol):
    """A place in which commands run; started once, stopped once."""

    default_user: str | int | None
    """User for commands that name none."""
    session_id: str
    """Name of this environment: the trial's name."""
    trial_paths: TrialPaths

    @property
    def os(self) -> str:
        """The operating system inside: linux."""

    @property
    def capabilities(self) -> Capabilities:
        """What it can do."""

    async def start(self, force_build: bool) -> None:  # noqa: FBT001 - harbor's signature
        """Build the environment if needed, and start it."""

    async def stop(self, delete: bool) -> None:  # noqa: FBT001 - harbor's signature
        """End everything in it. May be called twice, and before start."""

    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        """Run `bash -c command`.

        On cancellation, the command and its process group are dead before this returns.

        Raises:
            RuntimeError: `Command timed out after N seconds`.
        """

    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        """Copy a file in."""

    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        """Copy the contents of a directory into another, which is created."""

    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        """Copy a file out."""

    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        """Copy the contents of a directory out."""

    async def is_dir(self, path: str, user: str | int | None = None) -> bool:
        """Whether the path is a directory."""

    async def is_file(self, path: str, user: str | int | None = None) -> bool:
        """Whether the path is a file."""


@runtime_checkable
class OutputLogging(Protocol):
    """An environment that records what commands print while they run."""

    output_log: OutputLog | None
    """Where it is recorded; None, outside of the agent's run: nowhere."""


class Snapshot(msgspec.Struct, frozen=True):
    """What an environment runs on, for the record."""

    runtime_image: str
    """Image or root file system, with its digest: `host:debian-12@sha256:…`, `name@sha256:…`."""
    compute_backend: str
    """sandbox, null, docker, or an import path."""
    tool_versions: Mapping[str, str] = {}
    """Versions that affect results beyond the image, such as the kernel's."""


class Process(msgspec.Struct, frozen=True):
    """A process in an environment."""

    pid: int
    """PID inside the environment."""
    command: str
    """Its command line, or its name in brackets. The process can forge both."""
    executable: str | None = None
    """Path of its executable as the kernel reports it, with ` (deleted)` if the file is gone. None
    if it cannot be read or the engine does not report it.
    """
    script: str | None = None
    """For an interpreter: the first argument that is a file, as an absolute path."""
    listens: bool = False
    """Whether it has a listening socket: TCP, Unix, or bound UDP. If its open files cannot be read:
    whether its user has one. False if the engine does not report it.
    """


@runtime_checkable
class Watched(Protocol):
    """An environment that describes itself and isolates the verifier from the agent."""

    @property
    def snapshot(self) -> Snapshot:
        """What it runs on; known after start."""

    @property
    def findings(self) -> Sequence[Finding]:
        """Findings so far."""

    async def list_processes(self, *, with_services: bool = False) -> Sequence[Process]:
        """Processes inside, except PID 1 and, unless asked for, services of the image.

        Services are what ran before the environment was handed over, started by its ENTRYPOINT.
        """

    async def open_room(self, fresh: Sequence[str]) -> Environment:
        """Return a view of the same environment from a separate mount namespace.

        Each directory in `fresh` is new, empty and writable there, and unreachable from outside the
        room; everything else is shared. Opened anew for each verification; the room ends with the
        environment.
        """


@runtime_checkable
class Relaying(Protocol):
    """An environment that can expose the ports of the host that a job lists."""

    async def open_host_ports(self) -> None:
        """Let programs inside reach the ports.

        Raises:
            Exception: the ports cannot be opened, or not without exposing others.
        """

    async def close_host_ports(self) -> None:
        """Close the ports and end connections to them."""


@runtime_checkable
class ModelReaching(Protocol):
    """An environment from which the job's model gateway can be reached, if there is one.

    Programs inside reach it at the port of 127.0.0.1 at which it listens on the host, whatever the
    network policy is, and nothing else of the host. Without a gateway, both methods do nothing.
    """

    async def open_model_port(self) -> None:
        """Let programs inside connect to the gateway, which refuses those without a token.

        Raises:
            Exception: the environment does not run.
        """

    async def close_model_port(self) -> None:
        """Refuse connections to the gateway, and end those that exist."""


def find_output_log(environment: object) -> OutputLog | None:
    """Where an environment records what commands print now; None if it does not."""
    return environment.output_log if isinstance(environment, OutputLogging) else None


@runtime_checkable
class Attaching(Environment, Protocol):
    """An environment in which a person can work."""

    async def attach(self) -> int:
        """Run its shell on the standard input and output of this process; return its exit code.

        The shell has a terminal if standard input is one. It runs as the default user, in the
        working directory.
        """


@runtime_checkable
class Freezing(Protocol):
    """An environment that can freeze its files and start others from them."""

    async def holds_memory(self) -> bool:
        """Whether it has files in memory, below /dev, which a copy of its files would miss."""

    async def freeze(self) -> None:
        """Keep all its files as they are now, replacing those kept before.

        Called while nothing runs in it; it continues unchanged afterwards. The copy is removed when
        the environment is stopped or, after a kill, with its other remains.

        Raises:
            Exception: the files cannot be kept, for example because they are too large; then none
                are.
        """

    async def open_frozen(self, paths: TrialPaths) -> Environment:
        """Start another environment from the kept files; the caller stops it.

        Limits, network, users, variables and working directory are the same. Its writes change
        neither this environment nor the kept files. Mounted log directories are those of `paths`.
        Only one exists at a time.
        """


@runtime_checkable
class Accounting(Environment, Protocol):
    """An environment that knows its image and everything written since."""

    def surroundings(self) -> Surroundings:
        """Paths by which programs find their files in it."""

    async def list_written(
        self, known: Mapping[str, str], *, is_hashing: bool = True
    ) -> tuple[Sequence[Change], bool]:
        """List everything that differs from the image, and whether the list was cut short.

        `known` maps paths to the marks of an earlier list. A path whose mark is unchanged was not
        written since and belongs to the phase `setup`; all others belong to `agent`. Nothing is run
        inside.

        Raises:
            Exception: the files cannot be listed.
        """

    async def freeze(self) -> None:
        """Keep all its files as they are now; see Freezing."""

    async def open_frozen(self, paths: TrialPaths) -> Environment:
        """Start another environment from the kept files; see Freezing."""

    async def open_clean(self, paths: TrialPaths, left_out: LeftOut) -> Environment:
        """Start another environment: the image plus the kept files except `left_out`.

        Everything else is as in `open_frozen`.

        Raises:
            Exception: it cannot be started.
        """


class Program(msgspec.Struct, frozen=True):
    """A running program, as the kernel reports it."""

    executable: str
    directory: str
    """Its working directory."""
    words: tuple[str, ...]
    """Its command line, which it can forge."""
    code: tuple[str, ...] = ()
    """For an interpreter: the script it runs, under each name the script may have."""
    given: tuple[str, ...] = ()
    """For other programs: the paths its arguments may name."""


class OpenedFile(msgspec.Struct, frozen=True):
    """A file of the verifier that was opened while the tests ran."""

    path: str
    """Absolute path inside."""
    programs: tuple[Program, ...]
    """The program that opened it, its parent, and so on up to the environment's init."""
    is_orphan: bool = False
    """Its parent has exited, so it cannot be traced back to the test script."""


UNLISTED_OPENINGS = OpenedFile("", ())
"""Placeholder for openings that were lost because there were too many."""


@runtime_checkable
class Watching(Protocol):
    """A verifier's room that can report which programs open its files."""

    def watch_files(
        self, scripts: Sequence[str] = ()
    ) -> AbstractContextManager[Sequence[OpenedFile] | None]:
        """Watch its private directories; the list grows until the context ends.

        None if watching is not supported.

        `scripts` are files of the agent that programs may run.
        """


class SeenFile(msgspec.Struct, frozen=True):
    """A file in an environment, seen from outside."""

    path: str
    """Absolute path inside. Untrusted."""
    size: int | None
    """In bytes; None unless it is a regular file."""
    sha256: str | None
    """Of its contents; None unless it is a regular file small enough to read."""


@runtime_checkable
class Listing(Protocol):
    """An environment that can list its files without running anything inside."""

    async def list_files(self, places: Sequence[str], limit: int) -> Sequence[SeenFile]:
        """List the files at or below these paths, at most `limit`.

        Directories are descended into and not listed; links are listed and not followed. The rooms
        of such an environment can list files too.
        """


class ChangedFile(msgspec.Struct, frozen=True):
    """A tool that differs from the image's, or a file that shadows one."""

    path: str
    """Absolute path inside. Untrusted."""
    how: str
    """changed, moved, added or built; see proctor.environments.tools."""
    sha256: str | None
    """Of its contents; None unless it is a regular file."""


@runtime_checkable
class ToolRestoring(Protocol):
    """An environment that knows its image and can restore the tools that tests rely on."""

    async def find_changed_tools(self) -> Sequence[ChangedFile]:
        """List the tools that differ from the image's. Nothing is run inside."""

    async def restore_tools(self, changed: Sequence[ChangedFile]) -> None:
        """Restore changed tools from the image and remove added ones.

        Tools of kind `built` are left.

        Raises:
            SandboxError: a tool cannot be restored.
        """

    async def mark_tools(self) -> Mapping[str, str]:
        """Return a mark for each rewritten tool by path; it changes when the tool is rewritten."""


@runtime_checkable
class ScriptExecuting(Protocol):
    """An environment that can make a file executable without running anything inside."""

    async def exec_script(
        self,
        command: str,
        script: str,
        env: Mapping[str, str] | None = None,
        timeout_sec: int | None = None,
    ) -> ExecResult:
        """Apply `chmod +x` to a script as root, if possible, then call `exec`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentOrder:
    """Arguments for creating an environment."""

    config: EnvironmentConfig
    """The job's options: type or import path, overrides, kwargs."""
    environment_dir: Path
    """Build context: the task's environment/, or the tests for a separate verifier."""
    environment_name: str
    """Short name of the task."""
    session_id: str
    """The trial's name, or one made from it for a separate verifier."""
    trial_paths: TrialPaths
    task_env_config: TaskEnvironment
    """[environment] of the task, or [verifier.environment]."""
    network: NetworkPolicy
    """The baseline in effect."""
    persistent_env: Mapping[str, str]
    """Resolved variables of every command."""
    mounts: Sequence[Mapping[str, object]]
    """harbor's {type, source, target}: the log directories, and what the job adds."""
    logger: logging.Logger
    model_port: int | None = None
    """Port of the host's loopback where the job's model gateway listens; None without one."""


type MakeEnvironment = Callable[[EnvironmentOrder], Environment]
