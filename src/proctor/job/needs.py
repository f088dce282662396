"""What the tasks of a job need, and whether this machine can run them. Starts nothing.

Images are looked for in the environment's own store. For the size of those that the sandbox would
pull, their registries are asked.
"""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from proctor.environments.kinds import (
    check_environment,
    is_built_in,
    make_environment,
)
from proctor.environments.sandbox.roots.dockerfile import parse_dockerfile
from proctor.environments.sandbox.roots.saved_image import this_platform
from proctor.errors import ImageError, ProctorError
from proctor.files import read_small
from proctor.harbor.configs import EnvironmentConfig, TrialConfig
from proctor.job.downloads import TaskImages, find_downloads, unknown_downloads
from proctor.job.planning import Fetching, JobPlan, find_memory
from proctor.job.resume import Decision
from proctor.job.slots import trial_config
from proctor.sentence import render_size
from proctor.task.directory import Task
from proctor.task.network import NetworkMode
from proctor.trial.environment import EnvironmentOrder
from proctor.trial.inside import kind_of
from proctor.trial.network import NetworkPlan, check_network, plan_network
from proctor.trial.paths import TrialPaths
from proctor.trial.timeouts import find_limits, find_timeouts

_MB = 1_000_000


class TaskNeeds(msgspec.Struct, frozen=True, kw_only=True):
    """What one task needs, and whether it can be run here."""

    name: str
    images: tuple[str, ...]
    """Images that it starts from: its docker_image, or those that its Dockerfile names."""
    is_built: bool
    """Whether a Dockerfile is built on them."""
    download_bytes: int | None
    """Size of the layers of its images that are not here, compressed; None: unknown."""
    network: NetworkMode
    """While the agent runs."""
    cpus: float | None
    memory_mb: int | None
    storage_mb: int | None
    gpus: int
    agent_sec: float | None
    """Time limit of the agent, in all steps; None: no limit."""
    verifier_sec: float
    """Time limit of the tests, in all steps."""
    is_runnable: bool | None
    """None: not known, because the environment is not proctor's or on other machines."""
    why: str | None = None
    """Why it cannot be run here, or what should be known about it."""


class JobNeeds(msgspec.Struct, frozen=True, kw_only=True):
    """What the tasks of a job need."""

    tasks: Sequence[TaskNeeds]
    download_bytes: int | None
    """Of all tasks together: layers that their images share count once. None: unknown."""
    notes: Sequence[str]


async def find_needs(
    plan: JobPlan, fetching: Fetching, host: Mapping[str, str], *, is_here: bool
) -> JobNeeds:
    """What each task of a job needs that has trials to run; `is_here`: on this machine."""
    config = plan.prepared.config.environment
    # One decision for each task: attempts and agents do not change what it needs.
    first = {id(decision.slot.planned): decision for decision in reversed(plan.todo)}
    todo = [each for each in plan.todo if first[id(each.slot.planned)] is each]
    obstacle = await _find_obstacle(config) if is_here and todo else None
    images = [_find_images(each.slot.planned.task, config) for each in todo]
    if obstacle is None:
        downloads = await find_downloads(config, images, fetching, host)
    else:
        downloads = unknown_downloads(images)
    tasks = [
        _describe(plan, each, own, n_bytes, obstacle, is_here=is_here)
        for each, own, n_bytes in zip(todo, images, downloads.n_bytes, strict=True)
    ]
    return JobNeeds(tasks=tasks, download_bytes=downloads.total, notes=downloads.notes)


async def _find_obstacle(config: EnvironmentConfig) -> str | None:
    """Why no environment of this job can be started on this machine."""
    try:
        await check_environment(config)
    except ProctorError as error:
        return str(error)
    return None


def _describe(
    plan: JobPlan,
    decision: Decision,
    images: TaskImages,
    download_bytes: int | None,
    obstacle: str | None,
    *,
    is_here: bool,
) -> TaskNeeds:
    task = decision.slot.planned.task
    config = trial_config(decision.slot, decision.trial, plan.trials_dir, plan.job_id)
    limits = find_limits(config, task.config)
    network = plan_network(task.config, config.agent, config.environment)
    memory = limits["memory_mb"]
    is_checked = is_here and is_built_in(config.environment)
    why = obstacle or (_find_refusal(config, task, network) if is_checked else None)
    agent_sec, verifier_sec = _sum_times(config, task)
    return TaskNeeds(
        name=task.name,
        images=images.names,
        is_built=images.is_built,
        download_bytes=download_bytes,
        network=network.agent.mode,
        cpus=limits["cpus"],
        memory_mb=_whole(memory),
        storage_mb=_whole(limits["storage_mb"]),
        gpus=_whole(limits["gpus"]) or 0,
        agent_sec=agent_sec,
        verifier_sec=verifier_sec,
        is_runnable=why is None if is_checked or obstacle else None,
        why=why or (_find_shortage(memory) if is_here else None),
    )


def _find_refusal(config: TrialConfig, task: Task, network: NetworkPlan) -> str | None:
    """Why the environment would refuse a task, as the trial itself would find out."""
    order = EnvironmentOrder(
        config=config.environment,
        environment_dir=task.environment_directory,
        environment_name=task.short_name,
        session_id=config.trial_name,
        trial_paths=TrialPaths(config.trials_dir / config.trial_name),
        task_env_config=task.config.environment,
        network=network.baseline,
        persistent_env={},
        mounts=tuple(map(dict, config.environment.mounts or ())),
        logger=logging.getLogger(__name__),
    )
    try:
        environment = make_environment(order)
        for step in task.steps or (None,):
            own = plan_network(
                task.config, config.agent, config.environment, step.config if step else None
            )
            label = f"Step {step.name!r}" if step else "[agent]"
            check_network(own, environment.capabilities, kind_of(environment), label)
    except (ProctorError, ValueError) as error:
        return str(error)
    return None


def _find_shortage(memory_mb: float | None) -> str | None:
    there = find_memory()
    if memory_mb is None or memory_mb * _MB <= there:
        return None
    asked = render_size(memory_mb * _MB)
    return f"its memory limit is {asked}, and this machine has {render_size(there)}"


def _sum_times(config: TrialConfig, task: Task) -> tuple[float | None, float]:
    """Seconds of the agent and of the tests, in all steps."""
    steps = task.steps or (None,)
    times = [find_timeouts(config, task.config, step.config if step else None) for step in steps]
    limited = [each.agent for each in times if each.agent is not None]
    agent = sum(limited) if len(limited) == len(times) else None
    return agent, sum(each.verifier for each in times)


def _find_images(task: Task, config: EnvironmentConfig) -> TaskImages:
    named = task.config.environment.docker_image
    if not _dockerfile(task).is_file() or (named is not None and not config.force_build):
        return TaskImages(task, (named,) if named else (), is_built=False)
    try:
        text = read_small(str(_dockerfile(task))).decode("utf-8", "replace")
        machine = this_platform().architecture
        names = parse_dockerfile(text, str(_dockerfile(task)), machine).images
    except (OSError, ValueError, ImageError):
        # Its trials report what is wrong with it.
        names = ()
    return TaskImages(task, names, is_built=True)


def _dockerfile(task: Task) -> Path:
    return task.environment_directory / "Dockerfile"


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)
