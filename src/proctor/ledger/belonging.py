"""What belongs to an experiment of a ledger: its sealed plan, else what is sealed under its name.

The agents, each with its model and settings, and the tasks with their datasets. Numbers of one
name must not come from different things without a word: `proctor run` asks here before the first
trial starts, `ledger seal` and `import harbor` before they add the trials of another job.
"""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from proctor.errors import InputError, NotSealedError
from proctor.ledger.counting import NOT_COUNTED, WITHHELD
from proctor.ledger.entry import TrialEntry
from proctor.ledger.query import looking, with_restarted
from proctor.ledger.reader import LedgerReader
from proctor.ledger.run_plan import digest_settings
from proctor.ledger.sealed_plans import find_plans
from proctor.ledger.sealing import Submission
from proctor.ledger.trial_index import TrialFilter
from proctor.record.comparable import find_requested_model
from proctor.sentence import count_of

REMEDY = (
    "Pass --experiment NAME for an experiment of its own, or --extend-experiment to add to this one"
)

type _Task = tuple[str | None, str]
"""Dataset and name; a plan does not tell the datasets of its tasks."""


class _Agent(msgspec.Struct, frozen=True):
    adapter: str
    model: str
    configuration: dict[str, Any] = {}


class _Record(msgspec.Struct, frozen=True):
    experiment_id: str
    agent: _Agent


@dataclass(slots=True)
class Content:
    """What belongs to an experiment."""

    said_by: str
    agents: dict[str, str] = field(default_factory=dict)
    """Labels by the digest of their settings."""
    tasks: set[_Task] = field(default_factory=set)
    attempts: int | None = None
    """Of each agent at each task; None: as many as there are."""
    sealed: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Trials that count, by agent and task."""
    trials: set[str] = field(default_factory=set)
    """Ids of all that are sealed."""


def find_content(ledger: LedgerReader, experiment: str) -> Content | None:
    """None where nothing is planned or sealed under the name."""
    found = _read_trials(ledger, experiment)
    for sealed in find_plans(ledger, experiment):
        try:
            plan = sealed.plan
        except InputError:
            continue  # of a format that is not known here
        agents = {each.settings: label_agent(each.agent, each.model) for each in plan.agents}
        tasks: set[_Task] = {(None, each.task) for each in plan.tasks}
        trials = count_of(plan.n_trials, "trial")
        said = f"was planned (entry {sealed.seq}) with {trials}"
        return Content(said, agents, tasks, plan.attempts, found.sealed, found.trials)
    return found if found.agents else None


def _read_trials(ledger: LedgerReader, experiment: str) -> Content:
    with looking(ledger):
        rows = with_restarted(list(ledger.index.trials(TrialFilter(experiment=experiment))))
    content, digests = Content(""), dict[tuple[str | None, ...], str]()
    for row in rows:
        content.trials.add(row.trial_id)
        if row.status == WITHHELD:
            continue  # what it ran is not known
        key = (row.agent, row.revision, row.model, row.configuration)
        if key not in digests:
            digests[key] = _read_agent(ledger, row.seq, content.agents)
        task = row.task_id or ""
        content.tasks.add((row.dataset_id, task))
        if row.status not in NOT_COUNTED:
            content.sealed[digests[key], task] += 1
    names = " and ".join(dict.fromkeys(content.agents.values()))
    tasks = count_of(len(content.tasks), "task")
    content.said_by = f"has trials of {names} at {tasks}"
    return content


def _read_agent(ledger: LedgerReader, seq: int, agents: dict[str, str]) -> str:
    """The digest of what the agent of a sealed trial was told."""
    entry = ledger.entry(seq)
    if not isinstance(entry, TrialEntry):
        return ""
    agent = msgspec.json.decode(entry.record, type=_Record).agent
    digest = digest_settings(agent.configuration)
    requested = find_requested_model(agent.configuration)
    agents.setdefault(digest, label_agent(agent.adapter, requested or agent.model))
    return digest


def label_agent(agent: str, model: str | None) -> str:
    """Agent and model as people say them."""
    return f"{agent} · {model}" if model and model != "none" else agent


class Admission:
    """Which trials that are sealed by hand belong to the experiment that they name.

    Those of a job of which trials are sealed there belong to it; of another job, those by the same
    agents. What the command itself seals meanwhile changes nothing.
    """

    def __init__(self) -> None:
        self._contents: dict[str, Content | None] = {}

    def check(self, ledger: LedgerReader, submission: Submission) -> None:
        """See that a trial belongs to its experiment.

        Raises:
            NotSealedError: it does not.
            DamageError: the log does not give what its checkpoint says.
        """
        try:
            record = msgspec.json.decode(submission.record, type=_Record)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return  # whoever seals it says what is wrong
        name, agent = record.experiment_id, record.agent
        if name not in self._contents:
            self._contents[name] = find_content(ledger, name)
        content = self._contents[name]
        if content is None or digest_settings(agent.configuration) in content.agents:
            return
        if not content.trials.isdisjoint(_list_siblings(submission.root)):
            return
        label = label_agent(agent.adapter, find_requested_model(agent.configuration) or agent.model)
        raise NotSealedError(
            f"{submission.where}: the experiment {name!r} {content.said_by}; this trial of another "
            f"job is by {label}. {REMEDY}"
        )


def _list_siblings(trial: Path | None) -> set[str]:
    """The trials that lie in the job of one."""
    if trial is None:
        return set()
    around = trial.parent
    job = around.parent.parent if around.name == "attempts" else around
    try:
        return {each.name for each in job.iterdir()}
    except OSError:
        return set()
