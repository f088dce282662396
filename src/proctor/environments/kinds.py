"""The environment that a job asks for: ours by their import paths, any other class by its own."""

from proctor.environments.foreign import make_foreign_environment
from proctor.environments.null import NullEnvironment
from proctor.environments.sandbox.environment import SandboxEnvironment
from proctor.environments.sandbox.preflight import check_job, check_machine
from proctor.errors import UnsupportedError
from proctor.harbor.configs import NULL, SANDBOX, EnvironmentConfig
from proctor.trial.environment import Environment
from proctor.trial.order import EnvironmentOrder, MakeEnvironment

_BUILT_IN: dict[str, tuple[str, MakeEnvironment]] = {
    SANDBOX: ("sandbox", SandboxEnvironment),
    NULL: ("null", NullEnvironment),
}
_BY_NAME = {name: import_path for import_path, (name, _) in _BUILT_IN.items()}


def environment_names() -> tuple[str, ...]:
    """The names that -e takes."""
    return tuple(_BY_NAME)


def import_path_of(name: str) -> str:
    """The import path of an environment of ours.

    Raises:
        UnsupportedError: there is none of this name.
    """
    if name not in _BY_NAME:
        raise _not_built_in(name)
    return _BY_NAME[name]


def environment_name_for(config: EnvironmentConfig) -> str:
    """What an environment is called: sandbox, null, or its import path."""
    if config.import_path is None:
        return config.type or ""
    ours = _BUILT_IN.get(config.import_path)
    return ours[0] if ours else config.import_path


def check_wishes(config: EnvironmentConfig) -> None:
    """See that what a job asks of all its environments can be had; others' say it themselves.

    Raises:
        UnsupportedError, ImageError: it cannot; names the option.
    """
    if config.import_path == SANDBOX:
        check_job(config)


async def check_environment(config: EnvironmentConfig) -> None:
    """See that a job's environments can be had on this machine, before anything is created.

    Raises:
        UnsupportedError, ImageError, SandboxError: they cannot.
    """
    check_wishes(config)
    if config.import_path == SANDBOX:
        await check_machine()


def make_environment(order: EnvironmentOrder) -> Environment:
    """The environment that a trial wants; nothing is started.

    Raises:
        UnsupportedError: there is none of this type, or the task asks for what it does not have.
        PluginError: its import path names no environment.
    """
    import_path = order.config.import_path
    if import_path is None:
        raise _not_built_in(order.config.type or "")
    ours = _BUILT_IN.get(import_path)
    return ours[1](order) if ours else make_foreign_environment(import_path, order)


def _not_built_in(name: str) -> UnsupportedError:
    return UnsupportedError(
        f"-e {name}: not built in; use {' or '.join(_BY_NAME)}, or a class of yours with "
        "--environment-import-path module.path:ClassName"
    )
