"""Environments by import path, with harbor's interface, and harbor's own by their names.

One written for harbor runs unchanged: the class is called with the keyword arguments that harbor
passes. A subclass of harbor's BaseEnvironment relies on harbor's models too and gets them, from the
harbor that it imports itself. harbor's own, such as `daytona`, are made by the installed harbor,
whichever release it is. There is no wrapper, and only the methods of `Environment` are used.
"""

import re
from collections.abc import Callable, Iterator
from importlib import metadata
from typing import Any, cast

from proctor.errors import PluginError, UnsupportedError
from proctor.plugin import load_class
from proctor.trial.environment import Environment, EnvironmentOrder

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
