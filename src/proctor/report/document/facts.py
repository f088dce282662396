"""The content of a report as a value, including what could not be computed and why."""

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from proctor.harbor.stats import count_errored
from proctor.ledger.counting import counted_trials
from proctor.ledger.row import TrialRow
from proctor.report.behaviour import CLASSIFIED_BY, Behaviour
from proctor.report.groups import Group, group_by_task, group_trials, name_groups
from proctor.report.runs import Basis, Run
from proctor.report.scores import Scores, score_tasks
from proctor.report.statistics.efficiency import pareto
from proctor.report.statistics.intervals import CONFIDENCE
from proctor.sentence import count_of
from proctor.traces.trial_summary import ExperimentSummary

_UNKNOWN = "not known"


class TaskFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One task with its attempts."""

    task: str
    revisions: tuple[str, ...]
    images: tuple[str, ...]
    rewards: tuple[float | None, ...]
    """Of every attempt, in order; null: not scored."""
    trials: tuple[str, ...]
    """EXPERIMENT/TRIAL of each."""
    mean: float | None
    """Over scored attempts; null: there are none."""
    variance: float | None
    """Unbiased, between attempts; null if fewer than two are scored."""
    is_flaky: bool
    """Whether scored attempts differ."""


class Conditions(msgspec.Struct, frozen=True, kw_only=True):
    """The conditions of the trials; several values mean a mixture."""

    datasets: tuple[str, ...]
    backends: tuple[str, ...]
    profiles: tuple[str, ...]
    limits: tuple[str, ...]
    """Changed limits; "the default" if there are none."""
    revisions: tuple[str, ...]
    """Revisions of the agent's adapter."""
    pinned_images: int
    """Trials whose image is pinned by digest."""
    first: str | None
    """When the first of them ran, in UTC."""
    last: str | None


class GroupFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One agent and model in one run."""

    run: str
    label: str
    """Distinguishes it from the other groups of the report."""
    agent: str
    model: str
    configuration: str
    conditions: Conditions
    statuses: dict[str, int]
    """Trials by record status."""
    sources: dict[str, int]
    """Trials by source."""
    scores: Scores
    errored: int
    """Trials that raised an exception, whether or not they were scored."""
    exceptions: dict[str, tuple[str, ...]]
    """Those trials, by the exception's class."""
    tasks: tuple[TaskFacts, ...]
    behaviour: ExperimentSummary | None
    """Null if traces were not read."""
    advisor_calls: int | None
    """Null: unknown for all trials."""
    findings: dict[str, tuple[str, ...]]
    """Integrity findings: trials by code."""
    reviews: dict[str, int]
    """Trials by the verdict of their latest review; `none`: not reviewed."""
    is_on_front: bool
    """Whether no other group of the report is both cheaper and better."""


class RunFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One run."""

    name: str
    is_sealed: bool
    left_out: dict[str, int]
    """Trials that do not count, by status."""
    unreadable: tuple[tuple[str, str], ...]
    """Trials of a job that could not be read, and why."""
    notes: tuple[str, ...]
    basis: Basis | None
    """The position of the log; null for a job directory."""


class ReportFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A whole report."""

    confidence: float
    runs: tuple[RunFacts, ...]
    groups: tuple[GroupFacts, ...]
    classified_by: str | None
    """The classifier of turns; null if traces were not read."""
    not_computed: tuple[str, ...]
    """What could not be computed, and why."""


def gather_facts(runs: Sequence[Run], behaviour: Behaviour | None) -> ReportFacts:
    """Gather the facts of runs."""
    parts = [(run, group, rows) for run in runs for group, rows in group_trials(run.trials).items()]
    labels = name_groups(group for _, group, _ in parts)
    found = [_gather_group(run, group, rows, behaviour) for run, group, rows in parts]
    names = [
        f"{run.name}: {labels[group]}" if len(runs) > 1 else labels[group]
        for run, group, _ in parts
    ]
    best = set(pareto([_point(each) for each in found]))
    groups = tuple(
        msgspec.structs.replace(each, label=name, is_on_front=at in best)
        for at, (each, name) in enumerate(zip(found, names, strict=True))
    )
    return ReportFacts(
        confidence=CONFIDENCE,
        runs=tuple(map(_gather_run, runs)),
        groups=groups,
        classified_by=CLASSIFIED_BY if behaviour is not None else None,
        not_computed=tuple(_find_missing(groups)),
    )


def _point(group: GroupFacts) -> tuple[float | None, float | None]:
    return mean_cost(group), group.scores.account.mean_errors_as_zero


def mean_cost(group: GroupFacts) -> float | None:
    """The mean cost of a trial; None if one is unknown."""
    spent = group.scores.efficiency.cost_usd
    return None if spent.total is None else spent.total / spent.n_known


