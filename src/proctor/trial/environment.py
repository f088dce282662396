"""What a trial asks of an environment: harbor's dialect, and what one of ours tells beyond it.

An environment by import path speaks `Environment` alone. One of ours is `Watched` as well: it says
what it runs on, and gives the verifier a room that nothing of the agent can reach.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol, TypeGuard, runtime_checkable

import msgspec

from proctor.trial.changes import Change, LeftOut, Surroundings
from proctor.trial.finding import Finding
from proctor.trial.paths import TrialPaths


class ExecResult(msgspec.Struct, frozen=True):
    """What came of one command."""

    stdout: str | None
    """Output and error output, as they came; None when there was none."""
    stderr: str | None
    """None: both are in stdout."""
    return_code: int
    """128 + signal for a command that was killed."""


class Capabilities(msgspec.Struct, frozen=True):
    """What an environment can do; harbor's names."""

    gpus: bool = False
    tpus: bool = False
    disable_internet: bool = False
    network_allowlist: bool = False
    dynamic_network_policy: bool = False
    windows: bool = False
    mounted: bool = False
    """/logs/* are the trial's own directories, so that nothing has to be fetched."""
    docker_compose: bool = False


class Environment(Protocol):
    """A place in which commands run: started once, stopped once."""

    default_user: str | int | None
    """Who runs a command that names nobody."""
    session_id: str
    """Name of this environment: the trial's."""
    trial_paths: TrialPaths

    @property
    def os(self) -> str:
        """Which system runs inside: linux."""
        ...

    @property
    def capabilities(self) -> Capabilities:
        """What it can do."""
        ...

    async def start(self, force_build: bool) -> None:  # noqa: FBT001 - harbor's signature
        """Build it where that is needed, and bring it up."""
        ...

    async def stop(self, delete: bool) -> None:  # noqa: FBT001 - harbor's signature
        """End everything in it. May be called twice, and before start."""
        ...

    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        """Run `bash -c command`.

        When it is cancelled, the command and its process group are dead before it returns.

        Raises:
            RuntimeError: `Command timed out after N seconds`.
        """
        ...

    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        """Copy a file in."""
        ...

    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        """Copy the contents of a directory into another, which is made."""
        ...

    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        """Copy a file out."""
        ...

    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        """Copy the contents of a directory out."""
        ...

    async def is_dir(self, path: str, user: str | int | None = None) -> bool:
        """Whether there is a directory."""
        ...

    async def is_file(self, path: str, user: str | int | None = None) -> bool:
        """Whether there is a file."""
        ...


class Snapshot(msgspec.Struct, frozen=True):
    """What an environment runs on, for the record."""

    runtime_image: str
    """Image or root file system, with its digest: `host:debian-12@sha256:…`, `name@sha256:…`."""
    compute_backend: str
    """sandbox, null, docker, or an import path."""
    tool_versions: Mapping[str, str] = {}
    """What decides results besides the image: the kernel, for one."""


class Process(msgspec.Struct, frozen=True):
    """A process in an environment."""

    pid: int
    """As seen inside."""
    command: str
    """Its command line, or its name in brackets: its own word."""
    executable: str | None = None
    """The file that it executes, as the kernel says; ` (deleted)` follows where it is gone. None
    where that may not be read, or the engine does not say."""
    script: str | None = None
    """For an interpreter: the first argument that is the path of a file, absolute."""
    listens: bool = False
    """It has a socket that listens: TCP, Unix, or bound UDP. Where its open files may not be read:
    its user has one. False where the engine does not say."""


@runtime_checkable
class Watched(Protocol):
    """An environment that can say what it is and keep the verifier out of the agent's reach."""

    @property
    def snapshot(self) -> Snapshot:
        """What it runs on; known once it was started."""
        ...

    @property
    def findings(self) -> Sequence[Finding]:
        """What a reader of the score should know of it, so far."""
        ...

    async def list_processes(self) -> Sequence[Process]:
        """What runs in it besides its own PID 1."""
        ...

    async def open_room(self, fresh: Sequence[str]) -> Environment:
        """The same environment seen from a mount namespace of its own.

        Each directory of `fresh` is new and empty there, writable, and out of reach of everything
        that runs outside the room; all else is shared. Called anew for each verification; the
        room ends with the environment.
        """
        ...


