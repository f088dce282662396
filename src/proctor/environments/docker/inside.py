"""What can be done in a container that runs, from where the agent is or from a verifier's room.

Speaks harbor's dialect over commands and files. Nothing here starts or ends a container.
"""

import shlex
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from proctor.environments.dialect import Dialect
from proctor.environments.docker.command import Order, run_command
from proctor.environments.docker.files import Files
from proctor.environments.docker.image import Image
from proctor.environments.sandbox.output import Finished
from proctor.errors import DockerError
from proctor.sentence import count_of
from proctor.trial.environment import Capabilities, ExecResult, SeenFile
from proctor.trial.finding import Finding, FindingCode
from proctor.trial.order import EnvironmentOrder
from proctor.trial.paths import TrialPaths

_CAPABILITIES = Capabilities(disable_internet=True)
_ROOT = frozenset({"", "0", "root"})
_SHOWN = 20
"""How many refused files a finding names."""


@dataclass(slots=True)
class Running:
    """A container that runs, and what holds for every command in it."""

    container: str
    """Its name."""
    image: Image
    shell: str
    workdir: str
    env: Mapping[str, str]
    """Variables of every command, besides the image's own."""
    files: Files
    findings: list[Finding] = field(default_factory=list)


class Inside(Dialect):
    """Commands and files of a container."""

    _phase = "agent"
    """The phase that a finding of a command or a download belongs to."""

    def __init__(self, order: EnvironmentOrder) -> None:
        self._order = order
        self.session_id = order.session_id
        self.trial_paths: TrialPaths = order.trial_paths
        self.default_user: str | int | None = None
        self._running: Running | None = None

    @staticmethod
    def type() -> str:
        """Harbor's name of its kind."""
        return "docker"

    @property
    def os(self) -> str:
        """Always Linux."""
        return "linux"

    @property
    def capabilities(self) -> Capabilities:
        """It can be cut off from the network; its logs have to be fetched."""
        return _CAPABILITIES

    def _now(self) -> Running:
        if self._running is None:
            raise DockerError(f"{self.session_id}: the container does not run: start it first")
        return self._running

    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        """Run `bash -c command`; see Environment."""
        order = self._make_order(command, cwd, env, self._resolve_user(user))
        return await self._carry_out(order, timeout_sec, self._run)

    async def exec_script(
        self,
        command: str,
        script: str,
        env: Mapping[str, str] | None = None,
        timeout_sec: int | None = None,
    ) -> ExecResult:
        """Run `bash -c command`, which runs a script that everybody may execute; see Marking."""
        user = self._resolve_user(None)
        script = await self._mark(script, user)
        order = self._make_order(command, None, env, user, script)
        return await self._carry_out(order, timeout_sec, self._run)

    async def _mark(self, script: str, user: str) -> str:
        """Let everybody execute a script; the script, where the command is to do that itself."""
        if await self._now().files.mark(script):
            return ""
        if user in _ROOT:
            return script
        await self.exec(f"chmod +x {shlex.quote(script)}", user="root")
        return ""

    def _make_order(
        self,
        command: str,
        cwd: str | None,
        env: Mapping[str, str] | None,
        user: str,
        script: str = "",
    ) -> Order:
        now = self._now()
        return Order(
            container=now.container,
            shell=now.shell,
            text=command,
            workdir=cwd or now.workdir,
            env={**now.env, **(env or {})},
            user=user,
            script=script,
        )

    async def _carry_out(
        self,
        order: Order,
        timeout_sec: int | None,
        run: Callable[[Order, int | None], Awaitable[Finished]],
    ) -> ExecResult:
        try:
            done = await run(order, timeout_sec)
        except TimeoutError as error:
            raise RuntimeError(f"Command timed out after {timeout_sec} seconds") from error
        text = done.output.decode(errors="replace")
        if done.n_cut:
            text += f"\n[{done.n_cut:,} bytes of output were cut here]\n"
            self._report_cut(order.text, done.n_cut)
        return ExecResult(text or None, None, done.return_code)

    async def _run(self, order: Order, timeout_sec: int | None) -> Finished:
        return await run_command(order, timeout_sec)

    def _resolve_user(self, user: str | int | None) -> str:
        chosen = next((one for one in (user, self.default_user) if one is not None), "")
        # An image need not have a line for root.
        return "0" if chosen == "root" else str(chosen)

    def _report_cut(self, command: str, n_cut: int) -> None:
        finding = Finding(
            code=FindingCode.OUTPUT_CUT,
            phase=self._phase,
            message=f"a command printed more than is kept: {n_cut:,} bytes were cut",
            detail={"command": command[:200], "bytes_cut": n_cut},
        )
        self._now().findings.append(finding)

    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        """Copy a file in."""
        await self._now().files.put(Path(source_path), target_path)

    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        """Copy the contents of a directory into another."""
        source = Path(source_dir)
        if not source.is_dir():
            raise NotADirectoryError(20, "not a directory that could be uploaded", str(source))
        await self._now().files.put(source, target_dir)

    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        """Copy a file out."""
        await self._take(source_path, Path(target_path))

    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        """Copy the contents of a directory out."""
        await self._take(source_dir, Path(target_dir))

    async def _take(self, source: str, target: Path) -> None:
        now = self._now()
        refused = await now.files.take(source, target)
        if refused:
            finding = Finding(
                code=FindingCode.FILES_REFUSED,
                phase=self._phase,
                message=f"{count_of(len(refused), 'file')} of {source} not collected: {refused[0]}",
                detail={"source": source, "count": len(refused), "refused": list(refused[:_SHOWN])},
            )
            now.findings.append(finding)

    async def list_files(self, places: Sequence[str], limit: int) -> Sequence[SeenFile]:
        """The files at or below these paths; see Listing."""
        found = await self._now().files.list_files(places, limit)
        return [SeenFile(file.path, file.size, file.sha256) for file in found]

    async def is_dir(self, path: str, user: str | int | None = None) -> bool:
        """Whether there is a directory."""
        return await self._now().files.kind_of(path) == "directory"

    async def is_file(self, path: str, user: str | int | None = None) -> bool:
        """Whether there is a file."""
        return await self._now().files.kind_of(path) == "file"
