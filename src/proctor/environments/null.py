"""An environment that runs nothing, to measure the overhead of proctor itself.

Instead of running the test script it writes a reward, so that a trial goes through all its phases.
Its log directories are the trial's.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Self

from proctor.environments.running import HarborInterface
from proctor.environments.sandbox.delete import delete_tree
from proctor.errors import UnsupportedError
from proctor.files import write_small
from proctor.trial.environment import Capabilities, EnvironmentOrder, ExecResult, Process, Snapshot
from proctor.trial.finding import Finding
from proctor.trial.paths import INSIDE, TrialPaths

_NOTHING = ExecResult(None, None, 0)
_CAPABILITIES = Capabilities(disable_internet=True, mounted=True)
_SNAPSHOT = Snapshot(runtime_image="null", compute_backend="null")


class NullEnvironment(HarborInterface):
    """An environment that runs nothing."""

    def __init__(self, order: EnvironmentOrder) -> None:
        """Take the kwarg `reward`: the text of reward.txt, by default `1` and a newline."""
        kwargs = dict(order.config.kwargs)
        reward = kwargs.pop("reward", "1\n")
        if kwargs or not isinstance(reward, str | int | float):
            raise UnsupportedError(
                f"--ek {', '.join(sorted(kwargs)) or 'reward'}: the null environment takes only "
                "reward, a number or a text"
            )
        self._order = order
        self._reward = str(reward)
        self.default_user: str | int | None = None
        self.session_id = order.session_id
        self.trial_paths: TrialPaths = order.trial_paths

    @property
    def os(self) -> str:
        """Always Linux."""
        return "linux"

    @property
    def capabilities(self) -> Capabilities:
        """No network; logs are written on the host directly."""
        return _CAPABILITIES

    @property
    def snapshot(self) -> Snapshot:
        """Constant: there is no image."""
        return _SNAPSHOT

    @property
    def findings(self) -> Sequence[Finding]:
        """Always empty."""
        return ()

    async def start(self, force_build: bool) -> None:  # noqa: FBT001 - harbor's signature
        """Do nothing."""

    async def stop(self, delete: bool) -> None:  # noqa: FBT001 - harbor's signature
        """Do nothing."""

    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        """Succeed without output; write a reward if the command would run the tests."""
        # An environment sees only commands, so the verifier's is recognized by its text.
        if "/tests/test.sh" in command and "test-stdout.txt" in command:
            verifier = self.trial_paths.verifier_dir
            write_small(f"{verifier}/test-stdout.txt", b"ok\n")
            write_small(f"{verifier}/reward.txt", self._reward.encode())
        return _NOTHING

    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        """Do nothing."""

    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        """Do nothing."""

    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        """Do nothing."""

    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        """Do nothing."""

    async def is_dir(self, path: str, user: str | int | None = None) -> bool:
        """Whether a path is one of the log directories."""
        places = (INSIDE.logs_dir, INSIDE.agent_dir, INSIDE.verifier_dir, INSIDE.artifacts_dir)
        return path in map(str, places)

    async def prepare_logs_for_host(self) -> None:
        """Do nothing."""

    async def is_file(self, path: str, user: str | int | None = None) -> bool:
        """Return False: there are no files."""
        return False

    async def holds_memory(self) -> bool:
        """Return False."""
        return False

    async def freeze(self) -> None:
        """Do nothing."""

    async def open_frozen(self, paths: TrialPaths) -> Self:
        """Return another null environment with the log directories of `paths`."""
        return type(self)(replace(self._order, trial_paths=paths))

    async def list_processes(self, *, with_services: bool = False) -> Sequence[Process]:
        """Return no processes."""
        return ()

    async def open_room(self, fresh: Sequence[str]) -> Self:
        """Return itself, after emptying the verifier directory if it is in `fresh`."""
        if str(INSIDE.verifier_dir) in fresh:
            with os.scandir(self.trial_paths.verifier_dir) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        delete_tree(Path(entry.path))
                    else:
                        os.unlink(entry)
        return self
