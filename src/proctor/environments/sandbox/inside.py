"""What can be done in a sandbox that runs, from where the agent is or from a verifier's room.

Speaks harbor's dialect over a box. Nothing here starts or ends a sandbox.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from proctor.environments.dialect import Dialect
from proctor.environments.sandbox.blueprint import Command
from proctor.environments.sandbox.box import Box
from proctor.errors import SandboxError, UnsupportedError
from proctor.sentence import count_of
from proctor.trial.environment import Capabilities, ExecResult, SeenFile
from proctor.trial.finding import Finding, FindingCode
from proctor.trial.order import EnvironmentOrder
from proctor.trial.paths import TrialPaths

_CAPABILITIES = Capabilities(disable_internet=True)
_ROOT = frozenset({"root", "0"})
_MOST_BYTES = 8 << 30
"""What is fetched at once: an agent must not be able to fill the host's disk."""
_SHOWN = 20
"""How many refused files a finding names."""


@dataclass(slots=True)
class Running:
    """A sandbox that runs, and what holds for every command in it."""

    box: Box
    shell: str
    workdir: str
    env: Mapping[str, str]
    user: str
    """Who runs a command when nobody is named."""
    only_root: bool
    """Other users than root do not exist: the runner is an ordinary user without others' ids."""
    findings: list[Finding] = field(default_factory=list)
    is_owed: bool = False
    """Something could not be fetched out of it: it is not deleted before that was tried again."""


class Inside(Dialect):
    """Commands and files of a sandbox, seen from one of its rooms."""

    _phase = "agent"
    """The phase that a finding of a command or a download belongs to."""

    def __init__(self, order: EnvironmentOrder, room: int) -> None:
        self._order = order
        self.session_id = order.session_id
        self.trial_paths: TrialPaths = order.trial_paths
        self.default_user: str | int | None = None
        self._room = room
        self._running: Running | None = None

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
            raise SandboxError(f"{self.session_id}: the sandbox does not run: start it first")
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
        return await self._exec(command, cwd, env, timeout_sec, user)

    async def exec_script(
        self,
        command: str,
        script: str,
        env: Mapping[str, str] | None = None,
        timeout_sec: int | None = None,
    ) -> ExecResult:
        """Run `bash -c command`, which runs a script that everybody may execute; see Marking."""
        return await self._exec(command, None, env, timeout_sec, None, script)

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
            done = await now.box.run(order, timeout_sec)
        except TimeoutError as error:
            raise RuntimeError(f"Command timed out after {timeout_sec} seconds") from error
        text = done.output.decode(errors="replace")
        if done.n_cut:
            text += f"\n[{done.n_cut:,} bytes of output were cut here]\n"
            self._report_cut(command, done.n_cut)
        return ExecResult(text or None, None, done.return_code)

    def _resolve_user(self, user: str | int | None) -> str:
        now = self._now()
        chosen = next(str(one) for one in (user, self.default_user, now.user) if one is not None)
        check_user(chosen, only_root=now.only_root)
        return chosen

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
        await self._now().box.put(Path(source_path), target_path, room=self._room)

    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        """Copy the contents of a directory into another."""
        source = Path(source_dir)
        if not source.is_dir():
            raise NotADirectoryError(20, "not a directory that could be uploaded", str(source))
        await self._now().box.put(source, target_dir, room=self._room)

    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        """Copy a file out."""
        await self._take(source_path, Path(target_path))

    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        """Copy the contents of a directory out."""
        await self._take(source_dir, Path(target_dir))

    async def _take(self, source: str, target: Path) -> None:
        now = self._now()
        try:
            refused = await now.box.take(source, target, room=self._room, limit=_MOST_BYTES)
        except FileNotFoundError:
            raise
        except (OSError, SandboxError):
            now.is_owed = True
            raise
        if refused:
            finding = Finding(
                code=FindingCode.FILES_REFUSED,
                phase=self._phase,
                message=f"{count_of(len(refused), 'file')} of {source} not collected: {refused[0]}",
                detail={"source": source, "count": len(refused), "refused": list(refused[:_SHOWN])},
            )
            self._now().findings.append(finding)

    async def list_files(self, places: Sequence[str], limit: int) -> Sequence[SeenFile]:
        """The files at or below these paths; see Listing."""
        found = await self._now().box.list_files(places, limit, room=self._room)
        return [SeenFile(file.path, file.size, file.sha256) for file in found]

    async def is_dir(self, path: str, user: str | int | None = None) -> bool:
        """Whether there is a directory."""
        return await self._now().box.kind_of(path, room=self._room) == "directory"

    async def is_file(self, path: str, user: str | int | None = None) -> bool:
        """Whether there is a file."""
        return await self._now().box.kind_of(path, room=self._room) == "file"


class Room(Inside):
    """A verifier's room; it was there when it was opened, and ends with its sandbox."""

    _phase = "verify"

    def __init__(self, of: Inside, running: Running, room: int) -> None:
        super().__init__(of._order, room)  # noqa: SLF001 - its own kind
        self.default_user = of.default_user
        self._running = running

    async def start(self, force_build: bool) -> None:  # noqa: FBT001 - harbor's signature
        """Nothing to do: it runs."""

    async def stop(self, delete: bool) -> None:  # noqa: FBT001 - harbor's signature
        """Nothing to do: it ends with its sandbox."""


def check_user(user: str, *, only_root: bool) -> None:
    """See that a user can exist in a sandbox.

    Raises:
        UnsupportedError: only root can.
    """
    if only_root and user.partition(":")[0] not in _ROOT:
        raise UnsupportedError(
            f"user {user!r}: an ordinary user can give a sandbox no other users than root without "
            "subordinate ids; add lines for this user to /etc/subuid and /etc/subgid and install "
            "newuidmap (package uidmap), or run as root"
        )
