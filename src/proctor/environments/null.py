"""An environment that is nothing at all: for measuring what a run costs besides its commands.

No command runs. Where the test script would, a reward is left, so that a trial goes through all its
phases. Its log directories are the trial's own.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Self

from proctor.environments.dialect import Dialect
from proctor.environments.sandbox.delete import delete_tree
from proctor.errors import UnsupportedError
from proctor.files import write_small
from proctor.trial.environment import Capabilities, ExecResult, Process, Snapshot
from proctor.trial.finding import Finding
from proctor.trial.order import EnvironmentOrder
from proctor.trial.paths import INSIDE, TrialPaths

_NOTHING = ExecResult(None, None, 0)
_CAPABILITIES = Capabilities(disable_internet=True, mounted=True)
_SNAPSHOT = Snapshot(runtime_image="null", compute_backend="null")


class NullEnvironment(Dialect):
    """An environment in which nothing happens."""

    def __init__(self, order: EnvironmentOrder) -> None:
        """Take the kwarg `reward`: the text of reward.txt, `1` and a newline if it is not given.

        Raises:
            UnsupportedError: a kwarg is unknown, or the reward is no text or number.
        """
        kwargs = dict(order.config.kwargs)
        reward = kwargs.pop("reward", "1\n")
        if kwargs or not isinstance(reward, str | int | float):
            raise UnsupportedError(
                f"--ek {', '.join(sorted(kwargs)) or 'reward'}: the null environment takes nothing "
                "but reward, a number or a text"
            )
        self._order = order
        self._reward = str(reward)
        self.default_user: str | int | None = None
        self.session_id = order.session_id
        self.trial_paths: TrialPaths = order.trial_paths

    @property
    def os(self) -> str:
        """What its paths look like."""
        return "linux"

    @property
    def capabilities(self) -> Capabilities:
        """It cannot reach anything, and its logs are already on the host."""
        return _CAPABILITIES

    @property
    def snapshot(self) -> Snapshot:
        """It runs on nothing."""
        return _SNAPSHOT

    @property
    def findings(self) -> Sequence[Finding]:
        """There is nothing to be found."""
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
        """Succeed without a word; leave a reward where the tests would be run."""
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
        """There are the log directories."""
        places = (INSIDE.logs_dir, INSIDE.agent_dir, INSIDE.verifier_dir, INSIDE.artifacts_dir)
        return path in map(str, places)

    async def prepare_logs_for_host(self) -> None:
        """There is nothing to prepare."""

    async def is_file(self, path: str, user: str | int | None = None) -> bool:
        """There are no files."""
        return False

    async def holds_memory(self) -> bool:
        """It holds nothing."""
        return False

    async def freeze(self) -> None:
        """There is nothing to keep."""

    async def open_frozen(self, paths: TrialPaths) -> Self:
        """Another one, whose log directories are those."""
        return type(self)(replace(self._order, trial_paths=paths))

    async def list_processes(self) -> Sequence[Process]:
        """Nothing runs."""
        return ()

    async def open_room(self, fresh: Sequence[str]) -> Self:
        """Itself, with the trial's verifier directory emptied where it is to be fresh."""
        if str(INSIDE.verifier_dir) in fresh:
            with os.scandir(self.trial_paths.verifier_dir) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        delete_tree(Path(entry.path))
                    else:
                        os.unlink(entry)
        return self
