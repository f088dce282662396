"""Recompute metrics, pass@k and counters of one or more jobs from the evidence.

What the files do not contain is copied from the published result, with a note: n_retries,
n_cancelled_trials, the running trials of an unfinished job, and metrics whose script was not run.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from enum import StrEnum
from importlib import import_module

import msgspec

from proctor.audit.mixing import check_mixable
from proctor.digest import sha256_file
from proctor.errors import JobError, MetricError
from proctor.harbor.declared import (
    SCRIPT,
    DeclaredMetric,
    declared_metrics,
    infer_metrics,
    remote_datasets,
)
from proctor.harbor.job import Job, OrderBasis, PublishedResult
from proctor.harbor.render import render_json
from proctor.harbor.stats import (
    Denominators,
    Group,
    JobStats,
    MetricEntry,
    TrialTable,
    assemble_final,
    assemble_live,
    dataset_of_key,
)
from proctor.harbor.trial import Basis
from proctor.record.outcome import Summary, summarize_result
from proctor.reward.metric import METRICS, compute_metric
from proctor.reward.profile import Profile
from proctor.reward.score import Unscored
from proctor.sentence import count_of


class Origin(StrEnum):
    """Where a metric's value comes from."""

    COMPUTED = "computed"
    CARRIED = "carried over"
    """Published by the job, and not recomputed."""
    FAILED = "failed"
    """The metric is undefined for these rewards; harbor's job would have crashed."""


class ScoredMetric(msgspec.Struct, frozen=True):
    """One metric of a group."""

    declared: DeclaredMetric
    origin: Origin
    entry: MetricEntry | None
    """The value in harbor's format; None if there is none."""
    detail: str = ""
    """Why it was not computed."""


class Scoring(msgspec.Struct, frozen=True):
    """The scores of one or more jobs."""

    jobs: Sequence[Job]
    profile: Profile
    table: TrialTable
    stats: JobStats
    """In harbor's format."""
    metrics: dict[str, list[ScoredMetric]]
    """By evals key."""
    denominators: Denominators
    live: bool
    """Whether the numbers are those of an unfinished job: no pass@k."""
    notes: list[str]
    """What was copied, inferred or left out, as sentences."""

    @property
    def summary(self) -> Summary:
        """The result line for these numbers."""
        return summarize_metrics(
            [entry for group in self.stats.evals.values() for entry in group.metrics],
            planned=self.denominators.planned,
            completed=self.stats.n_completed_trials,
            errored=self.stats.n_errored_trials,
        )

    @property
    def unscored(self) -> bool:
        """Whether a planned trial has no reward."""
        parts = self.denominators
        return parts.scored < parts.planned


def summarize_metrics(
    entries: Sequence[MetricEntry], *, planned: int, completed: int, errored: int
) -> Summary:
    """The result line for these metrics, rendered as harbor does and parsed again."""
    stats = {
        "n_completed_trials": completed,
        "n_errored_trials": errored,
        "evals": {"all": {"metrics": entries}},
    }
    return summarize_result(render_json({"n_total_trials": planned, "stats": stats}).encode())


def score_jobs(
    jobs: Sequence[Job],
    profile: Profile,
    *,
    allow_mixed: bool = False,
    run_scripts: bool = False,
    add_up: bool = True,
) -> Scoring:
    """Score jobs together, in the given order. Without `add_up`, extra trials are allowed."""
    check_mixable(jobs, allow_mixed=allow_mixed)
    table = TrialTable(found.trial for job in jobs for found in job.trials)
    live = len(jobs) == 1 and not jobs[0].finished and jobs[0].published is not None
    stats = assemble_live(table, {}) if live else assemble_final(table, {})
    metrics = {
        key: list(_score_metrics(jobs, group, live=live, run_scripts=run_scripts))
        for key, group in table.groups.items()
    }
    for key, scored in metrics.items():
        stats.evals[key].metrics = [metric.entry for metric in scored if metric.entry is not None]
    _carry_over(stats, jobs, live=live)
    _order_groups(stats, jobs)
    denominators = _count(jobs, table, add_up=add_up)
    notes = list(_notes(jobs, metrics, live=live))
    return Scoring(jobs, profile, table, stats, metrics, denominators, live, notes)


def _score_metrics(
    jobs: Sequence[Job], group: Group, *, live: bool, run_scripts: bool
) -> Iterator[ScoredMetric]:
    dataset = group.dataset if live else dataset_of_key(group.key)
    for index, declared in enumerate(_declared_for(jobs, group, dataset)):
        if declared.name not in METRICS:
            yield _score_script(jobs, group, declared, index, run_scripts=run_scripts)
            continue
        try:
            entry = compute_metric(declared.name, group.column)
            yield ScoredMetric(declared, Origin.COMPUTED, entry)
        except (ArithmeticError, ValueError) as error:
            yield ScoredMetric(declared, Origin.FAILED, None, str(error))


def _declared_for(jobs: Sequence[Job], group: Group, dataset: str) -> list[DeclaredMetric]:
    """The metrics of a group, from the first job that determines them."""
    for job in jobs:
        declared = declared_metrics(job.config, [group.dataset]).get(dataset)
        if declared is not None and job.config is not None:
            return declared
    for job in jobs:
        unsettled = job.config is None or dataset in remote_datasets(job.config)
        if unsettled and job.published is not None and group.key in job.published.evals:
            return infer_metrics(job.published.metrics(group.key), group.column)
    if all(job.config is None for job in jobs):
        return infer_metrics([], group.column)
    return []


