"""The environment that a job asks for: ours by their import paths, any other class by its own.

Each kind is loaded when a job asks for it: a run uses one of them, and they are large.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from proctor.environments.foreign import make_foreign_environment
from proctor.environments.null import NullEnvironment
from proctor.errors import UnsupportedError
from proctor.harbor.configs import DOCKER, NULL, SANDBOX, EnvironmentConfig
from proctor.trial.environment import Environment
from proctor.trial.order import EnvironmentOrder, MakeEnvironment

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
