"""The plan of a job as harbor's lock.json. Does not write files."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from proctor.harbor.configs import AgentConfig, JobConfig
from proctor.harbor.lock import FileLock, JobLock, SkillLock, TaskLock, TrialLock, make_lock
from proctor.job.planned import PinnedFile, PlannedTask, Resolved
from proctor.job.slots import Slot


def lock_slots(
    job: JobConfig,
    slots: Sequence[Slot],
    resolved: Resolved,
    *,
    invocation: Sequence[str],
    created_at: datetime,
    host: Mapping[str, str],
) -> JobLock:
    """Make the lock of a plan; attempts at the same trial share one object."""
    known: dict[tuple[int, int], TrialLock] = {}
    trials: list[TrialLock] = []
    for slot in slots:
        pair = (id(slot.planned), id(slot.agent))
        trial = known.get(pair)
        if trial is None:
            trial = known[pair] = _lock_trial(slot.planned, slot.agent, job, resolved)
        trials.append(trial)
    return make_lock(
        created_at=created_at,
        invocation=invocation,
        n_concurrent_trials=job.n_concurrent_trials,
        retry=job.retry,
        trials=trials,
        host=host,
    )


def _lock_trial(
    planned: PlannedTask, agent: AgentConfig, job: JobConfig, resolved: Resolved
) -> TrialLock:
    skills = resolved.skills.get(tuple(agent.skills), ())
    return TrialLock(
        task=_lock_task(planned),
        timeout_multiplier=job.timeout_multiplier,
        agent_timeout_multiplier=job.agent_timeout_multiplier,
        verifier_timeout_multiplier=job.verifier_timeout_multiplier,
        agent_setup_timeout_multiplier=job.agent_setup_timeout_multiplier,
        environment_build_timeout_multiplier=job.environment_build_timeout_multiplier,
        extra_instructions=_lock_files(resolved.extra_instructions),
        agent=agent,
        skills=[SkillLock(name=one.name, source=one.source, digest=one.digest) for one in skills],
        environment=job.environment,
        extra_docker_compose=_lock_files(resolved.compose_files),
        verifier=job.verifier,
    )


def _lock_task(planned: PlannedTask) -> TaskLock:
    config = planned.config
    return TaskLock(
        name=planned.name,
        type=planned.kind,
        digest=planned.lock_digest,
        source=config.source,
        path=config.path,
        git_url=config.git_url,
        git_commit_id=planned.commit or config.git_commit_id,
    )


def _lock_files(files: Sequence[PinnedFile]) -> list[FileLock] | None:
    return [FileLock(path=file.path, digest=file.digest) for file in files] or None
