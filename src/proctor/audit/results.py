"""Compare trial results with the job result: do the published numbers follow from the trials?"""

import math
import os
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from proctor.audit.findings import Finding, Kind
from proctor.audit.scoring import Origin, ScoredMetric, Scoring, score_jobs
from proctor.harbor.job import Job, PublishedResult, parse_stats
from proctor.harbor.render import render_json
from proctor.harbor.stats import stats_document
from proctor.harbor.trial import FoundTrial
from proctor.reward.metric import DEFAULT_METRIC
from proctor.sentence import count_of

# Could another order of the trials explain a published number?
#
# No file records the order in which harbor added up the trials, and if a job was resumed or
# retried, or a task has several attempts, it cannot be determined. Sums of floats may then differ
# in their last bits, while sums of zeros and ones never do. So the numbers are recomputed in other
# orders: a value within their range is accepted with a note, any other was edited.


_SHUFFLES = 40
# How far a value may be outside of the orders that were tried, in multiples of their range.
_ROOM = 4.0


class Orders:
    """The numbers of a job with its trials added up in other orders."""

    def __init__(self, scoring: Scoring) -> None:
        self.scoring = scoring
        self._others: list[Scoring] | None = None

    @property
    def open(self) -> bool:
        """Whether harbor may have used another order."""
        (job,) = self.scoring.jobs
        retried = job.published is not None and job.published.count("n_retries") > 0
        return self.scoring.live or retried or not job.ordered.certain

    def others(self) -> list[Scoring]:
        """The job scored in other orders; deterministic."""
        if self._others is None:
            (job,) = self.scoring.jobs
            profile = self.scoring.profile
            self._others = [score_jobs([other], profile, add_up=False) for other in _reorder(job)]
        return self._others


def _reorder(job: Job) -> Iterator[Job]:
    trials = list(job.trials)
    yield _ordered(job, trials[::-1])
    shuffle = random.Random(len(trials)).shuffle  # noqa: S311 - a seed, so that audits repeat
    for _ in range(_SHUFFLES):
        shuffle(trials)
        yield _ordered(job, list(trials))


def _ordered(job: Job, trials: list[FoundTrial]) -> Job:
    return replace(job, ordered=replace(job.ordered, trials=trials))


def lies_among(found: object, others: Sequence[object]) -> bool:
    """Whether a value is one of the others, or about as close to them as they are to each other."""
    if not others:
        return False
    if render_json(found) in {render_json(other) for other in others}:
        return True
    if isinstance(found, dict):
        alike = [item for item in others if isinstance(item, dict) and item.keys() == found.keys()]
        return len(alike) == len(others) and all(
            lies_among(value, [item[key] for item in alike]) for key, value in found.items()
        )
    values = [value for value in others if isinstance(value, float)]
    if not isinstance(found, float) or len(values) < len(others):
        return False
    low, high = min(values), max(values)
    room = _ROOM * (high - low)
    return 0 < room < math.inf and low - room <= found <= high + room


_PLAIN_COUNTERS = (
    "n_completed_trials",
    "n_errored_trials",
    "n_running_trials",
    "n_pending_trials",
)
_USAGE = ("n_input_tokens", "n_cache_tokens", "n_output_tokens", "cost_usd")

# The number of trials that harbor runs at once by default.
_AT_ONCE = 4

type Values = Mapping[str, object]


def audit_result(scoring: Scoring) -> Iterator[Finding]:
    """Compare one job's result.json with the scores of its trials."""
    (job,) = scoring.jobs
    yield from _audit_parts(job)
    published = job.published
    if published is None:
        return
    path = f"{job.directory}/result.json"
    findings = list(_compare_stats(path, published, scoring))
    if findings and _lags(job, published):
        counted = _score_counted(scoring, published)
        remaining = list(_compare_stats(path, published, counted))
        if not any(finding.kind.is_difference for finding in remaining):
            n, there = counted.denominators.run, len(job.trials)
            message = f"counts {n} of {there} trials: the last may have ended as it was stopped"
            yield Finding(Kind.LAGGING_RESULT, path, message, str(n), str(there))
            yield from (finding for finding in remaining if finding.kind.is_unshown)
            return
    yield from findings


