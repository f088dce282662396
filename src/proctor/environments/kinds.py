"""Makes the environment that a job names: a built-in one, one of harbor's, or any class.

Each kind is imported on use: a run needs only one of them, and they are large.
"""

import sys
from collections.abc import Collection
from importlib import import_module
from typing import TYPE_CHECKING

from proctor.environments.foreign import (
    check_harbors_account,
    check_harbors_environment,
    make_foreign_environment,
    make_harbors_environment,
)
from proctor.environments.null import NullEnvironment
from proctor.errors import ImageError, UnsupportedError
from proctor.harbor.configs import (
    DOCKER,
    HARBOR_ENVIRONMENTS,
    NULL,
    SANDBOX,
    EnvironmentConfig,
)
from proctor.trial.environment import Environment, EnvironmentOrder, MakeEnvironment

if TYPE_CHECKING:
    from proctor.environments.sandbox.reap import Reaped
    from proctor.environments.sandbox.roots.images import ImageStore


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
# harbor's environment types that proctor has too; in harbor's files they have no import path.
_BY_TYPE: dict[str, MakeEnvironment] = {DOCKER: _make_docker}
_BY_NAME = {name: import_path for import_path, (name, _) in _BUILT_IN.items()}


def environment_names() -> tuple[str, ...]:
    """Return the environments that are part of proctor."""
    return (*_BY_NAME, *_BY_TYPE)


def check_type(name: str) -> None:
    """Check that an environment type is one of ours, or of the installed harbor.

    Raises:
        UnsupportedError: it is not; the message says what is there, or how to install it.
    """
    if name in _BY_TYPE:
        return
    if name not in HARBOR_ENVIRONMENTS:
        raise _not_built_in(name)
    check_harbors_environment(name)


def find_environment_name(kind: str) -> str:
    """Return the name of a built-in environment by its import path; others keep theirs."""
    ours = _BUILT_IN.get(kind)
    return ours[0] if ours else kind


def environment_name_for(config: EnvironmentConfig) -> str:
    """Return the name of an environment: sandbox, null, docker, or its import path."""
    return find_environment_name(config.import_path or config.type or "")


def is_docker(config: EnvironmentConfig) -> bool:
    """Whether a config selects proctor's docker environment."""
    return config.import_path is None and config.type == DOCKER


def find_harbors(config: EnvironmentConfig) -> str | None:
    """Return the name of the environment of harbor's that a config selects; None for others."""
    is_theirs = config.import_path is None and config.type not in (None, *_BY_TYPE)
    return config.type if is_theirs else None


def is_built_in(config: EnvironmentConfig) -> bool:
    """Whether a config selects an environment of proctor's own, whose class runs no other code."""
    return is_docker(config) or config.import_path in _BUILT_IN


async def find_local_images(config: EnvironmentConfig, names: Collection[str]) -> frozenset[str]:
    """Those of the images that such an environment would not have to fetch."""
    if config.import_path == SANDBOX:
        store = import_module("proctor.environments.sandbox.roots.images").ImageStore()
        return frozenset(name for name in names if _is_there(store, name))
    if is_docker(config):
        image = import_module("proctor.environments.docker.image")
        found = [name for name in names if await image.find_image(name) is not None]
        return frozenset(found)
    # The null environment has no image, and of other classes nothing is known.
    return frozenset(names if config.import_path == NULL else ())


def _is_there(store: "ImageStore", name: str) -> bool:
    try:
        return store.find(name) is not None
    except ImageError:
        return False


def check_options(config: EnvironmentConfig) -> None:
    """Check the options of a job's environments; classes by import path check their own."""
    if config.import_path == SANDBOX:
        check_platform(sys.platform)
        import_module("proctor.environments.sandbox.preflight").check_job(config)
    elif is_docker(config):
        import_module("proctor.environments.docker.refusals").check_options(config)


def check_reaches_models(config: EnvironmentConfig) -> None:
    """Check that programs inside a job's environments can reach its model gateway on the host.

    For agents that run inside; one that runs on the host reaches the gateway directly.

    Raises:
        UnsupportedError: they cannot; the message says why, and what to do.
    """
    if is_docker(config):
        refusals = import_module("proctor.environments.docker.refusals")
        refusals.check_reaches_models(config)
    elif config.import_path != SANDBOX:
        raise UnsupportedError(
            f"-e {environment_name_for(config)}: programs in this environment cannot reach the "
            "job's model gateway; use sandbox or docker, or pass --no-gateway to let the agent "
            "reach models by itself"
        )


def check_platform(platform: str) -> None:
    """Check that an operating system, as in `sys.platform`, can have sandboxes.

    Raises:
        UnsupportedError: it cannot; the message says what works there.
    """
    if platform == "linux":
        return
    name = {"darwin": "macOS", "win32": "Windows"}.get(platform, platform)
    raise UnsupportedError(
        f"the sandbox requires Linux, and this is {name}. `proctor score`, `audit`, `view` and "
        "all other commands that only read work here. To run agents, pass `-e docker` with a "
        "Docker engine, or use proctor in a Linux virtual machine"
    )


async def check_environment(config: EnvironmentConfig) -> None:
    """Check, before a job starts, that its environments can run on this machine."""
    check_options(config)
    if config.import_path == SANDBOX:
        await import_module("proctor.environments.sandbox.preflight").check_machine()
    elif is_docker(config):
        await import_module("proctor.environments.docker.engine").find_engine()
    elif name := find_harbors(config):
        check_harbors_account(name)


def needs_reaping(config: EnvironmentConfig) -> bool:
    """Whether a killed run can leave processes, files or containers of such an environment."""
    return config.import_path == SANDBOX or is_docker(config)


def reap_for(config: EnvironmentConfig) -> "Reaped":
    """Remove what killed runs left of such environments. Blocks: call it in a thread."""
    reap = import_module("proctor.environments.sandbox.reap")
    done: Reaped = reap.Reaped()
    if is_docker(config):
        import_module("proctor.environments.docker.reap").reap_containers(done)
    reap.reap_dead_runs(done)
    return done


def reap_everything(*, dry_run: bool) -> "Reaped":
    """Remove what killed runs left of environments of all kinds; with `dry_run`, only list it."""
    reap = import_module("proctor.environments.sandbox.reap")
    done: Reaped = reap.Reaped()
    import_module("proctor.environments.docker.reap").reap_containers(done, dry_run=dry_run)
    reap.reap_dead_runs(done, dry_run=dry_run, everywhere=True)
    return done


def make_environment(order: EnvironmentOrder) -> Environment:
    """Make the environment of a trial, without starting it."""
    import_path, name = order.config.import_path, order.config.type or ""
    if import_path is None and name in _BY_TYPE:
        return _BY_TYPE[name](order)
    if import_path is None:
        check_type(name)
        return make_harbors_environment(name, order)
    ours = _BUILT_IN.get(import_path)
    return ours[1](order) if ours else make_foreign_environment(import_path, order)


def _not_built_in(name: str) -> UnsupportedError:
    names = " or ".join(environment_names())
    return UnsupportedError(
        f"-e {name}: not built in; use {names}, or your own class with "
        "--environment-import-path module.path:ClassName"
    )