@runtime_checkable
class Relaying(Protocol):
    """An environment from which ports of the host can be reached, where a job names some."""

    async def open_host_ports(self) -> None:
        """Let programs inside reach them.

        Raises:
            Exception: they cannot be reached, or not they alone.
        """
        ...

    async def close_host_ports(self) -> None:
        """Refuse them, and end connections to them."""
        ...


_KNOWN: dict[tuple[type, type], bool] = {}
"""Classes of environments, and whether they have all names of a protocol."""


def _is_a(environment: object, protocol: type) -> bool:
    # To ask takes long; the first environment of a class answers for all.
    known = type(environment), protocol
    if known not in _KNOWN:
        _KNOWN[known] = isinstance(environment, protocol)
    return _KNOWN[known]


def is_watched(environment: object) -> TypeGuard[Watched]:
    """Whether an environment can say what it is and give the verifier a room."""
    return _is_a(environment, Watched)


def can_relay(environment: object) -> TypeGuard[Relaying]:
    """Whether ports of the host can be reached from an environment."""
    return _is_a(environment, Relaying)


@runtime_checkable
class Freezing(Protocol):
    """An environment that can keep its files as they are, for others of its kind to begin with."""

    async def holds_memory(self) -> bool:
        """Whether files lie in its memory, below /dev, where no copy of its files has them."""
        ...

    async def freeze(self) -> None:
        """Keep all its files as they are now, in place of those that were kept before.

        It is asked for while nothing runs in it, and goes on as if it had not been. What is kept is
        gone when it is stopped, or, after a kill, with whatever else it left.

        Raises:
            Exception: they cannot be kept, for one because they are too large; none are then.
        """
        ...

    async def open_frozen(self, paths: TrialPaths) -> Environment:
        """Another environment that runs, with the files that were kept; whoever asks stops it.

        All else is as in this one: limits, network, users, variables, working directory. What it
        writes changes neither this one nor what was kept. `paths` are its trial's: where log
        directories are mounted, they are those of `paths`. One is there at a time.
        """
        ...


def can_freeze(environment: object) -> TypeGuard[Freezing]:
    """Whether an environment can keep its files for others of its kind to begin with."""
    return _is_a(environment, Freezing)


@runtime_checkable
class Accounting(Environment, Protocol):
    """An environment that knows its image, and everything that was written since."""

    def surroundings(self) -> Surroundings:
        """How programs find their files in it."""
        ...

    async def list_written(
        self, known: Mapping[str, str], *, is_hashing: bool = True
    ) -> tuple[Sequence[Change], bool]:
        """Everything that differs from the image, and whether some paths are missing.

        `known` has marks of an earlier list: what has the same one still was not written since, and
        is of the phase `setup`; all else is of the phase `agent`. Nothing is run inside.

        Raises:
            Exception: it cannot be listed.
        """
        ...

    async def freeze(self) -> None:
        """Keep all its files as they are now; see Freezing."""
        ...

    async def open_frozen(self, paths: TrialPaths) -> Environment:
        """Another environment, with the files that were kept; see Freezing."""
        ...

    async def open_clean(self, paths: TrialPaths, left_out: LeftOut) -> Environment:
        """Another environment: the image, and of the files that were kept all but `left_out`.

        All else is as in `open_frozen`.

        Raises:
            Exception: it cannot be brought up.
        """
        ...


def accounts(environment: object) -> TypeGuard[Accounting]:
    """Whether an environment knows everything that was written in it."""
    return _is_a(environment, Accounting)


