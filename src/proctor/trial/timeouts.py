"""How long each phase of a trial may take: harbor's rules, oddities included. Nothing waits here.

A limit is the smaller of what is asked for and the most that is allowed, times a multiplier: the
phase's own, else the one for all. Without a limit on the agent no maximum is looked at either.
"""

import msgspec

from proctor.harbor.configs import TrialConfig
from proctor.harbor.documents import TrialConfigDocument
from proctor.task.config import StepConfig, TaskConfig

AGENT_SETUP_SEC = 360.0
"""What setting an agent up may take where nobody says otherwise."""


class Timeouts(msgspec.Struct, frozen=True):
    """Seconds of each phase."""

    environment: float
    agent_setup: float
    agent: float | None
    """None: no limit."""
    verifier: float


def find_timeouts(
    config: TrialConfig | TrialConfigDocument, task: TaskConfig, step: StepConfig | None = None
) -> Timeouts:
    """The limits of a trial, or those of one of its steps; the config may be one that was read."""
    agent, verifier = config.agent, config.verifier
    setup = agent.override_setup_timeout_sec
    agent_sec = task.agent.timeout_sec
    if step is not None and step.agent.timeout_sec is not None:
        agent_sec = step.agent.timeout_sec
    # A step has a limit of its own, 600 if it says none: it inherits nothing from the task.
    verifier_sec = (step or task).verifier.timeout_sec
    agent_base = agent.override_timeout_sec or agent_sec

    def scaled(seconds: float, most: float | None, own: float | None) -> float:
        multiplier = config.timeout_multiplier if own is None else own
        return min(seconds, most or float("inf")) * (1.0 if multiplier is None else multiplier)

    return Timeouts(
        environment=scaled(
            task.environment.build_timeout_sec, None, config.environment_build_timeout_multiplier
        ),
        agent_setup=scaled(
            AGENT_SETUP_SEC if setup is None else setup,
            None,
            config.agent_setup_timeout_multiplier,
        ),
        agent=None
        if agent_base is None
        else scaled(agent_base, agent.max_timeout_sec, config.agent_timeout_multiplier),
        verifier=scaled(
            verifier.override_timeout_sec or verifier_sec,
            verifier.max_timeout_sec,
            config.verifier_timeout_multiplier,
        ),
    )


def find_limits(
    config: TrialConfig | TrialConfigDocument, task: TaskConfig
) -> dict[str, float | None]:
    """Seconds, processors and megabytes that a trial is given, as its record lists them.

    null is no limit.
    """
    timeouts = find_timeouts(config, task)
    asked, own = config.environment, task.environment
    return {
        "agent_sec": timeouts.agent,
        "agent_setup_sec": timeouts.agent_setup,
        "verifier_sec": timeouts.verifier,
        "environment_build_sec": timeouts.environment,
        "cpus": asked.override_cpus or own.cpus,
        "memory_mb": asked.override_memory_mb or own.memory_mb,
        "storage_mb": asked.override_storage_mb or own.storage_mb,
        "gpus": asked.override_gpus or own.gpus,
    }
