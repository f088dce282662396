"""Makes harbor's JobConfig and our Settings from the flags of `proctor run`.

As in harbor, flags override the config file, and naming an agent replaces the agents in it. Values
that harbor would accept and ignore are refused.
"""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import cast

import click
import msgspec

from proctor.cli.running.agents import check_hosts, set_agents
from proctor.cli.running.files import load_base_config
from proctor.cli.running.flags import RunFlags
from proctor.cli.running.git_dataset import list_git_tasks, name_git_dataset
from proctor.cli.running.options import AUTO
from proctor.cli.running.pairs import parse_arguments, parse_tpu, parse_variables
from proctor.errors import InputError
from proctor.gateway.upstream import parse_endpoints
from proctor.harbor.configs import (
    DOCKER,
    HARBOR_ENVIRONMENTS,
    OWN_ENVIRONMENTS,
    SANDBOX,
    DatasetConfig,
    EnvironmentConfig,
    EnvironmentType,
    JobConfig,
    TaskConfig,
)
from proctor.job.config_file import make_settings
from proctor.job.git_source import PREFIX
from proctor.job.published import split_registry
from proctor.job.secrets import fill_secrets
from proctor.job.settings import ModelLimits, ModelSettings, OnDifference, Settings
from proctor.record.rules import check_dataset_id
from proctor.task.directory import find_faults
from proctor.task.terminal_bench import is_terminal_bench_task

# Tasks and datasets


_ORG_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*")
_TASK_FILES = ("task.toml", "task.yaml")


def set_tasks(
    config: JobConfig, flags: RunFlags, host: Mapping[str, str], *, verifying: bool
) -> None:
    """Set the tasks of a config from flags, replacing those that it has.

    Raises:
        UsageError: no tasks at all, or flags that do not go together.
        InputError: a path or a name that leads nowhere.
    """
    _check_flags(flags)
    if flags.path is not None:
        _set_path(config, flags, flags.path, verifying=verifying)
    elif flags.task is not None:
        name, _, ref = flags.task.partition("@")
        _check_package("--task", name)
        config.datasets = []
        config.tasks = [TaskConfig(name=name, ref=ref or "latest")]
    elif flags.dataset is not None and flags.dataset.startswith(PREFIX):
        config.datasets = []
        config.tasks = list_git_tasks(flags.dataset, flags, host, quiet=config.quiet)
    elif flags.dataset is not None:
        config.tasks = []
        config.datasets = [_filtered(_make_dataset(flags, flags.dataset, host), flags)]
    elif not config.tasks and not config.datasets:
        raise click.UsageError(
            "no tasks; expected --path DIRECTORY, --dataset NAME, --task ORG/NAME or a --config "
            "that names some"
        )


def _check_flags(flags: RunFlags) -> None:
    sources = {"--path": flags.path, "--dataset": flags.dataset, "--task": flags.task}
    given = [name for name, value in sources.items() if value is not None]
    if len(given) > 1:
        raise click.UsageError(f"{given[0]} cannot be combined with {given[1]}")
    if flags.task_git_commit is not None and flags.task_git_url is None:
        raise click.UsageError("--task-git-commit requires --task-git-url")
    if flags.task_git_url is not None and flags.path is None:
        raise click.UsageError("--task-git-url requires --path, the task's place in the repository")
    in_git = (flags.dataset or "").startswith(PREFIX)
    if (flags.registry_path or flags.registry_url) and (flags.dataset is None or in_git):
        raise click.UsageError("--registry-path and --registry-url require --dataset NAME")
    if flags.registry_path is not None and flags.registry_url is not None:
        raise click.UsageError("--registry-path cannot be combined with --registry-url")
    if _is_filtered(flags) and flags.path is None and flags.dataset is None:
        raise click.UsageError(
            "--include-task-name, --exclude-task-name and --n-tasks choose from a dataset; "
            "they require --path or --dataset"
        )


def _is_filtered(flags: RunFlags) -> bool:
    return bool(flags.include or flags.exclude or flags.n_tasks)


def _set_path(config: JobConfig, flags: RunFlags, path: Path, *, verifying: bool) -> None:
    if flags.task_git_url is not None or is_task(path, verifying=verifying):
        if _is_filtered(flags):
            raise click.UsageError(
                f"--path {path} is one task; --include-task-name, --exclude-task-name and "
                "--n-tasks choose from a directory of them"
            )
        config.datasets = []
        config.tasks = [
            TaskConfig(path=path, git_url=flags.task_git_url, git_commit_id=flags.task_git_commit)
        ]
        return
    if not path.is_dir():
        found = "a file" if path.exists() else "not there"
        hint = ""
        # Path folds the two slashes of an address into one.
        if not path.exists() and re.match(r"(git\+)?\w+:/[^/]", str(path)):
            hint = "; tasks of a repository run with `-d git+URL`"
        raise InputError(
            f"{path}: {found}; expected a task directory, or a directory of tasks{hint}"
        )
    config.tasks = []
    config.datasets = [_filtered(DatasetConfig(path=path), flags)]