class Program(msgspec.Struct, frozen=True):
    """A program that runs in an environment, as the kernel shows it."""

    executable: str
    directory: str
    """In which it works."""
    words: tuple[str, ...]
    """Its command line, which is its own word."""
    code: tuple[str, ...] = ()
    """For an interpreter: the file that it runs, by the names that it may have."""
    given: tuple[str, ...] = ()
    """For other programs: what their arguments may name."""


class OpenedFile(msgspec.Struct, frozen=True):
    """A file of the verifier's that was opened while the tests ran."""

    path: str
    """Absolute, as seen inside."""
    programs: tuple[Program, ...]
    """What opened it, what started that program, and so on up to the environment's own."""
    is_orphan: bool = False
    """What started it has ended: it does not come from the test script by a way that is seen."""


UNTOLD = OpenedFile("", ())
"""Stands for openings that nobody could tell of: there were too many."""


@runtime_checkable
class Watching(Protocol):
    """A verifier's room that can say which programs open its files."""

    def watch_files(
        self, scripts: Sequence[str] = ()
    ) -> AbstractContextManager[Sequence[OpenedFile] | None]:
        """Watch its own directories; the list grows until the end, None where nobody can.

        `scripts` are files of the agent's that programs may run.
        """
        ...


def can_watch(room: object) -> TypeGuard[Watching]:
    """Whether a room can say which programs open its files."""
    return _is_a(room, Watching)


class SeenFile(msgspec.Struct, frozen=True):
    """A file that lies in an environment, seen from outside."""

    path: str
    """Absolute, as seen inside; it comes from a stranger."""
    size: int | None
    """In bytes; None for what is no plain file."""
    sha256: str | None
    """Of its bytes; None for what is no plain file, or too large to be read."""


@runtime_checkable
class Listing(Protocol):
    """An environment that can say what lies in it without running anything inside."""

    async def list_files(self, places: Sequence[str], limit: int) -> Sequence[SeenFile]:
        """The files at or below these paths, as far as they are there; `limit` at most.

        Directories are gone through and not listed; links are listed and not followed. A room of
        such an environment is one as well.
        """
        ...


def can_list(environment: object) -> TypeGuard[Listing]:
    """Whether an environment can say what lies in it without running anything inside."""
    return _is_a(environment, Listing)


class ChangedFile(msgspec.Struct, frozen=True):
    """A tool of the image's that is not its own any more, or what comes before one."""

    path: str
    """Absolute, as seen inside; it comes from a stranger."""
    how: str
    """changed, moved, added or built; see proctor.environments.tools."""
    sha256: str | None
    """Of its bytes; None for what is no plain file."""


@runtime_checkable
class Keeping(Protocol):
    """An environment that knows its image, and can give the tests the image's own tools."""

    async def find_changed_tools(self) -> Sequence[ChangedFile]:
        """What of the tools that tests rest on is not the image's; nothing is run inside."""
        ...

    async def give_back_tools(self, changed: Sequence[ChangedFile]) -> None:
        """Put the image's own in place of what is changed, and take away what was added.

        What was built is left.

        Raises:
            SandboxError: that cannot be done.
        """
        ...

    async def mark_tools(self) -> Mapping[str, str]:
        """The image's tools that were written again, by path; another mark: written once more."""
        ...


def can_keep(environment: object) -> TypeGuard[Keeping]:
    """Whether an environment can give the tests the image's own tools."""
    return _is_a(environment, Keeping)


@runtime_checkable
class Marking(Protocol):
    """An environment that can let a file be executed without running anything inside."""

    async def exec_script(
        self,
        command: str,
        script: str,
        env: Mapping[str, str] | None = None,
        timeout_sec: int | None = None,
    ) -> ExecResult:
        """Do what `chmod +x` does to a script, as root and if it can be done; then `exec`."""
        ...


def can_mark(environment: object) -> TypeGuard[Marking]:
    """Whether an environment can let a file be executed without running anything inside."""
    return _is_a(environment, Marking)
