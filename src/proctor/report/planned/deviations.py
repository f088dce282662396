"""Each way in which an experiment departs from its plan.

    ran-before-plan      sealed, or by its own clock run, before the plan was
    unplanned-task       a task that the plan does not have
    unplanned-agent      an agent or a model that it does not have
    changed-settings     the agent was told something else
    changed-revision     the task, or the agent, was another one
    changed-limits       another multiplier or override, another environment
    extra-attempts       more trials count than were to be run
    missing-attempts     fewer count
    excluded             another trial stands in for one, for a cause that the plan does not have
    late-exclusion       the same for a cause that it has, but the trial had its score by then
    picked-best          what stands in for a trial scored more than it
    extra-retries        a trial was run again more often than planned
    retried              a trial was run again for an exception that the plan leaves alone
    withheld             a trial was taken out after it was sealed
    withheld-unnamed     an entry of the ledger was taken out, and no trial is named: it may be one
    changed-plan         another plan was sealed for the experiment later

What the plan does not speak of is no deviation.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from proctor.errors import DamageError
from proctor.ledger.counting import NOT_COUNTED, RESTARTED
from proctor.ledger.entry import TrialEntry
from proctor.ledger.query import load_position
from proctor.ledger.reader import LedgerReader
from proctor.ledger.row import TrialRow
from proctor.ledger.run_plan import PlannedAgent, RunPlan, digest_settings
from proctor.ledger.sealed_plans import SealedPlan, find_plans
from proctor.report.board.trials import BoardTrials, StandIn, settle
from proctor.sentence import count_of

# The trials of an experiment as a plan looks at them: who sat what, and what became of it


class _Agent(msgspec.Struct, frozen=True):
    configuration: dict[str, Any] = {}


class _Record(msgspec.Struct, frozen=True):
    agent: _Agent


@dataclass(frozen=True, slots=True)
class PlannedTrial:
    """One trial."""

    attempt: TrialRow
    settings: str
    """Digest of what the agent was told, as plans have it; empty where it was withheld."""
    planned: PlannedAgent | None
    """Whom the plan has for it; None: nobody."""
    stand_in: StandIn | None
    """What stands in for it, whether that counts or not."""

    @property
    def is_counted(self) -> bool:
        """Whether it is in the numbers."""
        return self.attempt.status not in NOT_COUNTED


@dataclass(frozen=True, slots=True)
class PlannedTrials:
    """All trials of an experiment, in the order they were sealed."""

    sat: tuple[PlannedTrial, ...]
    trials: BoardTrials


def load_planned(ledger: LedgerReader, experiment: str, plan: RunPlan) -> PlannedTrials:
    """The trials of an experiment.

    Raises:
        DamageError: a record cannot be read, or the log is not what its checkpoint says.
    """
    trials = settle(ledger, load_position(ledger, experiment=experiment))
    return PlannedTrials(
        tuple(_look_at(ledger, each, trials, plan) for each in trials.attempts), trials
    )


def _look_at(
    ledger: LedgerReader, attempt: TrialRow, trials: BoardTrials, plan: RunPlan
) -> PlannedTrial:
    told = _read_settings(ledger, attempt)
    settings = digest_settings(told) if told is not None else ""
    return PlannedTrial(
        attempt=attempt,
        settings=settings,
        planned=_find_planned(attempt, settings, plan),
        stand_in=trials.stand_ins.get(attempt.record),
    )


def _read_settings(ledger: LedgerReader, attempt: TrialRow) -> Mapping[str, Any] | None:
    entry = ledger.entry(attempt.seq)
    if not isinstance(entry, TrialEntry):
        return None
    try:
        return msgspec.json.decode(entry.record, type=_Record).agent.configuration
    except msgspec.MsgspecError as error:
        raise DamageError(f"entry {attempt.seq}: no TrialRecord in it: {error}") from error


def _find_planned(attempt: TrialRow, settings: str, plan: RunPlan) -> PlannedAgent | None:
    """By what it was told; else by its name and model."""
    for agent in plan.agents:
        if agent.settings == settings:
            return agent
    for agent in plan.agents:
        same_model = agent.model is None or agent.model == attempt.model
        if agent.agent == attempt.agent and same_model:
            return agent
    return None


class Deviation(msgspec.Struct, frozen=True):
    """One thing that is not as it was planned."""

    kind: str
    """From the list above."""
    subject: str
    """A trial as EXPERIMENT/TRIAL; else a task and who sat it."""
    message: str
    seq: int | None = None
    """Place of the entry that it rests on."""


@dataclass(frozen=True, slots=True)
class PlanAudit:
    """An experiment beside its plan."""

    sealed: SealedPlan
    deviations: tuple[Deviation, ...]
    counted: int
    listed: int

    @property
    def follows(self) -> bool:
        """Whether nothing departs from the plan."""
        return not self.deviations


def audit_plan(ledger: LedgerReader, sealed: SealedPlan) -> PlanAudit:
    """Hold an experiment against its plan.

    Raises:
        InputError: the plan is of a format that is not known here.
        DamageError: the log does not give what its checkpoint says.
    """
    sittings = load_planned(ledger, sealed.experiment, sealed.plan)
    later = [each for each in find_plans(ledger, sealed.experiment) if each.seq > sealed.seq]
    judge = _Judge(sealed, sittings)
    found = [*judge.look_at_all(), *map(_replanned, later)]
    listed = [each for each in sittings.sat if each.attempt.status != "withheld"]
    return PlanAudit(
        sealed=sealed,
        deviations=tuple(found),
        counted=sum(each.is_counted for each in listed),
        listed=len(listed),
    )


def _replanned(other: SealedPlan) -> Deviation:
    message = f"a plan of the experiment was sealed again at {other.at} by {other.author}"
    return Deviation("changed-plan", other.experiment, message, other.seq)


class _Judge:
    """A plan, and the trials that are held against it."""

    def __init__(self, sealed: SealedPlan, sittings: PlannedTrials) -> None:
        self.sealed = sealed
        self.plan = sealed.plan
        self.sittings = sittings
        self.revisions = {each.task: each.revision for each in self.plan.tasks}
        self.by_record = {each.attempt.record: each for each in sittings.sat}

    def look_at_all(self) -> Iterator[Deviation]:
        """Everything that departs."""
        for sat in self.sittings.sat:
            if sat.attempt.status != "withheld":
                yield from self._look_at_time(sat)
                yield from self._look_at_task(sat)
                yield from self._look_at_agent(sat)
                yield from self._look_at_limits(sat)
                yield from self._look_at_exclusion(sat)
        yield from self._look_at_retries()
        yield from self._count_attempts()
        yield from self._look_at_withheld()

    def _look_at_time(self, sat: PlannedTrial) -> Iterator[Deviation]:
        attempt = sat.attempt
        if attempt.seq < self.sealed.seq:
            message = f"sealed before the plan, which is entry {self.sealed.seq}"
            yield _of(sat, "ran-before-plan", message)
        elif _is_earlier(attempt.timestamp, self.sealed.at):
            message = f"ran at {attempt.timestamp}, before the plan was sealed at {self.sealed.at}"
            yield _of(sat, "ran-before-plan", message)

    def _look_at_task(self, sat: PlannedTrial) -> Iterator[Deviation]:
        attempt, conditions = sat.attempt, sat.attempt.task_conditions
        planned = self.revisions.get(attempt.task_id or "")
        if planned is None:
            yield _of(sat, "unplanned-task", f"sat {attempt.task_id}, which is not in the plan")
        elif conditions is not None and conditions.revision != planned:
            found = f"{attempt.task_id} is of revision {conditions.revision}"
            message = f"{found}; planned is {planned}"
            yield _of(sat, "changed-revision", message)

    def _look_at_agent(self, sat: PlannedTrial) -> Iterator[Deviation]:
        attempt, planned = sat.attempt, sat.planned
        if planned is None:
            message = f"sat by {attempt.agent} with {attempt.model}; neither is in the plan so"
            yield _of(sat, "unplanned-agent", message)
            return
        if planned.settings != sat.settings:
            message = f"told {sat.settings}; planned is {planned.settings}"
            yield _of(sat, "changed-settings", message)
        if planned.model is not None and attempt.model != planned.model:
            message = f"answered by {attempt.model}; planned is {planned.model}"
            yield _of(sat, "unplanned-agent", message)
        if planned.revision is not None and planned.revision not in (attempt.revision or ""):
            message = f"{attempt.agent} is of revision {attempt.revision}, not {planned.revision}"
            yield _of(sat, "changed-revision", message)

    def _look_at_limits(self, sat: PlannedTrial) -> Iterator[Deviation]:
        run = sat.attempt.run_conditions
        if run is None:
            return
        for name in sorted({*run.changed, *self.plan.limits}):
            now, then = run.changed.get(name), self.plan.limits.get(name)
            if now != then:
                message = f"{name} is {_spell(now)}; planned is {_spell(then)}"
                yield _of(sat, "changed-limits", message)
        if run.backend != self.plan.environment:
            message = f"ran in {run.backend}; planned is {self.plan.environment}"
            yield _of(sat, "changed-limits", message)

    def _look_at_exclusion(self, sat: PlannedTrial) -> Iterator[Deviation]:
        stand_in = sat.stand_in
        if stand_in is None:
            return
        why = f"{stand_in.cause}: {stand_in.reason} ({stand_in.author})"
        said = f"{stand_in.by} stands in for it, {why}"
        if stand_in.cause not in self.plan.exclusions:
            allowed = ", ".join(self.plan.exclusions) or "no cause"
            message = f"{said}; the plan allows {allowed}"
            yield _of(sat, "excluded", message, stand_in.seq)
        elif sat.attempt.reward is not None:
            message = f"{said}; its score of {sat.attempt.reward:g} was known by then"
            yield _of(sat, "late-exclusion", message, stand_in.seq)
        other = self.by_record.get(stand_in.by_record)
        mine, theirs = sat.attempt.reward, other.attempt.reward if other else None
        if mine is not None and theirs is not None and theirs > mine:
            message = f"{stand_in.by} scored {theirs:g}, which is more than its {mine:g}"
            yield _of(sat, "picked-best", message, stand_in.seq)

    def _look_at_retries(self) -> Iterator[Deviation]:
        rules = self.plan.retries
        kept = [sat for sat in self.sittings.sat if sat.attempt.status == RESTARTED]
        times = Counter(sat.attempt.name.rpartition(".attempt-")[0] for sat in kept)
        for name, number in times.items():
            if number > rules.most:
                message = f"run again {count_of(number, 'time')}; planned are at most {rules.most}"
                yield Deviation("extra-retries", name, message)
        for sat in kept:
            broke = sat.attempt.exception
            allowed = broke is not None and broke not in rules.never
            if allowed and (rules.only is None or broke in rules.only):
                continue
            message = f"run again after {broke or 'no exception'}, which the plan leaves alone"
            yield _of(sat, "retried", message)

    def _count_attempts(self) -> Iterator[Deviation]:
        counted: dict[tuple[int, str], list[PlannedTrial]] = {}
        for sat in self.sittings.sat:
            if sat.is_counted and sat.planned is not None and sat.attempt.task_id in self.revisions:
                place = self.plan.agents.index(sat.planned)
                counted.setdefault((place, sat.attempt.task_id), []).append(sat)
        for place, agent in enumerate(self.plan.agents):
            for task in self.revisions:
                yield from self._compare(agent, task, counted.get((place, task), []))

    def _compare(
        self, agent: PlannedAgent, task: str, sat: Sequence[PlannedTrial]
    ) -> Iterator[Deviation]:
        model = f" ({agent.model})" if agent.model else ""
        subject = f"{task} by {agent.agent}{model}"
        planned, n = self.plan.attempts, len(sat)
        if n > planned:
            names = ", ".join(each.attempt.trial_id for each in sat)
            message = f"{n} trials count, planned are {planned}: {names}"
            yield Deviation("extra-attempts", subject, message, sat[planned].attempt.seq)
        elif n < planned:
            counts = "trial counts" if n == 1 else "trials count"
            yield Deviation("missing-attempts", subject, f"{n} {counts}, planned are {planned}")

    def _look_at_withheld(self) -> Iterator[Deviation]:
        for gone in self.sittings.trials.withheld:
            message = f"withheld after it was sealed: {gone.reason or 'no reason is left'}"
            author = f" ({gone.author})" if gone.author else ""
            yield Deviation("withheld", gone.name, f"{message}{author}", gone.said_at)
        for each in self.sittings.trials.withheld_unnamed:
            what = "evidence" if each.entry is None else f"entry {each.entry}"
            reason = each.reason or "no reason is left"
            message = f"{what} withheld without naming a trial: {reason}"
            author = f" ({each.author})" if each.author else ""
            name = self.sealed.experiment
            yield Deviation("withheld-unnamed", name, f"{message}{author}", each.said_at)


def _of(sat: PlannedTrial, kind: str, message: str, seq: int | None = None) -> Deviation:
    return Deviation(kind, sat.attempt.name, message, sat.attempt.seq if seq is None else seq)


def _is_earlier(when: str | None, sealed: str) -> bool:
    """Whether a trial's own time is before another; what is no time is not."""
    try:
        return datetime.fromisoformat(when or "") < datetime.fromisoformat(sealed)
    except (ValueError, TypeError):
        return False


def _spell(value: object) -> str:
    return "the default" if value is None else str(value)
