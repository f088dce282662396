"""Deviations of an experiment from its plan.

    ran-before-plan      sealed, or by its own timestamp run, before the plan
    unplanned-task       a task that is not in the plan
    unplanned-agent      an agent or a model that is not in the plan
    changed-settings     the agent had other settings
    changed-revision     the task, or the agent, had another revision
    changed-limits       another multiplier, override or environment
    extra-attempts       more trials count than planned
    missing-attempts     fewer trials count than planned
    excluded             another trial replaces one, for a cause that the plan does not allow
    late-exclusion       … for a cause that it allows, but after the trial had a score
    picked-best          the replacing trial scored more than the replaced one
    extra-retries        a trial was retried more often than planned
    retried              a trial was retried after an exception that the plan excludes
    withheld             a trial was withheld after it was sealed
    withheld-unnamed     an entry was withheld without naming a trial: it may be one of these
    changed-plan         another plan was sealed for the experiment later

Only what the plan states is compared.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from proctor.errors import DamageError
from proctor.ledger.counting import ATTEMPT, NOT_COUNTED, RESTARTED
from proctor.ledger.entry import TrialEntry
from proctor.ledger.query import load_position
from proctor.ledger.reader import LedgerReader
from proctor.ledger.row import TrialRow
from proctor.ledger.run_plan import PlannedAgent, RunPlan, digest_settings
from proctor.ledger.sealed_plans import SealedPlan, list_plans
from proctor.report.board.trials import BoardTrials, Supersession, TrialReading
from proctor.sentence import count_of, render_figure

# The trials of an experiment, matched with the plan


class _Agent(msgspec.Struct, frozen=True):
    configuration: dict[str, Any] = {}


class _Record(msgspec.Struct, frozen=True):
    agent: _Agent


@dataclass(frozen=True, slots=True)
class PlannedTrial:
    """One trial, with what the plan says about it."""

    row: TrialRow
    settings: str
    """Digest of the agent's settings, as in plans; empty if it was withheld."""
    planned: PlannedAgent | None
    """The planned agent; None if the plan has none for it."""
    supersession: Supersession | None
    """The supersession of the trial, whether or not it counts."""

    @property
    def is_counted(self) -> bool:
        """Whether it counts."""
        return self.row.status not in NOT_COUNTED


@dataclass(frozen=True, slots=True)
class PlannedTrials:
    """All trials of an experiment, in the order they were sealed."""

    matched: tuple[PlannedTrial, ...]
    trials: BoardTrials


def load_planned(ledger: LedgerReader, experiment: str, plan: RunPlan) -> PlannedTrials:
    """Match the trials of an experiment with its plan."""
    position = load_position(ledger, experiment=experiment)
    reading = TrialReading(ledger, position)
    rows = list(reading.read(position.trials))
    trials = reading.finish()
    return PlannedTrials(tuple(_match_trial(ledger, each, trials, plan) for each in rows), trials)


def _match_trial(
    ledger: LedgerReader, row: TrialRow, trials: BoardTrials, plan: RunPlan
) -> PlannedTrial:
    settings_of_agent = _read_settings(ledger, row)
    settings = digest_settings(settings_of_agent) if settings_of_agent is not None else ""
    return PlannedTrial(
        row=row,
        settings=settings,
        planned=_find_planned(row, settings, plan),
        supersession=trials.supersessions.get(row.record),
    )


def _read_settings(ledger: LedgerReader, row: TrialRow) -> Mapping[str, Any] | None:
    entry = ledger.entry(row.seq)
    if not isinstance(entry, TrialEntry):
        return None
    try:
        return msgspec.json.decode(entry.record, type=_Record).agent.configuration
    except msgspec.MsgspecError as error:
        raise DamageError(f"entry {row.seq}: its record is invalid: {error}") from error


def _find_planned(row: TrialRow, settings: str, plan: RunPlan) -> PlannedAgent | None:
    """The agent with the same settings, else the one with the same name and model."""
    for agent in plan.agents:
        if agent.settings == settings:
            return agent
    for agent in plan.agents:
        same_model = agent.model is None or agent.model == row.model
        if agent.agent == row.agent and same_model:
            return agent
    return None


class Deviation(msgspec.Struct, frozen=True):
    """One deviation from the plan."""

    kind: str
    """One of the kinds listed above."""
    subject: str
    """A trial as EXPERIMENT/TRIAL, or a task with its agent."""
    message: str
    seq: int | None = None
    """Position of the entry that shows it."""


