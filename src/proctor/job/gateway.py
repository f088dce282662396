"""Decides whether a job needs a model gateway, and with what it is run.

With --replay-model, it also decides which recorded trial answers which trial of the job.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from proctor.environments.kinds import check_reaches_models
from proctor.errors import AgentError
from proctor.gateway.budget import Limits
from proctor.gateway.options import COMMAND, GatewayOptions, OnDifference, runs_on_host
from proctor.gateway.recordings import Recording, find_recordings
from proctor.gateway.upstream import PROVIDERS
from proctor.harbor.configs import AgentConfig, JobConfig
from proctor.harbor.env import find_template, resolve_env
from proctor.job.settings import ModelLimits, ModelSettings
from proctor.job.slots import Slot, trial_prefix
from proctor.sentence import count_of
from proctor.task.directory import Task

_MOST_NAMED: Final = 5


def find_gateway(
    config: JobConfig,
    settings: ModelSettings,
    tasks: Iterable[Task],
    host: Mapping[str, str],
    recordings: Iterable[Recording] = (),
) -> GatewayOptions | None:
    """Return the options of a job's gateway; None if no agent and no tests would use it."""
    if not settings.gateway:
        return None
    options = GatewayOptions(
        host=host,
        endpoints=settings.endpoints,
        trial_limits=_copy(settings.trial_limits),
        job_limits=_copy(settings.job_limits),
        on_difference=OnDifference(settings.on_difference),
    )
    recorded = _merge_providers(recordings)
    inside, outside = False, False
    for agent in config.agents:
        if _find_upstreams(options, agent, recorded):
            inside, outside = inside or not runs_on_host(agent), True
    for env in (config.verifier.env, *(task.config.verifier.env for task in tasks)):
        inside = inside or bool(options.find_verifier_upstreams(_resolve_known(env, host)))
    _check_used(settings, is_used=outside)
    if inside:
        check_reaches_models(config.environment)
    return replace(options, is_inside=inside) if inside or outside else None


def _check_used(settings: ModelSettings, *, is_used: bool) -> None:
    """Refuse options that no agent of the job would heed."""
    limits = (settings.trial_limits, settings.job_limits)
    if not is_used and (settings.endpoints or any(each != ModelLimits() for each in limits)):
        raise AgentError(
            "--model-endpoint and limits on models apply to agents that reach a model through the "
            "gateway, and this job has none; name a model (-m) with --command, chat or an agent of "
            "harbor's, and set its provider's key (such as OPENAI_API_KEY) or --model-endpoint"
        )


def find_unreached(
    config: JobConfig, settings: ModelSettings, host: Mapping[str, str]
) -> Iterator[str]:
    """Yield a sentence for each command with a model whose provider is not known."""
    options = GatewayOptions(host=host, endpoints=settings.endpoints)
    for agent in config.agents if settings.gateway and settings.replay is None else ():
        is_command = agent.name == COMMAND and agent.model_name
        if is_command and not options.find_upstreams(agent, _resolve_known(agent.env, host)):
            yield (
                f"Model {agent.model_name}: no key and no endpoint of a provider is set, so the "
                "agent is given none; set one (such as OPENAI_API_KEY) or pass --model-endpoint"
            )


def find_given(settings: ModelSettings) -> dict[str, str]:
    """Return the variables of the host that --model-endpoint and --replay-model stand for."""
    # The gateway answers from the recording, whatever address the agent was given.
    urls = {each.name: each.url for each in PROVIDERS.values()} if settings.replay else {}
    given = {**urls, **settings.endpoints}
    return {PROVIDERS[name].urls[0]: url for name, url in given.items()}


def _find_upstreams(
    options: GatewayOptions, agent: AgentConfig, recorded: Mapping[str, str] | None
) -> object:
    found = options.find_upstreams(agent, _resolve_known(agent.env, options.host), recorded)
    if recorded is not None and not found:
        raise AgentError(
            f"agent {agent.name or agent.import_path} does not reach models through the gateway, "
            "so no recorded answer can be given to it; leave out --replay-model"
        )
    return found


def _merge_providers(recordings: Iterable[Recording]) -> dict[str, str] | None:
    """Return the providers of all recordings; None if there are no recordings."""
    all_of_them = [recording.providers for recording in recordings]
    if not all_of_them:
        return None
    return {name: url for providers in all_of_them for name, url in providers.items()}


def find_slot_recordings(settings: ModelSettings, slots: Sequence[Slot]) -> Mapping[int, Recording]:
    """Return the recording for each slot of a job, by index; empty if nothing is replayed.

    A recorded trial answers one slot of the same task, of the same agent and model if there is one.
    The same slots get the same recordings again when the job is resumed.
    """
    if settings.replay is None:
        return {}
    left = find_recordings(settings.replay)
    found: dict[int, Recording] = {}
    # First those of the same agent and model: which others are left over depends on it.
    for is_same_agent in (True, False):
        for slot in slots:
            fitting = (each for each in left if _fits(each, slot, is_same_agent=is_same_agent))
            recording = next(fitting, None) if slot.index not in found else None
            if recording is not None:
                found[slot.index] = recording
                left.remove(recording)
    _check_all_found(settings, slots, found)
    return found


def _fits(recording: Recording, slot: Slot, *, is_same_agent: bool) -> bool:
    is_task = recording.task == slot.planned.task.name
    if recording.task is None:
        is_task = recording.prefix == trial_prefix(slot.planned.name)
    ours = (slot.agent.name, slot.agent.model_name)
    return is_task and (not is_same_agent or (recording.agent, recording.model) == ours)


def _check_all_found(
    settings: ModelSettings, slots: Sequence[Slot], found: Mapping[int, Recording]
) -> None:
    missing: dict[str, int] = {}
    for slot in slots:
        if slot.index not in found:
            name = slot.planned.task.name
            missing[name] = missing.get(name, 0) + 1
    if not missing:
        return
    n = sum(missing.values())
    named = ", ".join(list(missing)[:_MOST_NAMED]) + (" …" if len(missing) > _MOST_NAMED else "")
    raise AgentError(
        f"{settings.replay}: no recording is left for {count_of(n, 'trial')} of "
        f"{count_of(len(slots), 'trial')} ({named}): each recorded trial answers one trial of its "
        "task; choose tasks with -i, or fewer attempts with -k"
    )


def _copy(limits: ModelLimits) -> Limits:
    return Limits(cost_usd=limits.cost_usd, tokens=limits.tokens, requests=limits.requests)


def _resolve_known(env: Mapping[str, str], host: Mapping[str, str]) -> dict[str, str]:
    """Resolve variables, except those that are missing on the host: the job reports these."""
    known: dict[str, str] = {}
    for name, value in env.items():
        template = find_template(value)
        if template is None or template.name in host or template.default is not None:
            known |= resolve_env({name: value}, host)
    return known