def _audit_parts(job: Job) -> Iterator[Finding]:
    for problem in job.problems:
        kind = Kind.LINKED_FILE if problem.is_linked else Kind.TORN_FILE
        yield Finding(kind, problem.path, problem.message)
    torn = {problem.path for problem in job.problems}
    path = f"{job.directory}/result.json"
    if job.published is None and path not in torn:
        message = "no result.json: nothing is published that could follow from the trials"
        yield Finding(Kind.MISSING_RESULT, path, message)
    for name, part in (("lock.json", job.lock), ("config.json", job.config)):
        path = f"{job.directory}/{name}"
        if part is None and path not in torn:
            yield Finding(Kind.NO_PLAN, path, f"no {name}: what was planned cannot be checked")


def _lags(job: Job, published: PublishedResult) -> bool:
    """Whether a stopped job's result lacks only trials that ended just before it was stopped.

    There can be as many as ran at once, and only among the last to end.
    """
    at_once = (job.lock.n_concurrent_trials if job.lock else None) or _AT_ONCE
    uncounted = len(job.trials) - published.count("n_completed_trials")
    if published.finished or not 0 < uncounted <= at_once:
        return False
    names = published.names()
    return names <= {found.trial.name for found in job.trials} and all(
        found.trial.name in names or not _is_listed(found) for found in job.trials[: -2 * at_once]
    )


def _is_listed(found: FoundTrial) -> bool:
    """Whether the result names a trial that it counts: because of its rewards or exception."""
    trial = found.trial
    return trial.exception is not None or bool(trial.verdict and trial.verdict.rewards)


def _score_counted(scoring: Scoring, published: PublishedResult) -> Scoring:
    """Score only the trials that the result counts: those it names, then those that ended first."""
    (job,) = scoring.jobs
    names, n = published.names(), published.count("n_completed_trials")
    places = sorted(range(len(job.trials)), key=lambda at: job.trials[at].trial.name not in names)
    trials = [job.trials[at] for at in sorted(places[:n])]
    counted = replace(job, ordered=replace(job.ordered, trials=trials))
    return score_jobs([counted], scoring.profile, add_up=False)


def _compare_stats(path: str, published: PublishedResult, scoring: Scoring) -> Iterator[Finding]:
    orders = Orders(scoring)
    # Both sides go through the same text, so that 1 and 1.0, nan and null differ as in files.
    recomputed = parse_stats(render_json(stats_document(scoring.stats)).encode(), path)
    for name in _PLAIN_COUNTERS:
        yield from _compare(Kind.EDITED_COUNTER, path, name, published.stats, recomputed)
    for name in _USAGE:
        if scoring.live and _nearly(published.stats.get(name), recomputed[name]):
            continue
        for finding in _compare(Kind.EDITED_USAGE, path, name, published.stats, recomputed):
            others = [getattr(other.stats, name) for other in _others(orders)]
            yield _excused(finding, published.stats.get(name), others)
    evals = recomputed["evals"]
    assert isinstance(evals, dict)  # noqa: S101 - our own rendering
    stated = published.evals
    if scoring.live:
        stated = {key: entry for key, entry in stated.items() if key in evals or not _bare(entry)}
    yield from _compare_groups(path, stated, evals)
    for key in evals:
        if key in stated:
            yield from _compare_group(path, key, stated[key], evals[key], orders)


def _nearly(found: object, expected: object) -> bool:
    """Whether usage is equal except for rounding by additions and subtractions."""
    left, right = found or 0, expected or 0
    if not (isinstance(left, int | float) and isinstance(right, int | float)):
        return False
    return math.isclose(left, right, rel_tol=1e-9, abs_tol=1e-12)


def _bare(entry: Values) -> bool:
    """Whether a group is empty: harbor removes a retried trial, but keeps its group."""
    names = (_unordered(entry.get(name), bare=True) for name in ("reward_stats", "exception_stats"))
    counts = (entry.get(name) for name in ("n_trials", "n_errors", "metrics", "pass_at_k"))
    return not any(names) and not any(counts)


def _compare_groups(path: str, published: Values, recomputed: Values) -> Iterator[Finding]:
    for key in sorted(published.keys() - recomputed.keys()):
        message = f"group {key} is published, and no trial belongs to it"
        yield Finding(Kind.EDITED_GROUP, path, message, key, "no such group")
    for key in sorted(recomputed.keys() - published.keys()):
        message = f"trials belong to group {key}, and it is not published"
        yield Finding(Kind.EDITED_GROUP, path, message, "no such group", key)