def _gather_run(run: Run) -> RunFacts:
    return RunFacts(
        name=run.name,
        is_sealed=run.is_sealed,
        left_out=run.left_out,
        unreadable=tuple((each.place, each.message) for each in run.unreadable),
        notes=run.notes,
        basis=run.basis,
    )


def _gather_group(
    run: Run, group: Group, rows: Sequence[TrialRow], behaviour: Behaviour | None
) -> GroupFacts:
    tasks = group_by_task(rows)
    scores = score_tasks(tasks)
    spreads = {each.task: each for each in scores.spread.tasks}
    advisor = [each.advisor_calls for each in rows if each.advisor_calls is not None]
    return GroupFacts(
        run=run.name,
        label=group.label,
        agent=group.agent,
        model=group.model,
        configuration=group.configuration,
        conditions=_gather_conditions(rows),
        statuses=_count(each.status for each in rows),
        sources=_count(each.source or "proctor" for each in rows),
        scores=scores,
        errored=count_errored(counted_trials(rows)),
        exceptions=_list_by((each.exception, each.name) for each in rows if each.exception),
        tasks=tuple(
            TaskFacts(
                task=task,
                revisions=_kinds(_in_task(each, "revision") for each in found),
                images=_kinds(_in_task(each, "image") for each in found),
                rewards=tuple(each.reward for each in found),
                trials=tuple(each.name for each in found),
                mean=spreads[task].mean if task in spreads else None,
                variance=spreads[task].variance if task in spreads else None,
                is_flaky=task in spreads and spreads[task].is_flaky,
            )
            for task, found in tasks.items()
        ),
        behaviour=behaviour.together(rows) if behaviour is not None else None,
        advisor_calls=sum(advisor) if advisor else None,
        findings=_list_by((code, each.name) for each in rows for code in each.findings),
        reviews=_count(each.review or "none" for each in rows),
        is_on_front=False,
    )


def _in_task(row: TrialRow, name: str) -> str | None:
    return getattr(row.task_conditions, name, None)


def _gather_conditions(rows: Sequence[TrialRow]) -> Conditions:
    runs = [each.run_conditions for each in rows]
    times = sorted(each.timestamp for each in rows if each.timestamp)
    return Conditions(
        datasets=_kinds(each.dataset_id for each in rows),
        backends=_kinds(each.backend if each else None for each in runs),
        profiles=_kinds((each.profile or "none") if each else None for each in runs),
        limits=_kinds(
            (
                ", ".join(f"{name} {value}" for name, value in sorted(each.changed.items()))
                or "the default"
            )
            if each
            else None
            for each in runs
        ),
        revisions=_kinds(each.revision for each in rows),
        pinned_images=sum(
            each.task_conditions is not None and each.task_conditions.has_pinned_image
            for each in rows
        ),
        first=times[0] if times else None,
        last=times[-1] if times else None,
    )


def _list_by(pairs: Iterable[tuple[str, str]]) -> dict[str, tuple[str, ...]]:
    """Names of trials, by the first item of each pair."""
    found: dict[str, list[str]] = {}
    for key, name in pairs:
        found.setdefault(key, []).append(name)
    return {key: tuple(names) for key, names in sorted(found.items())}


def _kinds(values: Iterable[str | None]) -> tuple[str, ...]:
    return tuple(sorted({value if value is not None else _UNKNOWN for value in values}))


def _count(names: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(names).items()))


def _find_missing(groups: Sequence[GroupFacts]) -> Iterable[str]:
    """What could not be computed for each group, and why."""
    for group in groups:
        for sentence in (*_find_missing_scores(group.scores), *_find_missing_traces(group)):
            yield f"{group.label}: {sentence}"


def _find_missing_scores(scores: Scores) -> Iterable[str]:
    spent, account = scores.efficiency.cost_usd, scores.account
    if why := account.why_no_mean:
        yield f"the mean with missing = 0 and the pass rate, because {why}"
    if spent.n_unknown:
        of = count_of(spent.n_known + spent.n_unknown, "trial")
        yield f"cost per success, because the cost of {spent.n_unknown:,} of {of} is unknown"
    elif not scores.passed:
        yield "cost per success, because nothing passed"
    if scores.interval is None:
        yield (
            "the interval of the mean, because fewer than 2 tasks have a score, or all have the "
            "same mean"
        )
    if scores.spread.within is None:
        yield "variance between attempts, because no task has 2 scored attempts"


def _find_missing_traces(group: GroupFacts) -> Iterable[str]:
    if group.behaviour is None:
        yield "behaviour, because traces were not read"
    elif group.behaviour.with_trace < group.behaviour.trials:
        without = count_of(group.behaviour.trials - group.behaviour.with_trace, "trial")
        yield f"the behaviour of {without}, which have no usable trace"
