"""Whether the trials of a new job belong to the experiment that they would be sealed under."""

from collections.abc import Iterator

from proctor.errors import InputError
from proctor.harbor.configs import AgentConfig
from proctor.harbor.stats import ADHOC
from proctor.job.planning import Prepared
from proctor.job.slots import Slot
from proctor.ledger.belonging import REMEDY, Content, find_content, label_agent
from proctor.ledger.ledger import Ledger
from proctor.ledger.run_plan import digest_settings

_SHOWN = 3


def check_experiment(ledger: Ledger, prepared: Prepared) -> None:
    """See that a new job adds nothing else to an experiment than what belongs to it.

    Raises:
        InputError: it does; no trial was begun.
        DamageError: the log does not give what its checkpoint says.
    """
    experiment = prepared.settings.experiment or prepared.config.job_name
    content = find_content(ledger, experiment)
    if content is None:
        return
    outside = list(dict.fromkeys(_find_outside(content, prepared)))
    if outside:
        more = f" and {len(outside) - _SHOWN} more" if len(outside) > _SHOWN else ""
        raise InputError(
            f"{ledger.directory}: the experiment {experiment!r} {content.said_by}; this job would "
            f"add {', '.join(outside[:_SHOWN])}{more}. {REMEDY}"
        )


def _find_outside(content: Content, prepared: Prepared) -> Iterator[str]:
    digests = {id(agent): _digest(agent, prepared) for agent in prepared.config.agents}
    for slot in prepared.slots:
        digest, agent = digests[id(slot.agent)], slot.agent
        task = slot.planned.task.name
        if digest not in content.agents:
            name = label_agent(agent.name or agent.import_path or "", agent.model_name)
            same = name in content.agents.values()
            yield f"the agent {name}{' with other settings' if same else ''}"
        elif not {(None, task), (_dataset_of(slot, prepared), task)} & content.tasks:
            yield f"the task {task} of {_dataset_of(slot, prepared)}"
        elif content.attempts is not None and (
            content.sealed[digest, task] + slot.attempt > content.attempts
        ):
            yield f"attempt {content.sealed[digest, task] + slot.attempt} at {task}"


def _digest(agent: AgentConfig, prepared: Prepared) -> str:
    told = prepared.config.model_dump(mode="json", include={"extra_instruction_paths"})
    return digest_settings({**told, "agent": agent.model_dump(mode="json")})


def _dataset_of(slot: Slot, prepared: Prepared) -> str:
    """The name that the trial's dataset will have in lists and on boards."""
    declared = prepared.settings.dataset_id or slot.planned.dataset_id
    return declared or slot.planned.config.source or ADHOC
