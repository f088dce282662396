"""Flags about the environment to the environment of a JobConfig. Nothing is built here."""

from collections.abc import Sequence
from typing import get_args

import click

from proctor.cli.running.agents import check_hosts
from proctor.cli.running.flags import EnvironmentFlags
from proctor.cli.running.pairs import parse_arguments, parse_tpu
from proctor.errors import InputError
from proctor.harbor.configs import (
    DOCKER,
    OWN_ENVIRONMENTS,
    SANDBOX,
    EnvironmentConfig,
    EnvironmentType,
    JobConfig,
)

_DIRECT = {
    "force_build": "force_build",
    "delete": "delete",
    "cpus": "cpu_enforcement_policy",
    "memory": "memory_enforcement_policy",
    "override_cpus": "override_cpus",
    "override_memory_mb": "override_memory_mb",
    "override_storage_mb": "override_storage_mb",
    "override_gpus": "override_gpus",
}
"""Flags that set a field of the config as they are."""


def set_environment(config: JobConfig, flags: EnvironmentFlags) -> None:
    """Put what the flags ask for into a config.

    Raises:
        UsageError: flags that do not go together.
        InputError: an environment that is not here, or a value that cannot be used.
    """
    wished = config.environment
    _choose(wished, flags)
    for flag, field in _DIRECT.items():
        if (value := getattr(flags, flag)) is not None:
            setattr(wished, field, value)
    if flags.override_tpu is not None:
        wished.override_tpu = parse_tpu(flags.override_tpu)
    wished.kwargs.update(parse_arguments("--ek", flags.environment_kwargs))
    if flags.base is not None:
        _set_base(wished, flags.base)
    if flags.allow_host_port:
        _set_host_ports(wished, flags.allow_host_port)
    wished.extra_allowed_hosts.extend(
        check_hosts("--allow-environment-host", flags.allow_environment_host)
    )
    _check_honoured(wished)
    _check_hosts(config)


def _choose(wished: EnvironmentConfig, flags: EnvironmentFlags) -> None:
    if flags.environment is not None and flags.environment_import_path is not None:
        raise click.UsageError("--env does not go with --environment-import-path")
    if flags.environment_import_path is not None:
        wished.type, wished.import_path = None, flags.environment_import_path
    elif flags.environment is not None:
        _take("--env", wished, flags.environment)
    elif wished.type is not None and wished.import_path is None:
        _take("environment.type", wished, wished.type)
    else:
        # As in harbor, a class in the config goes before a type.
        wished.type = None


def _take(where: str, wished: EnvironmentConfig, name: str) -> None:
    """Wish for an environment of ours; one that harbor has too stands under its type there."""
    if name == DOCKER:
        wished.type, wished.import_path = "docker", None
        return
    if name in OWN_ENVIRONMENTS:
        wished.type, wished.import_path = None, OWN_ENVIRONMENTS[name]
        return
    if name in get_args(EnvironmentType.__value__):
        raise InputError(
            f"{where} is {name}, an environment of harbor that proctor does not have; "
            "-e sandbox runs here without a daemon, and --environment-import-path takes any class"
        )
    raise InputError(f"{where} is {name!r}; expected {' or '.join((*OWN_ENVIRONMENTS, DOCKER))}")


def _set_base(wished: EnvironmentConfig, base: str) -> None:
    if wished.import_path != SANDBOX:
        raise click.UsageError("--base goes with --env sandbox")
    if wished.kwargs.setdefault("base", base) != base:
        raise click.UsageError("--base and --ek base=… say different things")


def _set_host_ports(wished: EnvironmentConfig, ports: Sequence[str]) -> None:
    if wished.import_path != SANDBOX:
        raise click.UsageError("--allow-host-port goes with --env sandbox")
    named = wished.kwargs.get("host_ports") or []
    wished.kwargs["host_ports"] = [*([named] if isinstance(named, str) else named), *ports]


def _check_honoured(wished: EnvironmentConfig) -> None:
    """See that one of ours is not asked for what it would ignore."""
    names = {path: name for name, path in OWN_ENVIRONMENTS.items()}
    name = names.get(wished.import_path or "", "docker environment" if wished.type else None)
    if name is None:
        return
    for field in ("mounts", "extra_docker_compose"):
        if getattr(wished, field):
            raise InputError(
                f"environment.{field}: the {name} has none; take it out of the config, or name "
                "an environment class that does"
            )


def _check_hosts(config: JobConfig) -> None:
    """See that one of ours is not told of hosts: every trial would end before it began."""
    names = {SANDBOX: "sandbox", None: "docker environment"}
    name = names.get(config.environment.import_path)
    if name is None:
        return
    told = {
        "--allow-environment-host": config.environment.extra_allowed_hosts,
        "--allow-agent-host": [host for one in config.agents for host in one.extra_allowed_hosts],
    }
    for option, hosts in told.items():
        if hosts:
            raise InputError(
                f"{option} {hosts[0]}: the {name} cannot allow single hosts; without it the "
                "task's network_mode decides, public or no-network"
            )
