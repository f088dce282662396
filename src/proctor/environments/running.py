"""What the sandbox and the docker environment share once they run.

Results of commands, findings, harbor's methods for moving files, and attributes and methods of
harbor's environments beyond our protocol, for harbor's agents: proctor itself uses none of them.
"""

import asyncio
import contextlib
import logging
import shlex
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path, PurePath
from typing import Protocol

from proctor.environments.sandbox.output import KEPT, LITTLE, Finished, Hearing
from proctor.environments.tools import Changes, Lookup, find_changed_tools, mark_tools
from proctor.errors import SlowTransferError
from proctor.sentence import count_of
from proctor.task.environment import EnvironmentConfig as TaskEnvironment
from proctor.task.environment import Healthcheck
from proctor.task.network import NetworkPolicy
from proctor.trial.environment import (
    Capabilities,
    ChangedFile,
    Environment,
    EnvironmentOrder,
    ExecResult,
    SeenFile,
    Snapshot,
)
from proctor.trial.finding import Finding, FindingCode
from proctor.trial.inside import acting_as, download_without, empty_directories, run_healthcheck
from proctor.trial.output_log import CommandOutput, OutputLog
from proctor.trial.paths import INSIDE, TrialPaths


class HarborInterface(Environment, Protocol):
    """The rest of harbor's environment interface, implemented with `exec` and `download_dir`."""

    default_user: str | int | None
    """User of commands that name none."""
    _order: EnvironmentOrder
    """Options that the environment was made from."""

    @property
    def environment_dir(self) -> Path:
        """Directory that the environment is built from."""
        return self._order.environment_dir

    @property
    def environment_name(self) -> str:
        """Short name of the task."""
        return self._order.environment_name

    @property
    def task_env_config(self) -> TaskEnvironment:
        """The task's [environment] table."""
        return self._order.task_env_config

    @property
    def network_policy(self) -> NetworkPolicy:
        """Network policy in effect."""
        return self._order.network

    @property
    def logger(self) -> logging.Logger:
        """Logger of the trial."""
        return self._order.logger

    def with_default_user(self, user: str | int | None) -> AbstractContextManager[None]:
        """Change the default user within a `with` block."""
        return acting_as(self, user)

    async def ensure_dirs(
        self, dirs: Sequence[PurePath | str], *, chmod: bool = True
    ) -> ExecResult | None:
        """Create directories, writable by everyone if `chmod`."""
        if not dirs:
            return None
        command = f"mkdir -p {_words(dirs)}"
        if not chmod:
            return await self.exec(command)
        return await self.exec(f"{command} && chmod 777 {_words(dirs)}", user="root")

    async def empty_dirs(
        self, dirs: Sequence[PurePath | str], *, chmod: bool = True
    ) -> ExecResult | None:
        """Create directories, or empty existing ones without removing them."""
        return await empty_directories(self, dirs, open_to_all=chmod) if dirs else None

    async def reset_dirs(
        self,
        *,
        remove_dirs: Sequence[PurePath | str],
        create_dirs: Sequence[PurePath | str],
        chmod_dirs: Sequence[PurePath | str] | None = None,
    ) -> ExecResult:
        """Remove some directories and create others."""
        steps = (("rm -rf", remove_dirs), ("mkdir -p", create_dirs), ("chmod 777", chmod_dirs))
        commands = [f"{step} {_words(dirs)}" for step, dirs in steps if dirs]
        return await self.exec(" && ".join(commands), user="root")

    async def download_dir_with_exclusions(
        self, *, source_dir: str, target_dir: Path | str, exclude: Sequence[str]
    ) -> None:
        """Copy the contents of a directory out, without what matches tar's --exclude patterns."""
        await download_without(self, source_dir, target_dir, exclude)

    async def prepare_logs_for_host(self) -> None:
        """Do nothing: downloaded files already belong to the user who runs proctor."""
        self.logger.debug("logs need no preparation")

    async def run_healthcheck(self, healthcheck: Healthcheck | None = None) -> None:
        """Wait until the environment is healthy, by this check or else by the task's.

        Raises:
            HealthcheckError: the check failed too often in a row.
        """
        if check := healthcheck or self.task_env_config.healthcheck:
            await run_healthcheck(self, check)


