"""What belongs to an experiment: its sealed plan, or else the trials sealed under its name.

That is its agents with their models and settings, and its tasks with their datasets. The numbers
of one experiment must not silently mix different setups: `proctor run` checks this before the first
trial starts, `ledger seal` and `import harbor` before they add trials of another job.
"""

import contextlib
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import msgspec

from proctor.errors import InputError, NotSealedError
from proctor.ledger.counting import NOT_COUNTED, WITHHELD
from proctor.ledger.entry import TrialEntry
from proctor.ledger.query import snapshot, with_restarted
from proctor.ledger.reader import LedgerReader
from proctor.ledger.run_plan import digest_settings, list_plans
from proctor.ledger.sealing import Submission
from proctor.ledger.trial_index import TrialFilter
from proctor.record.comparable import find_requested_model
from proctor.sentence import count_of

REMEDY = (
    "Pass --experiment NAME for an experiment of its own, or --extend-experiment to add to this one"
)

# Dataset and name of a task; None where it comes from a plan, which names no datasets.
type _Task = tuple[str | None, str]


class _Agent(msgspec.Struct, frozen=True):
    adapter: str
    model: str
    configuration: dict[str, Any] = {}


class _Record(msgspec.Struct, frozen=True):
    experiment_id: str
    agent: _Agent


@dataclass(slots=True)
class Content:
    """Agents, tasks and trials of an experiment."""

    description: str
    agents: dict[str, str] = field(default_factory=dict)
    """Labels of the agents, by the digest of their settings."""
    tasks: set[_Task] = field(default_factory=set)
    attempts: int | None = None
    """Attempts of each agent at each task; None: any number."""
    sealed: Counter[tuple[str, str]] = field(default_factory=Counter)
    """The number of trials that count, by agent and task."""
    trials: set[str] = field(default_factory=set)
    """Ids of all sealed trials."""


def find_content(ledger: LedgerReader, experiment: str) -> Content | None:
    """Read what is planned or sealed under a name; None if nothing is."""
    found = _read_trials(ledger, experiment)
    for sealed in list_plans(ledger, experiment):
        try:
            plan = sealed.plan
        except InputError:
            continue  # an unknown format
        agents = {each.settings: label_agent(each.agent, each.model) for each in plan.agents}
        tasks: set[_Task] = {(None, each.task) for each in plan.tasks}
        trials = count_of(plan.n_trials, "trial")
        said = f"was planned (entry {sealed.seq}) with {trials}"
        return Content(said, agents, tasks, plan.attempts, found.sealed, found.trials)
    return found if found.agents else None


def _read_trials(ledger: LedgerReader, experiment: str) -> Content:
    with snapshot(ledger):
        rows = with_restarted(list(ledger.index.trials(TrialFilter(experiment=experiment))))
    content, digests = Content(""), dict[tuple[str | None, ...], str]()
    for row in rows:
        content.trials.add(row.trial_id)
        if row.status == WITHHELD:
            continue  # its agent and task are unknown
        # Trials with the same key have the same settings: one record is read for all of them.
        key = (row.agent, row.revision, row.model, row.configuration)
        if key not in digests:
            digests[key] = _read_agent(ledger, row.seq, content.agents)
        task = row.task_id or ""
        content.tasks.add((row.dataset_id, task))
        if row.status not in NOT_COUNTED:
            content.sealed[digests[key], task] += 1
    names = " and ".join(dict.fromkeys(content.agents.values()))
    tasks = count_of(len(content.tasks), "task")
    content.description = f"has trials of {names} at {tasks}"
    return content


def _read_agent(ledger: LedgerReader, seq: int, agents: dict[str, str]) -> str:
    """Add the agent of a sealed trial to `agents`; returns the digest of its settings."""
    entry = ledger.entry(seq)
    if not isinstance(entry, TrialEntry):
        return ""
    agent = msgspec.json.decode(entry.record, type=_Record).agent
    digest = digest_settings(agent.configuration)
    requested = find_requested_model(agent.configuration)
    agents.setdefault(digest, label_agent(agent.adapter, requested or agent.model))
    return digest


def label_agent(agent: str, model: str | None) -> str:
    """Agent and model for messages."""
    return f"{agent} · {model}" if model and model != "none" else agent


class Admission:
    """Checks that trials sealed by hand belong to the experiment that they name.

    Trials of a job that has sealed trials there belong to it; trials of another job belong to it if
    their agent does. Each experiment is read once, before the command adds trials to it.
    """

    def __init__(self) -> None:
        self._contents: dict[str, Content | None] = {}

    def check(self, ledger: LedgerReader, submission: Submission) -> None:
        """Check that a trial belongs to its experiment.

        Raises:
            NotSealedError: it does not.
            DamageError: the log does not match its checkpoint.
        """
        try:
            record = msgspec.json.decode(submission.record, type=_Record)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return  # sealing reports what is wrong with the record
        name, agent = record.experiment_id, record.agent
        if name not in self._contents:
            self._contents[name] = find_content(ledger, name)
        content = self._contents[name]
        if content is None or digest_settings(agent.configuration) in content.agents:
            return
        if (trial := submission.root) is not None:
            around = trial.parent
            job = around.parent.parent if around.name == "attempts" else around
            with contextlib.suppress(OSError):
                if not content.trials.isdisjoint(each.name for each in job.iterdir()):
                    return
        label = label_agent(agent.adapter, find_requested_model(agent.configuration) or agent.model)
        raise NotSealedError(
            f"{submission.where}: the experiment {name!r} {content.description}; this trial of "
            f"another job is by {label}. {REMEDY}"
        )