def is_task(path: Path, *, verifying: bool) -> bool:
    """Whether a directory is a task, even an invalid one, rather than a directory of tasks."""
    # A dangling link counts: the task is then reported as invalid instead of being taken for a
    # dataset.
    if not any(os.path.lexists(path / name) for name in _TASK_FILES):
        return False
    if _is_older(path) or not find_faults(path, verifying=verifying):
        return True
    return not _holds_tasks(path)


def _is_older(path: Path) -> bool:
    try:
        return is_terminal_bench_task(path)
    except OSError:
        return False


def _holds_tasks(path: Path) -> bool:
    try:
        places = [place for place in path.iterdir() if place.is_dir()]
    except OSError:
        return False
    return any((place / name).is_file() for place in places for name in _TASK_FILES)


def _filtered(dataset: DatasetConfig, flags: RunFlags) -> DatasetConfig:
    dataset.task_names = list(flags.include) or None
    dataset.exclude_task_names = list(flags.exclude) or None
    dataset.n_tasks = flags.n_tasks
    return dataset


def _make_dataset(flags: RunFlags, dataset: str, host: Mapping[str, str]) -> DatasetConfig:
    name, at, version = dataset.partition("@")
    if "/" in name:
        _check_package("--dataset", name)
        if flags.registry_path or flags.registry_url:
            raise click.UsageError(f"--dataset {name} is a package; no registry file lists those")
        return DatasetConfig(name=name, ref=version or "latest")
    if not name or (at and not version):
        raise click.UsageError(f"--dataset is {dataset!r}; expected NAME or NAME@VERSION")
    path, url = flags.registry_path, flags.registry_url
    if path is None and url is None:
        path, url = split_registry(host)
    return DatasetConfig(name=name, version=version or None, registry_path=path, registry_url=url)


def _check_package(option: str, name: str) -> None:
    if not _ORG_NAME.fullmatch(name) or ".." in name:
        raise click.UsageError(f"{option} is {name!r}; expected ORG/NAME or ORG/NAME@REF")


# Environment


# Flags that set the config field of the same name.
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


def set_environment(config: JobConfig, flags: RunFlags) -> None:
    """Set the environment of a config from flags."""
    environment = config.environment
    _choose(environment, flags)
    for flag, field in _DIRECT.items():
        if (value := getattr(flags, flag)) is not None:
            setattr(environment, field, value)
    if flags.override_tpu is not None:
        environment.override_tpu = parse_tpu(flags.override_tpu)
    environment.kwargs.update(parse_arguments("--ek", flags.environment_kwargs))
    for name, value in (("base", flags.base), ("builder", flags.builder)):
        if value is not None:
            _set_own_argument(environment, name, value)
    if flags.allow_host_port:
        _set_host_ports(environment, flags.allow_host_port)
    environment.extra_allowed_hosts.extend(
        check_hosts("--allow-environment-host", flags.allow_environment_host)
    )
    _check_honoured(environment)
    _check_hosts(config)


def _choose(environment: EnvironmentConfig, flags: RunFlags) -> None:
    if flags.environment is not None and flags.environment_import_path is not None:
        raise click.UsageError("--env cannot be combined with --environment-import-path")
    if flags.environment_import_path is not None:
        environment.type, environment.import_path = None, flags.environment_import_path
    elif flags.environment is not None:
        _set_named(environment, flags.environment)
    elif environment.type is not None and environment.import_path is None:
        _set_own("environment.type", environment, environment.type)
    else:
        # As in harbor, a class in the config takes precedence over a type.
        environment.type = None


def _set_named(environment: EnvironmentConfig, name: str) -> None:
    """Set the environment of --env, which may be a class, as in harbor 0.25."""
    if ":" in name:
        environment.type, environment.import_path = None, name
    else:
        _set_own("--env", environment, name)


def _set_own(where: str, environment: EnvironmentConfig, name: str) -> None:
    """Set one of our environments; one that harbor has too is set by its type."""
    if name == DOCKER:
        environment.type, environment.import_path = "docker", None
        return
    if name in OWN_ENVIRONMENTS:
        environment.type, environment.import_path = None, OWN_ENVIRONMENTS[name]
        return
    if name not in HARBOR_ENVIRONMENTS:
        theirs = ", ".join(sorted(HARBOR_ENVIRONMENTS))
        raise InputError(
            f"{where} is {name!r}; expected sandbox, docker or null, or one of harbor's: {theirs}"
        )
    environment.type, environment.import_path = cast(EnvironmentType, name), None


