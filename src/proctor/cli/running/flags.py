"""The given options of `proctor run` as values, one class for each section."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

type Texts = tuple[str, ...]
type Paths = tuple[Path, ...]


class TaskFlags(msgspec.Struct, frozen=True):
    """Tasks."""

    path: Path | None
    dataset: str | None
    task: str | None
    include: Texts
    exclude: Texts
    n_tasks: int | None
    registry_path: Path | None
    registry_url: str | None
    task_git_url: str | None
    task_git_commit: str | None
    extra_instruction_path: Paths
    task_order: str | None
    strict_tasks: bool


class AgentFlags(msgspec.Struct, frozen=True):
    """Agents."""

    agent: str | None
    agent_import_path: str | None
    shell_command: str | None
    agent_tree: Path | None
    agent_version_command: str | None
    models: Texts
    agent_kwargs: Texts
    agent_env: Texts
    mcp_config: Paths
    skills: Paths
    allow_agent_host: Texts


class EnvironmentFlags(msgspec.Struct, frozen=True):
    """Environment."""

    environment: str | None
    environment_import_path: str | None
    base: str | None
    builder: str | None
    offline: bool
    environment_kwargs: Texts
    allow_host_port: Texts
    allow_environment_host: Texts
    force_build: bool | None
    delete: bool | None
    cpus: str | None
    memory: str | None
    override_cpus: int | float | None
    override_memory_mb: int | None
    override_storage_mb: int | None
    override_gpus: int | None
    override_tpu: str | None


class VerifierFlags(msgspec.Struct, frozen=True):
    """Verification."""

    verifier_env: Texts
    verifier_import_path: str | None
    verifier_kwargs: Texts
    disable_verification: bool
    verifier_compat: str | None
    verify_again: int
    clean_room: bool


class ModelFlags(msgspec.Struct, frozen=True):
    """How trials reach models."""

    gateway: bool
    model_endpoint: Texts
    max_cost: float | None
    max_tokens: int | None
    max_requests: int | None
    max_job_cost: float | None
    max_job_tokens: int | None
    max_job_requests: int | None
    replay_model: Path | None
    on_difference: str | None


class JobFlags(msgspec.Struct, frozen=True):
    """How trials are run."""

    config: Path | None
    jobs_dir: Path | None
    job_name: str | None
    n_attempts: int | None
    n_concurrent: int | str | None
    """`auto`: chosen by the machine."""
    on: str
    insecure_cluster: bool
    slurm_args: Texts
    print_script: bool
    max_lost: int
    max_retries: int | None
    retry_include: Texts
    retry_exclude: Texts
    artifacts: Texts
    timeout_multiplier: float | None
    agent_timeout_multiplier: float | None
    verifier_timeout_multiplier: float | None
    agent_setup_timeout_multiplier: float | None
    environment_build_timeout_multiplier: float | None
    env_file: Path | None
    yes: bool
    debug: bool


class RecordFlags(msgspec.Struct, frozen=True):
    """Additional content of records."""

    experiment: str | None
    extend_experiment: bool
    dataset_id: str | None
    adaptation: Path | None
    system_prompt: Path | None
    ledger: Path | None
    no_ledger: bool
    key: Path | None


class OutputFlags(msgspec.Struct, frozen=True):
    """Output."""

    dry_run: bool
    quiet: bool
    result_line: bool
    as_json: bool


class RunFlags(msgspec.Struct, frozen=True):
    """All options."""

    tasks: TaskFlags
    agent: AgentFlags
    environment: EnvironmentFlags
    verifier: VerifierFlags
    models: ModelFlags
    job: JobFlags
    record: RecordFlags
    output: OutputFlags


def make_flags(given: Mapping[str, Any]) -> RunFlags:
    """Sort the values that click passes into their classes."""
    return RunFlags(
        tasks=_take(TaskFlags, given),
        agent=_take(AgentFlags, given),
        environment=_take(EnvironmentFlags, given),
        verifier=_take(VerifierFlags, given),
        models=_take(ModelFlags, given),
        job=_take(JobFlags, given),
        record=_take(RecordFlags, given),
        output=_take(OutputFlags, given),
    )


def make_some_flags(given: Mapping[str, Any]) -> RunFlags:
    """`make_flags` for a command that has only some of the options."""
    kinds = (TaskFlags, AgentFlags, EnvironmentFlags, VerifierFlags, ModelFlags, JobFlags)
    every = [
        field
        for kind in (*kinds, RecordFlags, OutputFlags)
        for field in msgspec.structs.fields(kind)
    ]
    absent = {Texts: (), Paths: (), bool: False, int: 0}
    nothing = {field.name: absent.get(field.type) for field in every}
    return make_flags({**nothing, **given})


def _take[Flags: msgspec.Struct](kind: type[Flags], given: Mapping[str, Any]) -> Flags:
    return kind(**{name: given[name] for name in kind.__struct_fields__})
