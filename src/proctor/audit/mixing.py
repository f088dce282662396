"""Which jobs may be scored together.

Several jobs can be combined into one number if no trial occurs twice, every task has the same
number of attempts, and a task was the same, under the same limits, in all of them.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

from proctor.errors import MixedJobsError
from proctor.harbor.documents import TrialConfigDocument
from proctor.harbor.job import Job
from proctor.harbor.trial import FoundTrial

_SHOWN = 3


def check_mixable(jobs: Sequence[Job], *, allow_mixed: bool = False) -> None:
    """Refuse jobs that cannot be combined into one number.

    Raises:
        MixedJobsError: names what differs. A trial that occurs twice is refused even if mixing is
        allowed.
    """
    if len(jobs) < 2:
        return
    if twice := _shared_trials(jobs):
        raise MixedJobsError(f"the same trial is in more than one job: {_some(twice)}")
    if allow_mixed:
        return
    reasons = [*_uneven_attempts(jobs), *_differing_tasks(jobs), *_differing_limits(jobs)]
    if reasons:
        raise MixedJobsError(
            f"{'; '.join(reasons)}. Together they would not make one honest number; "
            "pass --allow-mixed to score them anyway"
        )


def _shared_trials(jobs: Sequence[Job]) -> list[str]:
    seen: dict[str, str] = {}
    twice = []
    for job in jobs:
        for found in job.trials:
            identity = found.document.id or f"{job.directory}/{found.trial.name}"
            if identity in seen:
                twice.append(f"{found.trial.name} in {seen[identity]} and {job.directory}")
            seen[identity] = job.directory
    return twice


def _uneven_attempts(jobs: Sequence[Job]) -> Iterator[str]:
    attempts: Counter[tuple[str, str]] = Counter()
    for job in jobs:
        attempts.update(job.attempts())
    of_group: dict[str, dict[str, int]] = {}
    for (key, task), n in attempts.items():
        of_group.setdefault(key, {})[task] = n
    for key, tasks in of_group.items():
        k = min(tasks.values())
        beyond = [f"{task} ({n})" for task, n in tasks.items() if n > k]
        if beyond:
            yield f"{key} has tasks with more attempts than the {k} of every task: {_some(beyond)}"


def _differing_tasks(jobs: Sequence[Job]) -> Iterator[str]:
    checksums: dict[str, set[str]] = {}
    for job in jobs:
        for found in job.trials:
            checksum = found.document.task_checksum
            if checksum is not None:
                checksums.setdefault(_task_of(found), set()).add(checksum)
    differing = [task for task, found in checksums.items() if len(found) > 1]
    if differing:
        yield f"tasks whose content differs between jobs: {_some(differing)}"


def _differing_limits(jobs: Sequence[Job]) -> Iterator[str]:
    limits: dict[str, dict[str, set[object]]] = {}
    for job in jobs:
        for found in job.trials:
            of_task = limits.setdefault(_task_of(found), {})
            for name, value in limits_of(found.document.config).items():
                of_task.setdefault(name, set()).add(value)
    differing = [
        f"{task} ({name}: {', '.join(sorted(map(str, values)))})"
        for task, names in limits.items()
        for name, values in names.items()
        if len(values) > 1
    ]
    if differing:
        yield f"tasks whose limits differ between jobs: {_some(differing)}"


def _task_of(found: FoundTrial) -> str:
    """A task by its name within its dataset, since paths differ between machines."""
    source = found.trial.source
    return f"{source}/{found.trial.task}" if source else found.trial.task


def limits_of(config: TrialConfigDocument) -> dict[str, float | None]:
    """Limits of time and resources that override those of the task."""
    agent, verifier, environment = config.agent, config.verifier, config.environment
    return {
        "timeout_multiplier": config.timeout_multiplier,
        "agent_timeout_multiplier": config.agent_timeout_multiplier,
        "verifier_timeout_multiplier": config.verifier_timeout_multiplier,
        "agent_setup_timeout_multiplier": config.agent_setup_timeout_multiplier,
        "environment_build_timeout_multiplier": config.environment_build_timeout_multiplier,
        "agent.override_timeout_sec": agent.override_timeout_sec,
        "agent.override_setup_timeout_sec": agent.override_setup_timeout_sec,
        "agent.max_timeout_sec": agent.max_timeout_sec,
        "verifier.override_timeout_sec": verifier.override_timeout_sec,
        "verifier.max_timeout_sec": verifier.max_timeout_sec,
        "environment.override_cpus": environment.override_cpus,
        "environment.override_memory_mb": environment.override_memory_mb,
        "environment.override_storage_mb": environment.override_storage_mb,
        "environment.override_gpus": environment.override_gpus,
    }


def _some(names: Sequence[str]) -> str:
    more = len(names) - _SHOWN
    shown = ", ".join(names[:_SHOWN])
    return f"{shown} and {more} more" if more > 0 else shown
