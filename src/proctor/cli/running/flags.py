"""The given options of `proctor run`, as values."""

from pathlib import Path

import msgspec

from proctor.cli.running.place import LOCAL
from proctor.job.options import MOST_LOST

type Texts = tuple[str, ...]
type Paths = tuple[Path, ...]


class RunFlags(msgspec.Struct, frozen=True, kw_only=True):
    """All options, by section of the help.

    The defaults are of commands without the option; click has those of an option not given.
    """

    # Tasks
    path: Path | None = None
    dataset: str | None = None
    task: str | None = None
    include: Texts = ()
    exclude: Texts = ()
    n_tasks: int | None = None
    registry_path: Path | None = None
    registry_url: str | None = None
    task_git_url: str | None = None
    task_git_commit: str | None = None
    extra_instruction_path: Paths = ()

    # Agents
    agent: str | None = None
    agent_import_path: str | None = None
    shell_command: str | None = None
    agent_tree: Path | None = None
    agent_version_command: str | None = None
    models: Texts = ()
    agent_kwargs: Texts = ()
    agent_env: Texts = ()
    mcp_config: Paths = ()
    skills: Paths = ()
    allow_agent_host: Texts = ()

    # Environment
    environment: str | None = None
    environment_import_path: str | None = None
    base: str | None = None
    builder: str | None = None
    offline: bool = False
    environment_kwargs: Texts = ()
    allow_host_port: Texts = ()
    allow_environment_host: Texts = ()
    force_build: bool | None = None
    delete: bool | None = None
    cpus: str | None = None
    memory: str | None = None
    override_cpus: int | float | None = None
    override_memory_mb: int | None = None
    override_storage_mb: int | None = None
    override_gpus: int | None = None
    override_tpu: str | None = None

    # Verification
    verifier_env: Texts = ()
    verifier_import_path: str | None = None
    verifier_kwargs: Texts = ()
    disable_verification: bool = False
    verifier_compat: str | None = None
    verify_again: int = 0
    clean_room: bool = False

    # How trials reach models
    gateway: bool = False
    model_endpoint: Texts = ()
    max_cost: float | None = None
    max_job_cost: float | None = None
    replay_model: Path | None = None
    on_difference: str | None = None

    # How trials are run
    config: Path | None = None
    jobs_dir: Path | None = None
    job_name: str | None = None
    n_attempts: int | None = None
    n_concurrent: int | str | None = None
    """`auto`: chosen by the machine."""
    on: str = LOCAL
    insecure_cluster: bool = False
    max_lost: int = MOST_LOST
    max_retries: int | None = None
    retry_include: Texts = ()
    retry_exclude: Texts = ()
    artifacts: Texts = ()
    timeout_multiplier: float | None = None
    agent_timeout_multiplier: float | None = None
    verifier_timeout_multiplier: float | None = None
    agent_setup_timeout_multiplier: float | None = None
    environment_build_timeout_multiplier: float | None = None
    env_file: Path | None = None
    yes: bool = False
    debug: bool = False

    # Additional content of records
    experiment: str | None = None
    extend_experiment: bool = False
    ledger: Path | None = None
    no_ledger: bool = False
    key: Path | None = None

    # Output
    dry_run: bool = False
    quiet: bool = False
    result_line: bool = False
    as_json: bool = False