def _score_script(
    jobs: Sequence[Job], group: Group, declared: DeclaredMetric, index: int, *, run_scripts: bool
) -> ScoredMetric:
    script = declared.script
    if declared.name == SCRIPT and script is not None and run_scripts:
        try:
            # Code that runs untrusted programs is loaded only on request.
            runner = import_module("proctor.reward.script")
            computed: MetricEntry = runner.run_metric_script(script, group.column.rewards)
            return ScoredMetric(declared, Origin.COMPUTED, computed)
        except MetricError as error:
            return ScoredMetric(declared, Origin.FAILED, None, str(error))
    published = jobs[0].published
    entries = published.metrics(group.key) if published is not None and len(jobs) == 1 else []
    entry = entries[index] if index < len(entries) else None
    return ScoredMetric(declared, Origin.CARRIED, entry, _describe_script(declared))


def _describe_script(declared: DeclaredMetric) -> str:
    script = declared.script
    if declared.name != SCRIPT:
        return "not one of harbor's metrics"
    if script is None:
        return "a script whose file is not part of the job"
    if not script.is_file():
        return f"script {script}, which does not exist here"
    return f"script {script} (sha256 {sha256_file(script)}); pass --run-metric-scripts to run it"


def _carry_over(stats: JobStats, jobs: Sequence[Job], *, live: bool) -> None:
    published = [job.published for job in jobs if job.published is not None]
    stats.count_progress(
        sum(job.n_planned for job in jobs),
        running=published[0].count("n_running_trials") if live else 0,
        cancelled=_total(published, "n_cancelled_trials") if published else None,
        retries=_total(published, "n_retries"),
    )


def _order_groups(stats: JobStats, jobs: Sequence[Job]) -> None:
    """Order the groups of a resumed job as published: no other file records it."""
    published = jobs[0].published
    if len(jobs) > 1 or published is None or jobs[0].ordered.basis is not OrderBasis.PUBLISHED:
        return
    if published.evals.keys() == stats.evals.keys():
        stats.evals = {key: stats.evals[key] for key in published.evals}


def _total(published: Sequence[PublishedResult], name: str) -> int:
    return sum(result.count(name) for result in published)


def _count(jobs: Sequence[Job], table: TrialTable, *, add_up: bool) -> Denominators:
    planned = sum(job.n_planned for job in jobs)
    broken = sum(len(job.broken) for job in jobs)
    found = Denominators.of(table, planned=planned, broken=broken)
    if found.not_run < 0 and add_up:
        raise JobError(
            f"{', '.join(job.directory for job in jobs)}: {planned} trials were planned but "
            f"{table.n_trials + broken} exist; `proctor audit` lists the extra ones"
        )
    return found


def _notes(
    jobs: Sequence[Job], metrics: dict[str, list[ScoredMetric]], *, live: bool
) -> Iterator[str]:
    for job in jobs:
        yield from _notes_of_job(job)
    if live:
        yield "unfinished job: the numbers are those harbor keeps while a job runs, without pass@k"
    for key, scored in metrics.items():
        for metric in scored:
            yield from _notes_of_metric(key, metric)


def _notes_of_job(job: Job) -> Iterator[str]:
    yield from (problem.message for problem in [*job.problems, *job.broken])
    if job.published is None:
        yield f"{job.directory}: no readable result.json; planned is taken to be {job.n_planned}"
    else:
        yield f"{job.name}: n_retries and n_cancelled_trials cannot be recomputed: as published"
    for found in job.trials:
        if isinstance(found.evidence, Unscored) and found.basis is not Basis.TRIAL_RESULT:
            yield found.evidence.reason
    if strategies := Counter(found.strategy for found in job.trials if found.strategy):
        counts = ", ".join(f"{name} {n}" for name, n in strategies.items())
        yield f"{job.name}: how steps make a trial's rewards is inferred from its claim: {counts}"
    yield f"{job.name}: trials are added up in the order of {job.ordered.basis}"
    if job.unfinished and not job.finished:
        n = count_of(len(job.unfinished), "trial directory", "trial directories")
        yield f"{job.name}: {n} without a result.json"
    if job.set_aside:
        trials = count_of(len(job.set_aside), "trial")
        yield f"{job.name}: {trials} of earlier plans: kept, not counted"
    if job.refused:
        yield f"{job.name}: {count_of(len(job.refused), 'task')} refused, not counted"


def _notes_of_metric(key: str, metric: ScoredMetric) -> Iterator[str]:
    name = metric.declared.name
    if metric.declared.inferred:
        yield f"{key}: metric {name} is inferred from what was published; no declaration is here"
    if metric.origin is Origin.CARRIED:
        value = (
            "the published value is carried over" if metric.entry is not None else "it has no value"
        )
        yield f"{key}: metric {name} is not recomputed, {value}: {metric.detail}"
    if metric.origin is Origin.FAILED:
        yield f"{key}: metric {name} has no value: {metric.detail}"