def _words(paths: Sequence[PurePath | str]) -> str:
    return " ".join(shlex.quote(str(path)) for path in paths)


_CAPABILITIES = Capabilities(disable_internet=True)
DEVICES, MEMORY = "/dev", "/dev/shm"  # noqa: S108 - of the environment
# Entries of /dev that are listed at most.
MOST_DEVICES = 1000
# Refused files that a finding lists.
_SHOWN = 20


class RunningEnvironment(HarborInterface, Protocol):
    """A running environment; implement `_exec`, `_put`, `_fetch`, `_kind_of`."""

    _phase: str = "agent"
    """Phase of findings about commands and downloads."""
    output_log: OutputLog | None = None
    """Where the output of commands is recorded; see OutputLogging."""

    def _take_order(self, order: EnvironmentOrder) -> None:
        self._order = order
        self.session_id = order.session_id
        self.trial_paths: TrialPaths = order.trial_paths
        self.default_user: str | int | None = None

    @property
    def os(self) -> str:
        """Always Linux."""
        return "linux"

    @property
    def capabilities(self) -> Capabilities:
        """The network can be disabled; logs are not mounted and have to be downloaded."""
        return _CAPABILITIES

    def _found(self) -> list[Finding]:
        """Return the list of findings so far, to append to."""

    async def _exec(
        self,
        command: str,
        cwd: str | None,
        env: Mapping[str, str] | None,
        timeout_sec: int | None,
        user: str | int | None,
        script: str = "",
    ) -> ExecResult:
        """Run `bash -c command`, which executes `script` if there is one, made executable first."""

    async def _put(self, source: Path, target: str) -> None:
        """Copy a file in, or the contents of a directory."""

    async def _fetch(self, source: str, target: Path) -> tuple[str, ...]:
        """Copy a file out, or the contents of a directory; return the files that were refused.

        Raises:
            SlowTransferError: it timed out; the files copied so far are kept.
        """

    async def _kind_of(self, path: str) -> str | None:
        """Return what is at a path: file, directory, other, or None for nothing."""

    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        """Run `bash -c command`; see Environment."""
        return await self._exec(command, cwd, env, timeout_sec, user)

    async def exec_script(
        self,
        command: str,
        script: str,
        env: Mapping[str, str] | None = None,
        timeout_sec: int | None = None,
    ) -> ExecResult:
        """Run `bash -c command`, which executes `script`, made executable first."""
        return await self._exec(command, None, env, timeout_sec, None, script)

    def _result_of(self, command: str, done: Finished) -> ExecResult:
        """Return the result of a command; report a finding if its output was cut."""
        text = done.output.decode(errors="replace")
        log = self.output_log
        if done.n_cut and not (log and log.replaces_results):
            text += f"\n[{done.n_cut:,} bytes of output were cut here]\n"
        # What is recorded is cut by other limits, and the trial reports it.
        if done.n_cut and log is None:
            self._report(
                FindingCode.OUTPUT_CUT,
                f"a command printed more than is kept: {done.n_cut:,} bytes were cut",
                command=command[:200],
                bytes_cut=done.n_cut,
            )
        return ExecResult(text or None, None, done.return_code)

    @contextlib.contextmanager
    def _heard(self, command: str) -> Iterator[CommandOutput | None]:
        """Record a command while it runs, if output is recorded."""
        log = self.output_log
        if log is None:
            yield None
            return
        output = log.start(command)
        try:
            yield output
        finally:
            output.close()

    def _hearing(self, output: CommandOutput | None) -> Hearing | None:
        if output is None or self.output_log is None:
            return None
        return Hearing(output.feed, LITTLE if self.output_log.replaces_results else KEPT)

    def _report(self, code: FindingCode, message: str, **detail: object) -> None:
        finding = Finding(code=code, phase=self._phase, message=message, detail=detail)
        self._found().append(finding)

    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        """Copy a file in."""
        await self._put(Path(source_path), target_path)

    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        """Copy the contents of a directory into another."""
        source = Path(source_dir)
        if not source.is_dir():
            raise NotADirectoryError(20, "not a directory that could be uploaded", str(source))
        await self._put(source, target_dir)

    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        """Copy a file out."""
        await self._take(source_path, Path(target_path))

    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        """Copy the contents of a directory out."""
        await self._take(source_dir, Path(target_dir))

    async def _take(self, source: str, target: Path) -> None:
        try:
            refused = await self._fetch(source, target)
        except SlowTransferError as error:
            if self._phase != "agent" or source == str(INSIDE.verifier_dir):
                # With only half of the verifier's files, the reward would be wrong.
                raise
            refused = (f"{source}: {error}",)
        if refused:
            self._report(
                FindingCode.FILES_REFUSED,
                f"{count_of(len(refused), 'file')} of {source} not collected: {refused[0]}",
                source=source,
                count=len(refused),
                refused=list(refused[:_SHOWN]),
            )

    async def list_files(self, places: Sequence[str], limit: int) -> Sequence[SeenFile]:
        """List the files at or below these paths; see Listing."""

    async def is_dir(self, path: str, user: str | int | None = None) -> bool:
        """Whether a path is a directory."""
        return await self._kind_of(path) == "directory"

    async def is_file(self, path: str, user: str | int | None = None) -> bool:
        """Whether a path is a file."""
        return await self._kind_of(path) == "file"


