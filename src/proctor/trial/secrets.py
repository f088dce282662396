"""The secrets that a trial was given, so that they get into none of its own files."""

from collections.abc import Iterator, Mapping

from proctor.harbor.agents import find_keys
from proctor.harbor.env import is_sensitive, resolve_env
from proctor.task.config import TaskConfig
from proctor.traces.writer import Redactor
from proctor.trial.plan import Plan

_SHORTEST = 8
"""Shorter values would be found in ordinary words."""


def find_redactor(plan: Plan, host: Mapping[str, str]) -> Redactor | None:
    """What takes the trial's secrets out of text; None where it has none."""
    secrets = {
        name: value
        for env in (find_keys(plan.config.agent, host), *_find_envs(plan))
        for name, value in _resolve_known(env, host).items()
        if is_sensitive(name) and len(value) >= _SHORTEST
    }
    return Redactor(secrets) if secrets else None


def _find_envs(plan: Plan) -> Iterator[Mapping[str, str]]:
    config, task = plan.config, plan.task.config
    yield from (config.agent.env, config.environment.env, config.verifier.env)
    yield from _find_task_envs(task)


def _find_task_envs(task: TaskConfig) -> Iterator[Mapping[str, str]]:
    yield from (task.environment.env, task.verifier.env, task.solution.env)
    if task.verifier.environment is not None:
        yield task.verifier.environment.env
    for step in task.steps or ():
        yield step.verifier.env


def _resolve_known(env: Mapping[str, str], host: Mapping[str, str]) -> dict[str, str]:
    """The variables whose values are known; a template that the host has not is no secret yet."""
    known: dict[str, str] = {}
    for name, value in env.items():
        if not is_sensitive(name):
            continue
        try:
            known |= resolve_env({name: value}, host)
        except ValueError:
            continue
    return known
