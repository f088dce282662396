"""What the sandbox and the docker environment share once they run.

Results of commands, findings, and harbor's methods for moving files.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from proctor.environments.harbor_interface import HarborInterface
from proctor.environments.sandbox.output import KEPT, LITTLE, Finished, Hearing
from proctor.errors import SlowTransferError
from proctor.sentence import count_of
from proctor.trial.environment import Capabilities, EnvironmentOrder, ExecResult, SeenFile
from proctor.trial.finding import Finding, FindingCode
from proctor.trial.output_log import CommandOutput, OutputLog
from proctor.trial.paths import INSIDE, TrialPaths

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
        ...

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
        ...

    async def _put(self, source: Path, target: str) -> None:
        """Copy a file in, or the contents of a directory."""
        ...

    async def _fetch(self, source: str, target: Path) -> tuple[str, ...]:
        """Copy a file out, or the contents of a directory; return the files that were refused.

        Raises:
            SlowTransferError: it timed out; the files copied so far are kept.
        """
        ...

    async def _kind_of(self, path: str) -> str | None:
        """Return what is at a path: file, directory, other, or None for nothing."""
        ...

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
        ...

    async def is_dir(self, path: str, user: str | int | None = None) -> bool:
        """Whether a path is a directory."""
        return await self._kind_of(path) == "directory"

    async def is_file(self, path: str, user: str | int | None = None) -> bool:
        """Whether a path is a file."""
        return await self._kind_of(path) == "file"


def has_files_in_memory(files: Sequence[SeenFile]) -> bool:
    """Whether files were created below /dev, which starts with only devices and links."""
    return any(file.size is not None or file.path.startswith(f"{MEMORY}/") for file in files)
