"""The slots of a job: every trial to run, in harbor's order.

A slot's key is a digest of everything that decides its trial: the contents of its task, its agent,
model, environment, verifier, limits and artifacts. It does not cover directories, names, secrets,
the working directory or concurrency. Slots with the same key are attempts at the same trial,
distinguished by their order.
"""

import json
from collections.abc import Container, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

from proctor.digest import sha256_hex
from proctor.harbor.configs import AgentConfig, JobConfig, TrialConfig
from proctor.harbor.env import is_sensitive
from proctor.job.cache import ALPHABET
from proctor.job.planned import PlannedTask, Resolved
from proctor.record.ids import make_id

_MULTIPLIERS = (
    "timeout_multiplier",
    "agent_timeout_multiplier",
    "verifier_timeout_multiplier",
    "agent_setup_timeout_multiplier",
    "environment_build_timeout_multiplier",
)
_SUFFIX = 7
_LONGEST_PREFIX = 32


@dataclass(frozen=True, slots=True)
class Slot:
    """One trial to run."""

    index: int
    """Position in the plan, from 0."""
    attempt: int
    """Number of the attempt at its task by its agent, from 1."""
    planned: PlannedTask
    agent: AgentConfig
    key: str
    """Digest of everything that decides the trial."""
    job: JobConfig
    """The job's configuration, shared by all slots."""


def make_slots(config: JobConfig, resolved: Resolved) -> tuple[Slot, ...]:
    """Make the slots of a job: for each attempt the tasks, for each task the agents."""
    shared = _describe_shared(config, resolved)
    agents = [(agent, _describe_agent(agent, resolved)) for agent in config.agents]
    pairs = [
        (task, agent, _make_key(task, described, shared))
        for task, (agent, described) in product(resolved.tasks, agents)
    ]
    return tuple(
        Slot(index, attempt, task, agent, key, config)
        for index, (attempt, (task, agent, key)) in enumerate(
            product(range(1, config.n_attempts + 1), pairs)
        )
    )


def trial_config(slot: Slot, name: str, trials_dir: Path, job_id: UUID) -> TrialConfig:
    """Make the configuration of a slot's trial."""
    job = slot.job
    return TrialConfig(
        task=slot.planned.config,
        trial_name=name,
        trials_dir=trials_dir,
        timeout_multiplier=job.timeout_multiplier,
        agent_timeout_multiplier=job.agent_timeout_multiplier,
        verifier_timeout_multiplier=job.verifier_timeout_multiplier,
        agent_setup_timeout_multiplier=job.agent_setup_timeout_multiplier,
        environment_build_timeout_multiplier=job.environment_build_timeout_multiplier,
        agent=slot.agent,
        environment=job.environment,
        verifier=job.verifier,
        artifacts=job.artifacts,
        extra_instruction_paths=job.extra_instruction_paths,
        job_id=job_id,
    )


def new_trial_name(task: str, rng: Random, taken: Container[str] = ()) -> str:
    """Make a trial name that is not in `taken`: the task's name, shortened, and seven characters.

    A task name that is not safe in a path is replaced by one that is.
    """
    prefix = trial_prefix(task)
    while True:
        name = f"{prefix}__{''.join(rng.choices(ALPHABET, k=_SUFFIX))}"
        if name not in taken:
            return name


def trial_prefix(task: str) -> str:
    """Return how the names of a task's trials begin."""
    short = task.rpartition("/")[2]
    return make_id(short[:_LONGEST_PREFIX].rstrip("_-") or short or "task")


def _make_key(task: PlannedTask, agent: str, shared: str) -> str:
    digests = task.digests
    pinned = f"{task.lock_digest}\n{digests.task_checksum}\n{task.config.source or ''}"
    return sha256_hex(f"{pinned}\n{agent}\n{shared}".encode())


def _describe_agent(agent: AgentConfig, resolved: Resolved) -> str:
    described = agent.model_dump(mode="json", exclude={"skills", "env", "kwargs"})
    skills = resolved.skills.get(tuple(agent.skills), ())
    # By content: the path of a skill does not matter.
    described["skills"] = [[skill.name, skill.digest] for skill in skills]
    described["env"] = _without_secrets(agent.env)
    described["kwargs"] = _without_secrets(agent.kwargs)
    return _render(described)


def _describe_shared(config: JobConfig, resolved: Resolved) -> str:
    environment, verifier = config.environment, config.verifier
    # Excluded because they do not affect results, or because they are added below without secrets
    # or by digest.
    no_place = {"force_build", "delete", "extra_docker_compose", "env", "kwargs"}
    return _render(
        {
            "environment": environment.model_dump(mode="json", exclude=no_place)
            | {
                "env": _without_secrets(environment.env),
                "kwargs": _without_secrets(environment.kwargs),
                "compose": [file.digest for file in resolved.compose_files],
            },
            "verifier": verifier.model_dump(mode="json", exclude={"env", "kwargs"})
            | {
                "env": _without_secrets(verifier.env),
                "kwargs": _without_secrets(verifier.kwargs),
            },
            "multipliers": [getattr(config, name) for name in _MULTIPLIERS],
            "artifacts": config.model_dump(mode="json", include={"artifacts"})["artifacts"],
            "extra_instructions": [file.digest for file in resolved.extra_instructions],
            "verifier_compat": resolved.settings.verifier_compat,
            # Always empty; it stays because keys of existing jobs were made with it.
            "pins": {},
        }
    )


def _without_secrets(values: Mapping[str, Any]) -> dict[str, Any]:
    """Drop secret values: files have them redacted, and they may change."""
    return {
        name: None if is_sensitive(name) else _inner_without_secrets(value)
        for name, value in values.items()
    }


def _inner_without_secrets(value: Any) -> Any:
    if isinstance(value, Mapping):
        return _without_secrets(value)
    if isinstance(value, list | tuple):
        return [_inner_without_secrets(item) for item in value]
    return value


def _render(value: object) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, default=str)
