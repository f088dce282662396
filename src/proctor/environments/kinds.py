"""Makes the environment that a job names: a built-in one, one of harbor's, or any class.

Each kind is imported on use: a run needs only one of them, and they are large.

An environment by import path that is written for harbor runs unchanged: the class is called with
the keyword arguments that harbor passes. A subclass of harbor's BaseEnvironment relies on harbor's
models too and gets them, from the harbor that it imports itself. harbor's own, such as `daytona`,
are made by the installed harbor, whichever release it is. There is no wrapper, and only the methods
of `Environment` are used.
"""

import re
import sys
from collections.abc import Callable, Collection, Iterator
from importlib import import_module, metadata
from typing import TYPE_CHECKING, Any, cast

from proctor.environments.null import NullEnvironment
from proctor.errors import ImageError, PluginError, UnsupportedError
from proctor.harbor.configs import DOCKER, HARBOR_ENVIRONMENTS, NULL, SANDBOX, EnvironmentConfig
from proctor.plugin import load_class
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
        names = " or ".join(environment_names())
        raise UnsupportedError(
            f"-e {name}: not built in; use {names}, or your own class with "
            "--environment-import-path module.path:ClassName"
        )
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
        await import_module("proctor.environments.docker.program").find_engine()
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


ENVIRONMENT_METHODS = (
    *("start", "stop", "exec", "upload_file", "upload_dir", "download_file", "download_dir"),
    *("is_dir", "is_file"),
)
"""Methods of harbor's environment interface that a trial uses."""
_BASE = "harbor.environments.base"
_MODELS = {
    "task_env_config": "harbor.models.task.config:EnvironmentConfig",
    "network_policy": "harbor.models.task.config:NetworkPolicy",
    "override_tpu": "harbor.models.task.config:TpuSpec",
    "trial_paths": "harbor.models.trial.paths:TrialPaths",
    "mode": "harbor.models.trial.config:ResourceMode",
}


def make_foreign_environment(import_path: str, order: EnvironmentOrder) -> Environment:
    """Make an environment by its import path. Exceptions of its constructor are not wrapped."""
    kind = load_class(import_path, "environment", ENVIRONMENT_METHODS)
    given = _harbors(order) if _is_harbors(kind) else _plain(order)
    _check_once(import_path, order, given)
    made = kind(**given, **order.config.kwargs)
    _check_attributes(import_path, made)
    return cast(Environment, made)


def make_harbors_environment(name: str, order: EnvironmentOrder) -> Environment:
    """Make one of harbor's environments. Exceptions of its constructor are not wrapped."""
    given = _harbors(order)
    _check_once(name, order, given)
    made = _factory().create_environment(type=_find_type(name), **given, **order.config.kwargs)
    _check_attributes(name, made)
    return cast(Environment, made)


def check_harbors_environment(name: str) -> None:
    """Check that one of harbor's environments is installed, with the packages that it needs.

    Raises:
        UnsupportedError: it is not; the message says how to install it.
    """
    try:
        missing = list(_find_missing(name))
    except metadata.PackageNotFoundError:
        raise UnsupportedError(
            f"-e {name} is one of harbor's environments, and harbor is not installed; run: "
            f"pip install 'proctor[harbor]' 'harbor[{name}]'"
        ) from None
    if missing:
        raise UnsupportedError(
            f"-e {name}: harbor's environment needs {', '.join(missing)}, which is not installed; "
            f"run: pip install 'harbor[{name}]'"
        )
    _find_type(name)


def check_harbors_account(name: str) -> None:
    """Run harbor's own check of one of its environments: credentials, for most of them.

    Raises:
        UnsupportedError: it fails; the message is harbor's.
    """
    try:
        _factory().run_preflight(type=_find_type(name))
    # harbor's checks end its own program with a sentence.
    except (SystemExit, Exception) as error:
        raise UnsupportedError(f"-e {name}: {error}") from error


