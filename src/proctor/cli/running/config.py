"""Flags of `proctor run` to harbor's JobConfig and our Settings. Nothing is run or written.

As in harbor, flags override the config file, and naming an agent replaces the agents in it. What
harbor would accept and then ignore is refused with a sentence.
"""

import os
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from itertools import count
from pathlib import Path

import click
import msgspec

from proctor.cli.running.agents import set_agents
from proctor.cli.running.environment import set_environment
from proctor.cli.running.files import load_base_config
from proctor.cli.running.flags import JobFlags, RecordFlags, RunFlags, VerifierFlags
from proctor.cli.running.options import AUTO
from proctor.cli.running.pairs import parse_arguments, parse_variables
from proctor.cli.running.tasks import set_tasks
from proctor.errors import InputError
from proctor.harbor.configs import JobConfig
from proctor.job.secrets import fill_secrets
from proctor.job.settings import Settings
from proctor.record.read import load_adaptation
from proctor.record.rules import check_dataset_id

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
_MULTIPLIERS = (
    "timeout_multiplier",
    "agent_timeout_multiplier",
    "verifier_timeout_multiplier",
    "agent_setup_timeout_multiplier",
    "environment_build_timeout_multiplier",
)


class Wished(msgspec.Struct, frozen=True):
    """What a command line asks for."""

    config: JobConfig
    settings: Settings
    is_auto: bool
    """The number of trials at once is left to the machine."""


def make_config(
    flags: RunFlags, now: datetime, host: Mapping[str, str], note: Callable[[str], None]
) -> Wished:
    """The job that the flags ask for.

    `note` is told what the person should know of what they gave, before anything is refused: what
    is missing may stand there under another name.

    Raises:
        UsageError: flags that do not go together.
        InputError: a file or a value that cannot be used, or a secret that is only redacted.
    """
    time_name = now.strftime("%Y-%m-%d__%H-%M-%S")
    config, notes = _load_base(flags.job, time_name)
    for sentence in notes:
        note(sentence)
    _set_job(config, flags)
    if config.job_name == time_name:
        config.job_name = _find_free(config.jobs_dir, time_name)
    set_agents(config, flags.agent)
    set_environment(config, flags.environment)
    _set_verifier(config, flags.verifier)
    set_tasks(config, flags.tasks, verifying=not config.verifier.disable)
    _check_config(config)
    if flags.job.config is not None:
        config = fill_secrets(config, {}, host, str(flags.job.config))
    return Wished(config, _make_settings(flags), flags.job.n_concurrent == AUTO)


def _load_base(flags: JobFlags, name: str) -> tuple[JobConfig, list[str]]:
    if flags.config is None:
        return JobConfig(job_name=name), []
    return load_base_config(flags.config, name)


def _find_free(jobs_dir: Path, name: str) -> str:
    """The name, or one made from it: a job begun within the same second is another job."""
    names = (name if number == 1 else f"{name}-{number}" for number in count(1))
    return next(free for free in names if not os.path.lexists(jobs_dir.expanduser() / free))


def _set_job(config: JobConfig, flags: RunFlags) -> None:
    job = flags.job
    config.job_name = job.job_name if job.job_name is not None else config.job_name
    config.jobs_dir = job.jobs_dir or config.jobs_dir
    config.n_attempts = job.n_attempts or config.n_attempts
    if isinstance(job.n_concurrent, int):
        config.n_concurrent_trials = job.n_concurrent
    for name in _MULTIPLIERS:
        if (factor := getattr(job, name)) is not None:
            setattr(config, name, factor)
    config.debug = job.debug or config.debug
    config.quiet = flags.output.quiet or config.quiet
    _set_retries(config, job)
    if job.artifacts:
        config.artifacts = list(job.artifacts)
    if flags.tasks.extra_instruction_path:
        config.extra_instruction_paths = list(flags.tasks.extra_instruction_path)


def _set_retries(config: JobConfig, flags: JobFlags) -> None:
    if flags.max_retries is not None:
        config.retry.max_retries = flags.max_retries
    if flags.retry_include:
        config.retry.include_exceptions = set(flags.retry_include)
    if flags.retry_exclude:
        config.retry.exclude_exceptions = set(flags.retry_exclude)


def _set_verifier(config: JobConfig, flags: VerifierFlags) -> None:
    config.verifier.env.update(parse_variables("--ve", flags.verifier_env))
    if flags.verifier_import_path is not None:
        config.verifier.import_path = flags.verifier_import_path
    config.verifier.kwargs.update(parse_arguments("--verifier-kwarg", flags.verifier_kwargs))
    if flags.verifier_kwargs and config.verifier.import_path is None:
        raise click.UsageError("--verifier-kwarg goes with --verifier-import-path")
    config.verifier.disable = flags.disable_verification or config.verifier.disable
    if flags.verify_again and config.verifier.disable:
        raise click.UsageError("--verify-again goes with verification, which is disabled")


def _check_config(config: JobConfig) -> None:
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
        raise InputError("plugins: proctor runs none; take them out of the config")
    for path in config.extra_instruction_paths:
        if not path.is_file():
            raise InputError(f"{path}: no file; expected one with a further instruction")


def _make_settings(flags: RunFlags) -> Settings:
    record = flags.record
    return Settings.model_validate(
        {
            "experiment": _check_experiment(record),
            "dataset_id": _check_dataset(record.dataset_id),
            "adaptation": load_adaptation(record.adaptation) if record.adaptation else None,
            "system_prompt": _check_prompt(record.system_prompt),
            "verifier_compat": flags.verifier.verifier_compat,
            "verify_again": flags.verifier.verify_again,
            "clean_room": flags.verifier.clean_room,
            "task_order": flags.tasks.task_order or "name",
            "strict_tasks": flags.tasks.strict_tasks,
            "agent_version_command": flags.agent.agent_version_command,
        }
    )


def _check_experiment(flags: RecordFlags) -> str | None:
    if flags.experiment is not None and not _NAME.fullmatch(flags.experiment):
        raise InputError(
            f"--experiment is {flags.experiment!r}; expected letters, digits, '.', '_' and '-'"
        )
    return flags.experiment


def _check_dataset(name: str | None) -> str | None:
    if name is not None:
        check_dataset_id(name)
    return name


def _check_prompt(path: Path | None) -> Path | None:
    if path is not None and not path.is_file():
        raise InputError(f"{path}: no file; expected one with the agent's system prompt")
    return path.resolve() if path is not None else None