def _set_own_argument(environment: EnvironmentConfig, name: str, value: str) -> None:
    if environment.import_path != SANDBOX:
        raise click.UsageError(f"--{name} requires --env sandbox")
    if environment.kwargs.setdefault(name, value) != value:
        raise click.UsageError(f"--{name} and --ek {name}=… conflict")


def _set_host_ports(environment: EnvironmentConfig, ports: Sequence[str]) -> None:
    if environment.import_path != SANDBOX:
        raise click.UsageError("--allow-host-port requires --env sandbox")
    named = environment.kwargs.get("host_ports") or []
    environment.kwargs["host_ports"] = [*([named] if isinstance(named, str) else named), *ports]


def _check_honoured(environment: EnvironmentConfig) -> None:
    """Check that our environments are not given options that they would ignore."""
    names = {path: name for name, path in OWN_ENVIRONMENTS.items()}
    name = names.get(
        environment.import_path or "",
        "docker environment" if environment.type == DOCKER else None,
    )
    if name is None:
        return
    for field in ("mounts", "extra_docker_compose"):
        if getattr(environment, field):
            raise InputError(
                f"environment.{field}: not supported by the {name}; remove it from the config, "
                "or name an environment class that supports it"
            )


def _check_hosts(config: JobConfig) -> None:
    """Check that our environments are not given hosts: every trial would fail at once."""
    names = {SANDBOX: "sandbox", DOCKER: "docker environment"}
    name = names.get(config.environment.import_path or config.environment.type or "")
    if name is None:
        return
    hosts_by_option = {
        "--allow-environment-host": config.environment.extra_allowed_hosts,
        "--allow-agent-host": [host for one in config.agents for host in one.extra_allowed_hosts],
    }
    for option, hosts in hosts_by_option.items():
        if hosts:
            raise InputError(
                f"{option} {hosts[0]}: the {name} cannot allow individual hosts; without this "
                "option the task's network_mode applies, public or no-network"
            )


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
_MULTIPLIERS = (
    "timeout_multiplier",
    "agent_timeout_multiplier",
    "verifier_timeout_multiplier",
    "agent_setup_timeout_multiplier",
    "environment_build_timeout_multiplier",
)


class RequestedJob(msgspec.Struct, frozen=True):
    """The job that a command line describes."""

    config: JobConfig
    settings: Settings
    is_auto: bool
    """Whether the number of concurrent trials is chosen by the machine."""


def make_config(
    flags: RunFlags, now: datetime, host: Mapping[str, str], note: Callable[[str], None]
) -> RequestedJob:
    """Make the job from flags."""
    time_name = now.strftime("%Y-%m-%d__%H-%M-%S")
    config, table, notes = _load_base(flags, time_name)
    for sentence in notes:
        note(sentence)
    _set_job(config, flags)
    # Only for generated names: a name that the user chose must not be changed.
    if config.job_name == time_name:
        config.job_name = _find_free(config.jobs_dir, time_name)
    set_agents(config, flags)
    set_environment(config, flags)
    _set_verifier(config, flags)
    set_tasks(config, flags, host, verifying=not config.verifier.disable)
    _check_config(config)
    if flags.config is not None:
        # A config saved by an earlier job has its secrets redacted; they come from the host again.
        config = fill_secrets(config, {}, host, str(flags.config))
    settings = _make_settings(flags, table)
    if (flags.dataset or "").startswith(PREFIX) and settings.dataset_id is None:
        name = name_git_dataset(config.tasks)
        settings = settings.model_copy(update={"dataset_id": name})
    return RequestedJob(config, settings, flags.n_concurrent == AUTO)


def _load_base(flags: RunFlags, name: str) -> tuple[JobConfig, dict[str, object], list[str]]:
    if flags.config is None:
        return JobConfig(job_name=name), {}, []
    return load_base_config(flags.config, name)


def _find_free(jobs_dir: Path, name: str) -> str:
    """The name, or one derived from it: a job started within the same second is a different job."""
    names = (name if number == 1 else f"{name}-{number}" for number in count(1))
    return next(free for free in names if not os.path.lexists(jobs_dir.expanduser() / free))


def _set_job(config: JobConfig, flags: RunFlags) -> None:
    config.job_name = flags.job_name if flags.job_name is not None else config.job_name
    config.jobs_dir = flags.jobs_dir or config.jobs_dir
    config.n_attempts = flags.n_attempts or config.n_attempts
    if isinstance(flags.n_concurrent, int):
        config.n_concurrent_trials = flags.n_concurrent
    for name in _MULTIPLIERS:
        if (factor := getattr(flags, name)) is not None:
            setattr(config, name, factor)
    config.debug = flags.debug or config.debug
    config.quiet = flags.quiet or config.quiet
    _set_retries(config, flags)
    if flags.artifacts:
        config.artifacts = list(flags.artifacts)
    if flags.extra_instruction_path:
        config.extra_instruction_paths = list(flags.extra_instruction_path)


