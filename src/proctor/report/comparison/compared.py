"""Compares two sides: the values behind every page, table and JSON document."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from proctor.ledger.row import TrialRow
from proctor.report.behaviour import Behaviour
from proctor.report.comparison.likeness import (
    Difference,
    check_likeness,
    choose_tasks,
    compare_conditions,
)
from proctor.report.comparison.sides import Measure, Side, measure_sides
from proctor.report.scores import Scores, all_rewards, score_tasks, scored_rewards
from proctor.report.statistics.intervals import CONFIDENCE
from proctor.report.statistics.paired import Paired, PairedTask, compare_paired
from proctor.reward.number import exact_sum


class SideFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One side, with its numbers over the compared tasks."""

    run: str
    """The experiment or the job."""
    agent: str
    model: str
    configuration: str
    """Digest of the agent's settings."""
    statuses: dict[str, int]
    """Compared trials, by record status."""
    sources: dict[str, int]
    """Compared trials, by source."""
    left_out: dict[str, int]
    """Trials of the run that do not count, by status."""
    findings: dict[str, int]
    """Integrity findings by code, in trials."""
    scores: Scores
    first: str | None = None
    """When the first of its trials ran, in UTC."""
    last: str | None = None


class TaskPair(msgspec.Struct, frozen=True, kw_only=True):
    """One task on both sides."""

    task: str
    rewards_a: tuple[float | None, ...]
    """Of every attempt, in order; null: not scored."""
    rewards_b: tuple[float | None, ...]
    mean_a: float | None
    """Over scored attempts; null: there are none."""
    mean_b: float | None
    difference: float | None
    """A minus B; null if a side has no score."""
    trial_a: str
    """EXPERIMENT/TRIAL that illustrates the difference best."""
    trial_b: str


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """A compared with B."""

    a: SideFacts
    b: SideFacts
    confidence: float
    unlike: tuple[Difference, ...]
    """Conditions that differ, and were allowed to."""
    revised: tuple[str, ...]
    """Tasks of different revisions that are compared anyway."""
    only_a: tuple[str, ...]
    """Tasks left out: not in B."""
    only_b: tuple[str, ...]
    left_out_revised: tuple[str, ...]
    """Tasks left out: of another revision in B."""
    paired: Paired
    """Over scored trials; tasks without a score on a side are left out."""
    paired_errors_as_zero: Paired | None
    """With missing rewards as 0, harbor's rule; null if none is missing, or one has no number."""
    tasks: tuple[TaskPair, ...]
    """By difference, A's best first; those without one last."""
    measures: tuple[Measure, ...]
    with_traces: bool
    """Whether traces were read."""
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Terms:
    """What a comparison allows."""

    common: bool = False
    """Leave out tasks that are not on both sides in the same revision."""
    allow_unlike: bool = False
    """Compare although conditions differ."""


def choose_sides(a: Side, b: Side, terms: Terms) -> tuple[Side, Side]:
    """The sides with the tasks that are compared."""
    likeness = compare_conditions(a, b)
    check_likeness(likeness, common=terms.common, allow_unlike=terms.allow_unlike)
    tasks = choose_tasks(likeness, common=terms.common)
    return a.narrowed(tasks), b.narrowed(tasks)


def compare_sides(a: Side, b: Side, terms: Terms, behaviour: Behaviour | None) -> Comparison:
    """Compare two sides."""
    likeness = compare_conditions(a, b)
    ours, theirs = choose_sides(a, b, terms)
    paired = compare_paired(scored_rewards(ours.tasks), scored_rewards(theirs.tasks))
    facts = _tell_side(ours), _tell_side(theirs)
    accounts = [side.scores.account for side in facts]
    is_missing = any(each.zero_by_missing for each in accounts)
    has_means = all(each.why_no_mean is None for each in accounts)
    return Comparison(
        a=facts[0],
        b=facts[1],
        confidence=CONFIDENCE,
        unlike=likeness.differences,
        revised=() if terms.common else likeness.revised,
        only_a=likeness.only_a,
        only_b=likeness.only_b,
        left_out_revised=likeness.revised if terms.common else (),
        paired=paired,
        paired_errors_as_zero=(
            compare_paired(all_rewards(ours.tasks), all_rewards(theirs.tasks))
            if is_missing and has_means
            else None
        ),
        tasks=tuple(_tell_tasks(ours, theirs, paired)),
        measures=measure_sides(ours, theirs, behaviour),
        with_traces=behaviour is not None,
        notes=tuple(dict.fromkeys((*a.run.notes, *b.run.notes, *likeness.notes))),
    )


def _tell_side(side: Side) -> SideFacts:
    rows = side.trials
    left_out = dict(side.run.left_out)
    times = [each.timestamp for each in rows if each.timestamp]
    if side.run.unreadable:
        left_out["unreadable"] = len(side.run.unreadable)
    return SideFacts(
        run=side.run.name,
        agent=side.group.agent,
        model=side.group.model,
        configuration=side.group.configuration,
        statuses=dict(sorted(Counter(each.status for each in rows).items())),
        sources=dict(sorted(Counter(each.source or "proctor" for each in rows).items())),
        left_out=left_out,
        findings=dict(sorted(Counter(c for each in rows for c in each.findings).items())),
        scores=score_tasks(side.tasks),
        first=min(times, default=None),
        last=max(times, default=None),
    )


def _tell_tasks(a: Side, b: Side, paired: Paired) -> list[TaskPair]:
    known = {each.task: each for each in paired.tasks}
    pairs = [
        _tell_task(task, a.tasks[task], b.tasks[task], known.get(task))
        for task in a.tasks
        if task in b.tasks
    ]
    return sorted(
        pairs,
        key=lambda each: (
            each.difference is None,
            # Differences that are equal except for rounding are sorted by name.
            -round(each.difference or 0.0, 9),
            each.task,
        ),
    )


def _tell_task(
    task: str, a: Sequence[TrialRow], b: Sequence[TrialRow], paired: PairedTask | None
) -> TaskPair:
    difference = paired.difference if paired else None
    return TaskPair(
        task=task,
        rewards_a=tuple(each.reward for each in a),
        rewards_b=tuple(each.reward for each in b),
        mean_a=_mean(a),
        mean_b=_mean(b),
        difference=difference,
        trial_a=_choose_example(a, wants_best=difference is None or difference >= 0).name,
        trial_b=_choose_example(b, wants_best=difference is not None and difference < 0).name,
    )


def _mean(rows: Sequence[TrialRow]) -> float | None:
    rewards = [each.reward for each in rows if each.reward is not None]
    return exact_sum(rewards) / len(rewards) if rewards else None


def _choose_example(rows: Sequence[TrialRow], *, wants_best: bool) -> TrialRow:
    """The attempt that shows a difference: the best of the better side, the worst of the other."""

    def rank(attempt: TrialRow) -> float:
        reward = float("-inf") if attempt.reward is None else attempt.reward
        return -reward if wants_best else reward

    return min(rows, key=rank)
