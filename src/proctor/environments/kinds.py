"""The environment that a job asks for: ours by their import paths, any other class by its own.

Each kind is loaded when a job asks for it: a run uses one of them, and they are large.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Self

from proctor.environments.dialect import Dialect
from proctor.environments.foreign import make_foreign_environment
from proctor.environments.sandbox.delete import delete_tree
from proctor.errors import UnsupportedError
from proctor.files import write_small
from proctor.harbor.configs import DOCKER, NULL, SANDBOX, EnvironmentConfig
from proctor.trial.environment import Capabilities, Environment, ExecResult, Process, Snapshot
from proctor.trial.finding import Finding
from proctor.trial.order import EnvironmentOrder, MakeEnvironment
from proctor.trial.paths import INSIDE, TrialPaths

# An environment that is nothing at all: for measuring what a run costs besides its commands
#
# No command runs. Where the test script would, a reward is left, so that a trial goes through all
# its phases. Its log directories are the trial's own.


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


if TYPE_CHECKING:
    from proctor.environments.sandbox.reap import Reaped


def _make_sandbox(order: EnvironmentOrder) -> Environment:
    sandbox = import_module("proctor.environments.sandbox.environment")
    made: Environment = sandbox.SandboxEnvironment(order)
    return made


def _make_docker(order: EnvironmentOrder) -> Environment:
    docker = import_module("proctor.environments.docker.environment")
    made: Environment = docker.DockerEnvironment(order)
    return made


_BUILT_IN: dict[str, tuple[str, MakeEnvironment]] = {
    SANDBOX: ("sandbox", _make_sandbox),
    NULL: ("null", NullEnvironment),
}
_BY_TYPE: dict[str, MakeEnvironment] = {DOCKER: _make_docker}
"""Those of harbor's own types that we have; in its files they have no import path."""
_BY_NAME = {name: import_path for import_path, (name, _) in _BUILT_IN.items()}


def environment_names() -> tuple[str, ...]:
    """The names that -e takes."""
    return (*_BY_NAME, *_BY_TYPE)


def check_type(name: str) -> None:
    """See that harbor's type of an environment is one that we have.

    Raises:
        UnsupportedError: it is not.
    """
    if name not in _BY_TYPE:
        raise _not_built_in(name)


def find_environment_name(kind: str) -> str:
    """What one of ours is called, by its import path; any other by what it is given as."""
    ours = _BUILT_IN.get(kind)
    return ours[0] if ours else kind


def environment_name_for(config: EnvironmentConfig) -> str:
    """What an environment is called: sandbox, null, docker, or its import path."""
    return find_environment_name(config.import_path or config.type or "")


def is_docker(config: EnvironmentConfig) -> bool:
    """Whether a config asks for containers of Docker, ours."""
    return config.import_path is None and config.type == DOCKER


def check_wishes(config: EnvironmentConfig) -> None:
    """See that what a job asks of all its environments can be had; others' say it themselves.

    Raises:
        UnsupportedError, ImageError: it cannot; names the option.
    """
    if config.import_path == SANDBOX:
        import_module("proctor.environments.sandbox.preflight").check_job(config)
    elif is_docker(config):
        import_module("proctor.environments.docker.refusals").check_wishes(config)


async def check_environment(config: EnvironmentConfig) -> None:
    """See that a job's environments can be had on this machine, before anything is created.

    Raises:
        UnsupportedError, ImageError, SandboxError, DockerError: they cannot.
    """
    check_wishes(config)
    if config.import_path == SANDBOX:
        await import_module("proctor.environments.sandbox.preflight").check_machine()
    elif is_docker(config):
        await import_module("proctor.environments.docker.engine").find_engine()


def leaves_traces(config: EnvironmentConfig) -> bool:
    """Whether a run in such environments that is killed leaves something to be reaped."""
    return config.import_path == SANDBOX or is_docker(config)


def reap_for(config: EnvironmentConfig) -> "Reaped":
    """Reap what killed runs in such environments left; blocking, for a thread."""
    reap = import_module("proctor.environments.sandbox.reap")
    done: Reaped = reap.Reaped()
    if is_docker(config):
        import_module("proctor.environments.docker.reap").reap_containers(done)
    reap.reap_dead_runs(done)
    return done


def reap_everything(*, dry_run: bool) -> "Reaped":
    """Reap what killed runs left in environments of all kinds, or say what that would be."""
    reap = import_module("proctor.environments.sandbox.reap")
    done: Reaped = reap.Reaped()
    import_module("proctor.environments.docker.reap").reap_containers(done, dry_run=dry_run)
    reap.reap_dead_runs(done, dry_run=dry_run, everywhere=True)
    return done


def make_environment(order: EnvironmentOrder) -> Environment:
    """The environment that a trial wants; nothing is started.

    Raises:
        UnsupportedError: there is none of this type, or the task asks for what it does not have.
        PluginError: its import path names no environment.
    """
    import_path = order.config.import_path
    if import_path is None:
        check_type(order.config.type or "")
        return _BY_TYPE[order.config.type or ""](order)
    ours = _BUILT_IN.get(import_path)
    return ours[1](order) if ours else make_foreign_environment(import_path, order)


def _not_built_in(name: str) -> UnsupportedError:
    names = " or ".join(environment_names())
    return UnsupportedError(
        f"-e {name}: not built in; use {names}, or a class of yours with "
        "--environment-import-path module.path:ClassName"
    )
