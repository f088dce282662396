"""Environments for the real harbor, so that it runs here without Docker: nothing of ours in them.

NullEnvironment    no process at all; what is left is harbor's own work
OverlayEnvironment namespaces and an overlay over the host's root, a shell for every command: what
                   one writes for harbor with unshare(1) and nsenter(1)
"""

import asyncio
import os
import shlex
import shutil
import signal
from pathlib import Path
from typing import Any

from harbor.environments.base import BaseEnvironment, ExecResult
from harbor.environments.capabilities import EnvironmentCapabilities

_SCRATCH = Path(os.environ.get("BENCH_SCRATCH", "/tmp/bench-overlays"))  # noqa: S108 - a default
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class NullEnvironment(BaseEnvironment):
    """Answers everything at once; the test script leaves a reward of 1."""

    @staticmethod
    def type() -> str:
        """Its name in harbor."""
        return "bench-null"

    @property
    def capabilities(self) -> EnvironmentCapabilities:
        """The logs are the trial's own directories."""
        return EnvironmentCapabilities(mounted=True, disable_internet=True)

    def _validate_definition(self) -> None:
        """Any task will do."""

    async def start(self, force_build: bool) -> None:  # noqa: FBT001 - harbor's
        """Nothing to start."""

    async def stop(self, delete: bool) -> None:  # noqa: FBT001 - harbor's
        """Nothing to stop."""

    async def exec(self, command: str, *_: Any, **__: Any) -> ExecResult:
        """Pretend; write what the test script would."""
        if "test-stdout.txt" in command:
            (self.trial_paths.verifier_dir / "test-stdout.txt").write_text("")
            (self.trial_paths.verifier_dir / "reward.txt").write_text("1\n")
        return ExecResult(stdout="", stderr=None, return_code=0)

    async def upload_file(self, source_path: Any, target_path: str) -> None:
        """Nowhere to put it."""

    async def upload_dir(self, source_dir: Any, target_dir: str) -> None:
        """Nowhere to put it."""

    async def download_file(self, source_path: str, target_path: Any) -> None:
        """Nothing to fetch."""

    async def download_dir(self, source_dir: str, target_dir: Any) -> None:
        """Nothing to fetch."""


class OverlayEnvironment(NullEnvironment):
    """A holder process in namespaces of its own; every command enters them."""

    workdir = "/app"
    _holder: asyncio.subprocess.Process
    _pid: int

    @staticmethod
    def type() -> str:
        """Its name in harbor."""
        return "bench-overlay"

    @property
    def _directory(self) -> Path:
        return _SCRATCH / str(self.session_id)

    def _host(self, path: str) -> Path:
        return Path(f"/proc/{self._pid}/root{path}")

    async def start(self, force_build: bool) -> None:  # noqa: FBT001 - harbor's
        """Mount, bind the logs, hold."""
        base = self._directory
        for name in ("upper", "work", "root"):
            (base / name).mkdir(parents=True)
        root = base / "root"
        options = f"lowerdir=/,upperdir={base}/upper,workdir={base}/work"
        lines = ["set -e", f"mount -t overlay overlay -o {options} {root}"]
        for mount in self._mounts:
            target = f"{root}{mount['target']}"
            lines += [f"mkdir -p {target}", f"mount --bind {shlex.quote(mount['source'])} {target}"]
        lines += [
            f"mount --rbind /dev {root}/dev",
            f"mount -t proc proc {root}/proc",
            f"mkdir -p {root}{self.workdir}",
            "echo ready",
            f"exec chroot {root} sleep infinity",
        ]
        flags = ("-m", "-p", "-f", "-u", "-i", "-n", "--kill-child", "--propagation", "private")
        self._holder = await asyncio.create_subprocess_exec(
            "unshare", *flags, "bash", "-c", "\n".join(lines),
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
            start_new_session=True,
        )  # fmt: skip
        assert self._holder.stdout is not None  # noqa: S101 - it was asked for
        if (await self._holder.stdout.readline()).strip() != b"ready":
            raise RuntimeError("the overlay could not be mounted")
        children = Path(f"/proc/{self._holder.pid}/task/{self._holder.pid}/children")
        self._pid = int(children.read_text().split()[0])
        while Path(f"/proc/{self._pid}/root").readlink() != root:
            await asyncio.sleep(0.001)

    async def stop(self, delete: bool) -> None:  # noqa: FBT001 - harbor's
        """End the holder, and with it everything."""
        if self._holder.returncode is None:
            os.killpg(self._holder.pid, signal.SIGKILL)
            await self._holder.wait()
        await asyncio.to_thread(shutil.rmtree, self._directory, ignore_errors=True)

    async def exec(
        self, command: str, cwd: Any = None, env: Any = None, timeout_sec: Any = None, *_: Any,
        **__: Any,
    ) -> ExecResult:  # fmt: skip
        """Enter, run, leave."""
        variables = {"PATH": _PATH, "HOME": "/root", **(self._merge_env(env) or {})}
        process = await asyncio.create_subprocess_exec(
            "nsenter", "-t", str(self._pid), "-m", "-p", "-u", "-i", "-n", "-r", "-w", "--",
            "env", "-i", *(f"{key}={value}" for key, value in variables.items()),
            "bash", "-c", f"cd {shlex.quote(str(cwd or self.workdir))} && {{ {command}\n}}",
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        try:
            output, _errors = await asyncio.wait_for(process.communicate(), timeout_sec)
        except TimeoutError:
            raise RuntimeError(f"Command timed out after {timeout_sec} seconds") from None
        finally:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
        return ExecResult(
            stdout=output.decode(errors="replace"), stderr=None, return_code=process.returncode or 0
        )

    async def upload_file(self, source_path: Any, target_path: str) -> None:
        """Copy through the holder's root."""
        self._host(target_path).parent.mkdir(parents=True, exist_ok=True)
        await asyncio.to_thread(shutil.copy2, source_path, self._host(target_path))

    async def upload_dir(self, source_dir: Any, target_dir: str) -> None:
        """Copy through the holder's root."""
        await asyncio.to_thread(
            shutil.copytree, source_dir, self._host(target_dir), dirs_exist_ok=True
        )
