"""Time limits of a trial's phases, by harbor's rules, oddities included.

A limit is the smaller of the requested time and the maximum, times a multiplier: the phase's own,
else the general one. If the agent has no limit, its maximum is ignored too.
"""

import msgspec

from proctor.harbor.configs import TrialConfig
from proctor.harbor.documents import TrialConfigDocument
from proctor.task.config import StepConfig, TaskConfig

AGENT_SETUP_SEC = 360.0
"""Default limit for setting up an agent."""


class Timeouts(msgspec.Struct, frozen=True):
    """Seconds for each phase."""

    environment: float
    agent_setup: float
    agent: float | None
    """None: no limit."""
    verifier: float


def find_timeouts(
    config: TrialConfig | TrialConfigDocument, task: TaskConfig, step: StepConfig | None = None
) -> Timeouts:
    """Return the limits of a trial, or of one of its steps."""
    agent, verifier = config.agent, config.verifier
    setup = agent.override_setup_timeout_sec
    agent_sec = task.agent.timeout_sec
    if step is not None and step.agent.timeout_sec is not None:
        agent_sec = step.agent.timeout_sec
    # A step's limit is its own, 600 by default: it inherits nothing from the task.
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
            AGENT_SETUP_SEC if setup is None else setup, None, config.agent_setup_timeout_multiplier
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

    null means no limit.
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