def _set_retries(config: JobConfig, flags: RunFlags) -> None:
    if flags.max_retries is not None:
        config.retry.max_retries = flags.max_retries
    if flags.retry_include:
        config.retry.include_exceptions = set(flags.retry_include)
    if flags.retry_exclude:
        config.retry.exclude_exceptions = set(flags.retry_exclude)


def _set_verifier(config: JobConfig, flags: RunFlags) -> None:
    config.verifier.env.update(parse_variables("--ve", flags.verifier_env))
    if flags.verifier_import_path is not None:
        config.verifier.import_path = flags.verifier_import_path
    config.verifier.kwargs.update(parse_arguments("--verifier-kwarg", flags.verifier_kwargs))
    if flags.verifier_kwargs and config.verifier.import_path is None:
        raise click.UsageError("--verifier-kwarg requires --verifier-import-path")
    config.verifier.disable = flags.disable_verification or config.verifier.disable
    if flags.verify_again and config.verifier.disable:
        raise click.UsageError("--verify-again requires verification, which is disabled")


def _check_config(config: JobConfig) -> None:
    # The name becomes a directory and, by default, an experiment.
    if not _NAME.fullmatch(config.job_name):
        raise InputError(
            f"the job's name is {config.job_name!r}; expected letters, digits, '.', '_' and '-', "
            "at most 200, the first a letter or a digit"
        )
    if config.n_attempts < 1 or config.n_concurrent_trials < 1:
        raise InputError(
            f"n_attempts is {config.n_attempts} and n_concurrent_trials "
            f"{config.n_concurrent_trials}; expected 1 or more of each"
        )
    if config.plugins:
        raise InputError("plugins: not supported; remove them from the config")
    for path in config.extra_instruction_paths:
        if not path.is_file():
            raise InputError(f"{path}: no such file; expected an additional instruction")


def _make_settings(flags: RunFlags, table: Mapping[str, object]) -> Settings:
    """The settings in the table `proctor` of a job file, with flags in their place."""
    own = make_settings(table, f"{flags.config}: proctor")
    if own.dataset_id is not None:
        check_dataset_id(own.dataset_id)
    prompt = own.system_prompt
    if prompt is not None and not prompt.is_file():
        raise InputError(f"{prompt}: no such file; expected the agent's system prompt")
    return own.model_copy(
        update={
            "experiment": _check_experiment(flags.experiment or own.experiment),
            "system_prompt": prompt.resolve() if prompt is not None else None,
            "verifier_compat": flags.verifier_compat or own.verifier_compat,
            "verify_again": flags.verify_again or own.verify_again,
            "clean_room": flags.clean_room and own.clean_room,
            "agent_version_command": flags.agent_version_command or own.agent_version_command,
            "models": _make_models(flags, own.models),
        }
    )


def _make_models(flags: RunFlags, own: ModelSettings) -> ModelSettings:
    replay = flags.replay_model or own.replay
    trial, job = own.trial_limits, own.job_limits
    if flags.max_cost is not None:
        trial = trial.model_copy(update={"cost_usd": flags.max_cost})
    if flags.max_job_cost is not None:
        job = job.model_copy(update={"cost_usd": flags.max_job_cost})
    endpoints = {**own.endpoints, **parse_endpoints(flags.model_endpoint)}
    gateway = flags.gateway and own.gateway
    if not gateway and (endpoints or replay or (trial, job) != (ModelLimits(), ModelLimits())):
        raise click.UsageError(
            "--no-gateway cannot be combined with --model-endpoint, --replay-model and limits: "
            "they need the gateway"
        )
    if flags.on_difference is not None and replay is None:
        raise click.UsageError("--on-difference requires --replay-model")
    if replay is not None and not replay.is_dir():
        found = "a file" if replay.exists() else "no such directory"
        raise InputError(f"{replay}: {found}; expected the directory of a trial or a job")
    return ModelSettings(
        gateway=gateway,
        endpoints=endpoints,
        trial_limits=trial,
        job_limits=job,
        replay=replay.resolve() if replay is not None else None,
        on_difference=cast(OnDifference, flags.on_difference or own.on_difference),
    )


def _check_experiment(name: str | None) -> str | None:
    if name is not None and not _NAME.fullmatch(name):
        raise InputError(f"--experiment is {name!r}; expected letters, digits, '.', '_' and '-'")
    return name