def _find_missing(name: str) -> Iterator[str]:
    """Packages of the extra of an environment that are not installed."""
    for requirement in metadata.requires("harbor") or ():
        package, _, marker = requirement.partition(";")
        if re.search(rf"""extra\s*==\s*['"]{re.escape(name)}['"]""", marker):
            (needed,) = re.findall(r"^[A-Za-z0-9._-]+", package)
            try:
                metadata.version(needed)
            except metadata.PackageNotFoundError:
                yield needed


def _find_type(name: str) -> Any:
    types = load_class("harbor.models.environment_type:EnvironmentType", "list of environments")
    try:
        return types(name)
    except ValueError as error:
        version = metadata.version("harbor")
        raise UnsupportedError(
            f"-e {name}: harbor {version}, which is installed, has no such environment"
        ) from error


def _factory() -> Any:
    return load_class("harbor.environments.factory:EnvironmentFactory", "part of harbor")


def _is_harbors(kind: type) -> bool:
    # By name, because harbor need not be installed.
    return any(above.__module__ == _BASE for above in kind.__mro__)


def _check_once(name: str, order: EnvironmentOrder, given: dict[str, Any]) -> None:
    if twice := sorted(given.keys() & order.config.kwargs.keys()):
        raise PluginError(
            f"{name}: kwarg {', '.join(twice)} is given to every environment by proctor; "
            "leave it out of --ek"
        )


def _check_attributes(import_path: str, made: object) -> None:
    wanted = ("default_user", "session_id", "trial_paths", "os", "capabilities")
    missing = [name for name in wanted if not hasattr(made, name)]
    if missing:
        raise PluginError(
            f"{import_path}: the environment has no {', '.join(missing)}; expected the attributes "
            f"of harbor's environments: {', '.join(wanted)}"
        )


def _plain(order: EnvironmentOrder) -> dict[str, Any]:
    """Return harbor's keyword arguments, with our own types, which have the same attributes."""
    config = order.config
    given: dict[str, Any] = {
        "environment_dir": order.environment_dir,
        "environment_name": order.environment_name,
        "session_id": order.session_id,
        "trial_paths": order.trial_paths,
        "task_env_config": order.task_env_config,
        "logger": order.logger,
        "override_cpus": config.override_cpus,
        "override_memory_mb": config.override_memory_mb,
        "override_storage_mb": config.override_storage_mb,
        "override_gpus": config.override_gpus,
        "override_tpu": config.override_tpu,
        "persistent_env": dict(order.persistent_env),
        "mounts": [dict(mount) for mount in order.mounts],
        "network_policy": order.network,
        "extra_docker_compose": list(config.extra_docker_compose),
    }
    policies = {
        "cpu_enforcement_policy": config.cpu_enforcement_policy,
        "memory_enforcement_policy": config.memory_enforcement_policy,
    }
    # Passed only when they are set, so that classes without these arguments work too.
    return given | {name: mode for name, mode in policies.items() if mode != "auto"}


def _harbors(order: EnvironmentOrder) -> dict[str, Any]:
    """Return harbor's keyword arguments, with harbor's models."""
    given = _plain(order)
    tpu = order.config.override_tpu
    return given | {
        "task_env_config": _model("task_env_config")(
            **order.task_env_config.model_dump(mode="json")
        ),
        "network_policy": _model("network_policy")(
            network_mode=order.network.mode.value, allowed_hosts=list(order.network.allowed_hosts)
        ),
        "override_tpu": None if tpu is None else _model("override_tpu")(**tpu.model_dump()),
        "trial_paths": _model("trial_paths")(order.trial_paths.trial_dir),
        **{
            name: _model("mode")(mode)
            for name, mode in given.items()
            if name.endswith("_enforcement_policy")
        },
    }


def _model(name: str) -> Callable[..., Any]:
    return cast(Callable[..., Any], load_class(_MODELS[name], "model of harbor"))