class StartedEnvironment(RunningEnvironment, Protocol):
    """One that a trial starts and stops; implement `_start`, `_end` and `_look_at_tools`."""

    _backend: str
    _findings: list[Finding]
    _snapshot: Snapshot | None
    _ending: asyncio.Task[None] | None

    def _take_order(self, order: EnvironmentOrder) -> None:
        super()._take_order(order)
        self._findings, self._snapshot, self._ending = [], None, None

    @property
    def snapshot(self) -> Snapshot:
        """Image and backend; unknown before start."""
        return self._snapshot or Snapshot(runtime_image="unknown", compute_backend=self._backend)

    @property
    def findings(self) -> Sequence[Finding]:
        """Findings so far."""
        return tuple(self._findings)

    def _warn(
        self, code: FindingCode, message: str, phase: str = "setup", **detail: object
    ) -> None:
        self._order.logger.warning(message)
        self._note(code, message, phase, **detail)

    def _note(
        self, code: FindingCode, message: str, phase: str = "setup", **detail: object
    ) -> None:
        self._findings.append(Finding(code=code, phase=phase, message=message, detail=detail))

    async def start(self, force_build: bool) -> None:  # noqa: FBT001 - harbor's signature
        """Make its root if needed, and start it.

        Raises:
            SandboxError, DockerError, ImageError, UnsupportedError: it cannot be started.
            RuntimeError: the Dockerfile could not be built.
        """
        self._ending = None
        async with self._ended_on_error():
            await self._start(force_build=force_build)

    async def stop(self, delete: bool) -> None:  # noqa: FBT001 - harbor's signature
        """End everything in it. No files are kept, whatever `delete` says; its image stays."""
        await self._end()

    @contextlib.asynccontextmanager
    async def _ended_on_error(self) -> AsyncIterator[None]:
        try:
            yield
        except BaseException:
            await self._end()
            raise

    async def _start(self, *, force_build: bool) -> None: ...

    async def _end(self) -> None:
        """End it once; a cancelled caller does not interrupt this."""

    async def find_changed_tools(self) -> Sequence[ChangedFile]:
        """Find system tools that the agent changed; see ToolRestoring."""
        seen = self._look_at_tools()
        return () if seen is None else await asyncio.to_thread(find_changed_tools, *seen)

    async def mark_tools(self) -> Mapping[str, str]:
        """Return marks of the image's tools that were rewritten; see ToolRestoring."""
        seen = self._look_at_tools()
        return {} if seen is None else await asyncio.to_thread(mark_tools, *seen)

    def _look_at_tools(self) -> tuple[Changes, Lookup] | None:
        """Return the changes of its tools; None if none are relevant, or none can be seen."""


def has_files_in_memory(files: Sequence[SeenFile]) -> bool:
    """Whether files were created below /dev, which starts with only devices and links."""
    return any(file.size is not None or file.path.startswith(f"{MEMORY}/") for file in files)