def _compare_group(
    path: str, key: str, published: Values, recomputed: Values, orders: Orders
) -> Iterator[Finding]:
    scoring = orders.scoring
    where = f"evals.{key}"
    for name in ("n_trials", "n_errors"):
        yield from _compare(Kind.EDITED_COUNTER, path, name, published, recomputed, where)
    yield from _compare_metrics(path, key, published, orders)
    for finding in _compare(Kind.EDITED_PASS_AT_K, path, "pass_at_k", published, recomputed, where):
        estimates = [other.stats.evals[key].pass_at_k for other in _others(orders)]
        others = [{str(k): value for k, value in found.items()} for found in estimates]
        yield _excused(finding, published.get("pass_at_k"), others)
    kinds = {
        "reward_stats": Kind.EDITED_REWARD_STATS,
        "exception_stats": Kind.EDITED_EXCEPTION_STATS,
    }
    for name, kind in kinds.items():
        stated, evidence = published.get(name), recomputed.get(name)
        if _unordered(stated, bare=scoring.live) != _unordered(evidence, bare=scoring.live):
            yield from _compare(kind, path, name, published, recomputed, where)


def _compare_metrics(path: str, key: str, published: Values, orders: Orders) -> Iterator[Finding]:
    scoring = orders.scoring
    entries = published.get("metrics")
    stated = entries if isinstance(entries, list) else []
    scored = scoring.metrics[key]
    where = f"evals.{key}.metrics"
    if scoring.live and not stated and scored:
        # harbor computes the metrics of a resumed job when the next trial ends.
        message = f"{where} is empty, as after a resume; the trials give {len(scored)} metrics"
        yield Finding(Kind.NO_METRICS_YET, path, message)
    elif len(stated) != len(scored):
        message = f"{where} has {len(stated)} entries; the job declares {len(scored)} metrics"
        yield Finding(Kind.EDITED_METRIC, path, message, str(len(stated)), str(len(scored)))
    for index, (entry, metric) in enumerate(zip(stated, scored, strict=False)):
        at = f"{where}[{index}]"
        for finding in _compare_metric(path, at, entry, metric):
            others = [other.metrics[key][index].entry for other in _others(orders)]
            yield _excused(finding, entry, others)


def _compare_metric(
    path: str, where: str, entry: object, metric: ScoredMetric
) -> Iterator[Finding]:
    name = metric.declared.name
    if metric.declared.inferred:
        yield _inferred(path, where, name)
    if metric.origin is Origin.CARRIED:
        message = f"{where}: metric {name} is not recomputed. {metric.detail}".strip()
        yield Finding(Kind.NOT_RECOMPUTED, path, message)
    elif metric.origin is Origin.FAILED:
        message = f"{where}: the rewards give no {name}: {metric.detail}"
        yield Finding(Kind.EDITED_METRIC, path, message, render_json(entry), "no value")
    else:
        yield from _compare_values(Kind.EDITED_METRIC, path, where, entry, metric.entry)


def _inferred(path: str, where: str, name: str) -> Finding:
    """A finding for an undeclared metric: its publisher could have chosen the most flattering one.

    The mean is harbor's default, so it is only a note.
    """
    if name == DEFAULT_METRIC:
        message = f"{where}: no file declares the metric; the published value was taken for a mean"
        return Finding(Kind.INFERRED_METRIC, path, message)
    message = f"{where}: no file declares the metric; the published value suggests {name}"
    return Finding(Kind.NOT_RECOMPUTED, path, message)


def _others(orders: Orders) -> list[Scoring]:
    return orders.others() if orders.open else []


def _excused(finding: Finding, found: object, others: Sequence[object]) -> Finding:
    """Turn a difference into a note if another order of the trials could explain it."""
    if not finding.kind.is_difference or not lies_among(found, others):
        return finding
    message = f"{finding.message}: the order of trials decides the last bits, and is not known"
    return replace(finding, kind=Kind.ORDER_DEPENDENT, message=message)


