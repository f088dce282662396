"""Makes a plan from a job configuration: tasks are read and hashed, and nothing is run."""

import asyncio
from collections.abc import Mapping, Sequence

from proctor.environments.kinds import environment_name_for
from proctor.errors import InputError
from proctor.harbor.configs import AgentConfig, JobConfig
from proctor.job.planned import Resolved
from proctor.job.planning import check_kinds, make_records
from proctor.job.settings import Settings
from proctor.job.tasks import resolve_tasks
from proctor.ledger.run_plan import (
    PlannedAgent,
    PlannedRetries,
    PlannedTask,
    RunPlan,
    digest_settings,
)
from proctor.record.comparable import find_run_conditions

_OF_THE_JOB = (
    "timeout_multiplier",
    "agent_timeout_multiplier",
    "verifier_timeout_multiplier",
    "agent_setup_timeout_multiplier",
    "environment_build_timeout_multiplier",
    "environment",
    "verifier",
    "extra_instruction_paths",
)


def make_plan(
    config: JobConfig,
    settings: Settings,
    *,
    exclusions: Sequence[str],
    note: str,
    host: Mapping[str, str],
) -> RunPlan:
    """Make the plan of a job."""
    check_kinds(config, settings.models)
    resolved = asyncio.run(resolve_tasks(config, settings, host=host))
    _check_none_refused(resolved)
    settings_by_agent = [_settings_of(config, agent) for agent in config.agents]
    return RunPlan(
        dataset=settings.dataset_id or _find_dataset(resolved),
        tasks=tuple(
            PlannedTask(task=each.task.name, revision=each.digests.task_checksum)
            for each in resolved.tasks
        ),
        agents=tuple(
            PlannedAgent(
                agent=agent.name or agent.import_path or "",
                model=agent.model_name,
                settings=digest_settings(settings_of),
                revision=record.adapter_revision,
            )
            for agent, settings_of, record in zip(
                config.agents, settings_by_agent, make_records(config, settings), strict=True
            )
        ),
        attempts=config.n_attempts,
        environment=environment_name_for(config.environment),
        limits=find_run_conditions(settings_by_agent[0], "", None).changed,
        retries=PlannedRetries(
            most=config.retry.max_retries,
            only=_sorted(config.retry.include_exceptions),
            never=_sorted(config.retry.exclude_exceptions) or (),
        ),
        exclusions=tuple(dict.fromkeys(exclusions)),
        note=note,
    )


def _settings_of(config: JobConfig, agent: AgentConfig) -> dict[str, object]:
    """The settings that a trial's record will have, as far as plans use them."""
    job = config.model_dump(mode="json", include=set(_OF_THE_JOB))
    return {**job, "agent": agent.model_dump(mode="json")}


def _sorted(names: set[str] | None) -> tuple[str, ...] | None:
    return None if names is None else tuple(sorted(names))


def _find_dataset(resolved: Resolved) -> str | None:
    names = {each.dataset_id for each in resolved.tasks}
    return names.pop() if len(names) == 1 else None


def _check_none_refused(resolved: Resolved) -> None:
    """Refuse tasks that cannot be run: the run would deviate from the plan at once."""
    if resolved.refused:
        first = resolved.refused[0]
        more = f" (and {len(resolved.refused) - 1} more)" if len(resolved.refused) > 1 else ""
        raise InputError(
            f"{first.path}: {first.reason}{more}; a plan needs tasks that can be run: fix "
            "it, or exclude it with --exclude-task-name"
        )
