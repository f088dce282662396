"""Whether the trials of a new job belong to the experiment that they would be sealed under.

What belongs to an experiment is what was planned for it: the first plan that was sealed under its
name. Without a plan it is what is sealed there already: the agents, each with its model and
settings, and the tasks with their datasets. Another attempt at the same is allowed then, anything
else is not: numbers of one name must not come from different things without a word.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from proctor.errors import InputError
from proctor.harbor.configs import AgentConfig
from proctor.harbor.stats import ADHOC
from proctor.job.planning import Prepared
from proctor.job.slots import Slot
from proctor.ledger.counting import NOT_COUNTED, find_restarted
from proctor.ledger.entry import TrialEntry
from proctor.ledger.ledger import Ledger
from proctor.ledger.query import looking
from proctor.ledger.run_plan import digest_settings
from proctor.ledger.sealed_plans import find_plans
from proctor.record.comparable import find_requested_model
from proctor.sentence import count_of

_TRIALS = (
    "SELECT trial_id, status, sitter, collection, task_id, seq FROM trials "
    "WHERE experiment_id = ? ORDER BY seq"
)
_SHOWN = 3

type _Task = tuple[str | None, str]
"""Dataset and name; a plan does not tell the datasets of its tasks."""


class _Agent(msgspec.Struct, frozen=True):
    adapter: str
    model: str
    configuration: dict[str, Any] = {}


class _Record(msgspec.Struct, frozen=True):
    agent: _Agent


@dataclass(slots=True)
class _Content:
    """What belongs to an experiment."""

    said_by: str
    agents: dict[str, str] = field(default_factory=dict)
    """Labels by the digest of their settings."""
    tasks: set[_Task] = field(default_factory=set)
    attempts: int | None = None
    """Of each agent at each task; None: as many as there are."""
    sealed: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Trials that count, by agent and task."""


def check_experiment(ledger: Ledger, prepared: Prepared) -> None:
    """See that a new job adds nothing else to an experiment than what belongs to it.

    Raises:
        InputError: it does; no trial was begun.
        DamageError: the log does not give what its checkpoint says.
    """
    experiment = prepared.settings.experiment or prepared.config.job_name
    content = _find_content(ledger, experiment)
    if content is None:
        return
    outside = list(dict.fromkeys(_find_outside(content, prepared)))
    if outside:
        more = f" and {len(outside) - _SHOWN} more" if len(outside) > _SHOWN else ""
        raise InputError(
            f"{ledger.directory}: the experiment {experiment!r} {content.said_by}; this job would "
            f"add {', '.join(outside[:_SHOWN])}{more}. Pass --experiment NAME for an experiment of "
            "its own, or --extend-experiment to add to this one"
        )


def _find_content(ledger: Ledger, experiment: str) -> _Content | None:
    """None where nothing is planned or sealed under the name."""
    found = _read_trials(ledger, experiment)
    for sealed in find_plans(ledger, experiment):
        try:
            plan = sealed.plan
        except InputError:
            continue  # of a format that is not known here
        agents = {each.settings: _label(each.agent, each.model) for each in plan.agents}
        tasks: set[_Task] = {(None, each.task) for each in plan.tasks}
        trials = count_of(plan.n_trials, "trial")
        said = f"was planned (entry {sealed.seq}) with {trials}"
        return _Content(said, agents, tasks, plan.attempts, found.sealed)
    return found if found.agents else None


def _read_trials(ledger: Ledger, experiment: str) -> _Content:
    with looking(ledger):
        rows = ledger.index.select(_TRIALS, (experiment,))
    restarted = find_restarted([(trial, status) for trial, status, *_ in rows])
    content, digests = _Content(""), dict[int, str]()
    for trial, status, sitter, dataset, task, seq in rows:
        if sitter is None:
            continue  # withheld: what it ran is not known
        if sitter not in digests:
            digests[sitter] = _read_agent(ledger, seq, content.agents)
        content.tasks.add((dataset, task))
        if status not in NOT_COUNTED and trial not in restarted:
            content.sealed[digests[sitter], task] += 1
    names = " and ".join(dict.fromkeys(content.agents.values()))
    tasks = count_of(len(content.tasks), "task")
    content.said_by = f"has trials of {names} at {tasks}"
    return content


def _read_agent(ledger: Ledger, seq: int, agents: dict[str, str]) -> str:
    """The digest of what the agent of a sealed trial was told."""
    entry = ledger.entry(seq)
    if not isinstance(entry, TrialEntry):
        return ""
    agent = msgspec.json.decode(entry.record, type=_Record).agent
    digest = digest_settings(agent.configuration)
    requested = find_requested_model(agent.configuration)
    agents.setdefault(digest, _label(agent.adapter, requested or agent.model))
    return digest


def _label(agent: str, model: str | None) -> str:
    return f"{agent} · {model}" if model and model != "none" else agent


def _find_outside(content: _Content, prepared: Prepared) -> Iterator[str]:
    digests = {id(agent): _digest(agent, prepared) for agent in prepared.config.agents}
    for slot in prepared.slots:
        digest, agent = digests[id(slot.agent)], slot.agent
        task = slot.planned.task.name
        if digest not in content.agents:
            name = _label(agent.name or agent.import_path or "", agent.model_name)
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
