"""The slots of a job: every trial that is to be run, before it is run, in harbor's order.

A slot's key is a digest of all that decides its trial: the contents of its task, its agent, model,
environment, verifier, limits and what is collected. Places, names, secrets, the working directory
and how many run at once are not in it. Slots of one key are attempts at the same thing; their order
tells them apart.
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
    """One trial that is to be run."""

    index: int
    """Its place in the plan, from 0."""
    attempt: int
    """Which attempt at its task by its agent it is, from 1."""
    planned: PlannedTask
    agent: AgentConfig
    key: str
    """Digest of all that decides it."""
    job: JobConfig
    """What the job was told; all slots of a job share it."""


def make_slots(
    config: JobConfig, resolved: Resolved, pins: Mapping[str, str] | None = None
) -> tuple[Slot, ...]:
    """Every trial of a job: attempts, in each the tasks, of each the agents.

    `pins` are further digests that decide every trial, by name: those of a root file system or of
    an agent's tree.
    """
    shared = _describe_shared(config, resolved, pins or {})
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
    """What the trial of a slot is told to do."""
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
    """A name for a trial of a task: the task's own, cut, and seven letters; none of `taken`.

    A task whose name must not become part of a path gets a name that may.
    """
    short = task.rpartition("/")[2]
    prefix = make_id(short[:_LONGEST_PREFIX].rstrip("_-") or short or "task")
    while True:
        name = f"{prefix}__{''.join(rng.choices(ALPHABET, k=_SUFFIX))}"
        if name not in taken:
            return name


def _make_key(task: PlannedTask, agent: str, shared: str) -> str:
    digests = task.digests
    pinned = f"{task.lock_digest}\n{digests.task_checksum}\n{task.config.source or ''}"
    return sha256_hex(f"{pinned}\n{agent}\n{shared}".encode())


def _describe_agent(agent: AgentConfig, resolved: Resolved) -> str:
    described = agent.model_dump(mode="json", exclude={"skills", "env", "kwargs"})
    skills = resolved.skills.get(tuple(agent.skills), ())
    described["skills"] = [[skill.name, skill.digest] for skill in skills]
    described["env"] = _without_secrets(agent.env)
    described["kwargs"] = _without_secrets(agent.kwargs)
    return _render(described)


def _describe_shared(config: JobConfig, resolved: Resolved, pins: Mapping[str, str]) -> str:
    environment, verifier = config.environment, config.verifier
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
            "pins": dict(pins),
        }
    )


def _without_secrets(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values without those of secrets: a file has them redacted, and they change."""
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