@dataclass(frozen=True, slots=True)
class PlanAudit:
    """An experiment compared with its plan."""

    sealed: SealedPlan
    deviations: tuple[Deviation, ...]
    counted: int
    listed: int

    @property
    def follows(self) -> bool:
        """Whether there is no deviation."""
        return not self.deviations


def audit_plan(ledger: LedgerReader, sealed: SealedPlan) -> PlanAudit:
    """Compare an experiment with its plan."""
    planned_trials = load_planned(ledger, sealed.experiment, sealed.plan)
    later = [each for each in list_plans(ledger, sealed.experiment) if each.seq > sealed.seq]
    judge = _Judge(sealed, planned_trials)
    found = [*judge.find_all(), *map(_replanned, later)]
    listed = [each for each in planned_trials.matched if each.row.status != "withheld"]
    return PlanAudit(
        sealed=sealed,
        deviations=tuple(found),
        counted=sum(each.is_counted for each in listed),
        listed=len(listed),
    )


def _replanned(other: SealedPlan) -> Deviation:
    message = f"another plan of the experiment was sealed at {other.at} by {other.author}"
    return Deviation("changed-plan", other.experiment, message, other.seq)


class _Judge:
    """Compares trials with a plan."""

    def __init__(self, sealed: SealedPlan, planned_trials: PlannedTrials) -> None:
        self.sealed = sealed
        self.plan = sealed.plan
        self.planned = planned_trials
        self.revisions = {each.task: each.revision for each in self.plan.tasks}
        self.by_record = {each.row.record: each for each in planned_trials.matched}

    def find_all(self) -> Iterator[Deviation]:
        """All deviations."""
        for trial in self.planned.matched:
            if trial.row.status != "withheld":
                yield from self._check_time(trial)
                yield from self._check_task(trial)
                yield from self._check_agent(trial)
                yield from self._check_limits(trial)
                yield from self._check_exclusion(trial)
        yield from self._check_retries()
        yield from self._count_attempts()
        yield from self._check_withheld()

    def _check_time(self, trial: PlannedTrial) -> Iterator[Deviation]:
        row = trial.row
        if row.seq < self.sealed.seq:
            message = f"sealed before the plan, which is entry {self.sealed.seq}"
            yield _of(trial, "ran-before-plan", message)
        elif _is_earlier(row.timestamp, self.sealed.at):
            message = f"ran at {row.timestamp}, before the plan was sealed at {self.sealed.at}"
            yield _of(trial, "ran-before-plan", message)

    def _check_task(self, trial: PlannedTrial) -> Iterator[Deviation]:
        row, conditions = trial.row, trial.row.task_conditions
        planned = self.revisions.get(row.task_id or "")
        if planned is None:
            yield _of(trial, "unplanned-task", f"ran {row.task_id}, which is not in the plan")
        elif conditions is not None and conditions.revision != planned:
            found = f"{row.task_id} is at revision {conditions.revision}"
            message = f"{found}; planned: {planned}"
            yield _of(trial, "changed-revision", message)

    def _check_agent(self, trial: PlannedTrial) -> Iterator[Deviation]:
        row, planned = trial.row, trial.planned
        if planned is None:
            message = f"run by {row.agent} with {row.model}, which is not in the plan"
            yield _of(trial, "unplanned-agent", message)
            return
        if planned.settings != trial.settings:
            message = f"settings {trial.settings}; planned: {planned.settings}"
            yield _of(trial, "changed-settings", message)
        if planned.model is not None and row.model != planned.model:
            message = f"answered by {row.model}; planned: {planned.model}"
            yield _of(trial, "unplanned-agent", message)
        if planned.revision is not None and planned.revision not in (row.revision or ""):
            message = f"{row.agent} is at revision {row.revision}, not {planned.revision}"
            yield _of(trial, "changed-revision", message)

    def _check_limits(self, trial: PlannedTrial) -> Iterator[Deviation]:
        run = trial.row.run_conditions
        if run is None:
            return
        for name in sorted({*run.changed, *self.plan.limits}):
            now, then = run.changed.get(name), self.plan.limits.get(name)
            if now != then:
                message = f"{name} is {_spell(now)}; planned: {_spell(then)}"
                yield _of(trial, "changed-limits", message)
        if run.backend != self.plan.environment:
            message = f"ran in {run.backend}; planned: {self.plan.environment}"
            yield _of(trial, "changed-limits", message)

    def _check_exclusion(self, trial: PlannedTrial) -> Iterator[Deviation]:
        supersession = trial.supersession
        if supersession is None:
            return
        why = f"{supersession.cause}: {supersession.reason} ({supersession.author})"
        replaced = f"{supersession.by} replaces it, {why}"
        if supersession.cause not in self.plan.exclusions:
            allowed = ", ".join(self.plan.exclusions) or "no cause"
            message = f"{replaced}; the plan allows {allowed}"
            yield _of(trial, "excluded", message, supersession.seq)
        elif trial.row.reward is not None:
            message = (
                f"{replaced}; its score of {render_figure(trial.row.reward)} was known by then"
            )
            yield _of(trial, "late-exclusion", message, supersession.seq)
        other = self.by_record.get(supersession.by_record)
        mine, theirs = trial.row.reward, other.row.reward if other else None
        if mine is not None and theirs is not None and theirs > mine:
            message = (
                f"{supersession.by} scored {render_figure(theirs)}, more than its "
                f"{render_figure(mine)}"
            )
            yield _of(trial, "picked-best", message, supersession.seq)

    def _check_retries(self) -> Iterator[Deviation]:
        rules = self.plan.retries
        kept = [trial for trial in self.planned.matched if trial.row.status == RESTARTED]
        times = Counter(trial.row.name.rpartition(ATTEMPT)[0] for trial in kept)
        for name, number in times.items():
            if number > rules.most:
                message = f"run again {count_of(number, 'time')}; planned: at most {rules.most}"
                yield Deviation("extra-retries", name, message)
        for trial in kept:
            # What a killed attempt raised is unknown; its reason code says how it ended.
            exception = trial.row.exception or trial.row.reason_code
            allowed = exception is not None and exception not in rules.never
            if allowed and (rules.only is None or exception in rules.only):
                continue
            message = (
                f"run again after {exception or 'no exception'}, which the plan does not retry"
            )
            yield _of(trial, "retried", message)

    def _count_attempts(self) -> Iterator[Deviation]:
        counted: dict[tuple[int, str], list[PlannedTrial]] = {}
        for trial in self.planned.matched:
            if (
                trial.is_counted
                and trial.planned is not None
                and trial.row.task_id in self.revisions
            ):
                place = self.plan.agents.index(trial.planned)
                counted.setdefault((place, trial.row.task_id), []).append(trial)
        for place, agent in enumerate(self.plan.agents):
            for task in self.revisions:
                yield from self._compare(agent, task, counted.get((place, task), []))

    def _compare(
        self, agent: PlannedAgent, task: str, trials: Sequence[PlannedTrial]
    ) -> Iterator[Deviation]:
        model = f" ({agent.model})" if agent.model else ""
        subject = f"{task} by {agent.agent}{model}"
        planned, n = self.plan.attempts, len(trials)
        if n > planned:
            names = ", ".join(each.row.trial_id for each in trials)
            message = f"{n} trials count, planned: {planned}: {names}"
            yield Deviation("extra-attempts", subject, message, trials[planned].row.seq)
        elif n < planned:
            counts = "trial counts" if n == 1 else "trials count"
            yield Deviation("missing-attempts", subject, f"{n} {counts}, planned: {planned}")

    def _check_withheld(self) -> Iterator[Deviation]:
        for withheld in self.planned.trials.withheld:
            message = f"withheld after it was sealed: {withheld.reason or 'no reason recorded'}"
            author = f" ({withheld.author})" if withheld.author else ""
            yield Deviation("withheld", withheld.name, f"{message}{author}", withheld.said_at)
        for each in self.planned.trials.withheld_unnamed:
            what = "evidence" if each.entry is None else f"entry {each.entry}"
            reason = each.reason or "no reason recorded"
            message = f"{what} withheld without naming a trial: {reason}"
            author = f" ({each.author})" if each.author else ""
            name = self.sealed.experiment
            yield Deviation("withheld-unnamed", name, f"{message}{author}", each.said_at)


def _of(trial: PlannedTrial, kind: str, message: str, seq: int | None = None) -> Deviation:
    return Deviation(kind, trial.row.name, message, trial.row.seq if seq is None else seq)


def _is_earlier(when: str | None, sealed: str) -> bool:
    """Whether a trial's timestamp is earlier; False if it is not a time."""
    try:
        return datetime.fromisoformat(when or "") < datetime.fromisoformat(sealed)
    except (ValueError, TypeError):
        return False


def _spell(value: object) -> str:
    return "the default" if value is None else str(value)