def _compare(
    kind: Kind, path: str, name: str, published: Values, recomputed: Values, where: str = "stats"
) -> Iterator[Finding]:
    return _compare_values(kind, path, f"{where}.{name}", published.get(name), recomputed.get(name))


def _compare_values(
    kind: Kind, path: str, where: str, found: object, expected: object
) -> Iterator[Finding]:
    stated, evidence = render_json(found), render_json(expected)
    if stated != evidence:
        yield Finding(kind, path, _describe_parts(where, found, expected), stated, evidence)


# Names of trials that a message lists.
_MOST_NAMES = 3


def _describe_parts(where: str, found: object, expected: object) -> str:
    """Describe the first part of a value that differs, and count the others."""
    first, *others = _differing(where, found, expected) or [_describe_value(where, found, expected)]
    return f"{first} (and {count_of(len(others), 'other part')})" if others else first


def _differing(where: str, found: object, expected: object) -> list[str]:
    """A sentence for each part that differs, keys in the order of the published value."""
    if _ABSENT not in (found, expected) and render_json(found) == render_json(expected):
        return []
    if isinstance(found, dict) and isinstance(expected, dict):
        keys = dict.fromkeys((*found, *expected))
        return [
            sentence
            for key in keys
            for sentence in _differing(
                _below(where, key), found.get(key, _ABSENT), expected.get(key, _ABSENT)
            )
        ]
    if isinstance(found, list) and isinstance(expected, list):
        return _differing_names(where, found, expected)
    return [_describe_value(where, found, expected)]


class _Absent:
    """A key that one of two values lacks."""


_ABSENT = _Absent()


def _differing_names(where: str, found: Sequence[object], expected: Sequence[object]) -> list[str]:
    stated, evidence = Counter(map(str, found)), Counter(map(str, expected))
    sentences = []
    if extra := list((stated - evidence).elements()):
        sentences.append(f"{where} has {_join(extra)}; the trials do not give it")
    if lacking := list((evidence - stated).elements()):
        sentences.append(f"{where} lacks {_join(lacking)}; the trials give it")
    return sentences


def _join(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return f"{_shortened(', '.join(names[:_MOST_NAMES]))}{more}"


def _describe_value(where: str, found: object, expected: object) -> str:
    stated = "is missing" if found is _ABSENT else f"is {_shortened(render_json(found))}"
    evidence = "none" if expected is _ABSENT else _shortened(render_json(expected))
    return f"{where} {stated}; the trials give {evidence}"


def _below(where: str, key: str) -> str:
    return f"{where}.{key}" if key.isidentifier() else f"{where}[{render_json(key)}]"


def _unordered(value: object, *, bare: bool) -> object:
    """Names as multisets: their order is checked separately. With `bare`, drop empty ones."""
    if isinstance(value, dict):
        items = {key: _unordered(item, bare=bare) for key, item in value.items()}
        return {key: item for key, item in items.items() if item or not bare}
    if isinstance(value, list):
        return Counter(map(str, value))
    return value


# Longest text of a value in a finding.
_LONGEST = 120


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def audit_presence(job: Job) -> Iterator[Finding]:
    """Find trials that exist but are not counted, or are counted but do not exist."""
    if not job.trials:
        message = "no trial has a result: there is nothing that a number could follow from"
        yield Finding(Kind.NO_TRIALS, job.directory, message)
    published = job.published
    if published is None:
        return
    path = f"{job.directory}/result.json"
    there = {found.trial.name: found for found in job.trials}
    broken = {os.path.basename(problem.path) for problem in job.broken}
    for name in sorted(published.names() - there.keys() - broken):
        message = f"{name} is counted, and has no directory with a result"
        yield Finding(Kind.TRIAL_WITHOUT_DIRECTORY, path, message, name, "a trial directory")
    if not published.finished:
        return
    for name in sorted(there.keys() - published.names()):
        found = there[name]
        if _is_listed(found):
            message = f"{name} ended, and the job result does not count it"
            yield Finding(Kind.DIRECTORY_WITHOUT_TRIAL, found.directory, message)
    completed, planned = published.count("n_completed_trials"), published.document.n_total_trials
    if completed < planned:
        message = f"the job finished with {completed} of {planned} planned trials"
        yield Finding(Kind.MISSING_TRIALS, path, message, str(completed), str(planned))
