"""A report as a document: warnings, scores, a section for each group, and its basis."""

from collections import Counter
from collections.abc import Iterator

from proctor.record.reasons import NO_NUMBER
from proctor.report.document.facts import (
    Conditions,
    GroupFacts,
    ReportFacts,
    RunFacts,
    TaskFacts,
    mean_cost,
)
from proctor.report.page.blocks import (
    Block,
    Cell,
    Column,
    Document,
    Dot,
    Facts,
    Heading,
    Histogram,
    Intervals,
    Lines,
    Paragraph,
    Scatter,
    Spread,
    Table,
)
from proctor.report.page.figures import (
    UNKNOWN,
    render_ends,
    render_estimate,
    render_number,
    render_of,
)
from proctor.report.page.scale import extent
from proctor.report.scores import Scores
from proctor.report.statistics.bootstrap import FEW_TASKS
from proctor.report.statistics.efficiency import Spent
from proctor.report.statistics.paired import compare_paired
from proctor.report.symbols import LEGEND, render_marks, tone_of_codes
from proctor.report.wording import (
    render_counted,
    render_counts,
    render_days,
    render_passed,
    render_per_success,
    render_verdict,
)
from proctor.sentence import count_of, render_percent
from proctor.traces.trial_summary import ExperimentSummary
from proctor.trial.finding import is_common, level_of, render_common, sort_codes

# Sections about one agent and model


# Values from which on a histogram shows more than a list.
_ENOUGH = 5
_UNITS = {"cost_usd": "USD", "tokens_in": "tokens", "tokens_out": "tokens"}

# Trials named for each exception.
_EXAMPLES = 3


def render_group(group: GroupFacts, *, is_only: bool) -> Iterator[Block]:
    """The section about one group."""
    yield Heading("What was run" if is_only else group.label)
    yield Facts(tuple(_render_setting(group)))
    yield from _render_passes(group.scores)
    yield from _render_tasks(group)
    yield from _render_errors(group)
    yield Heading("Cost", 3)
    yield Facts(tuple(_render_cost(group)))
    yield from _render_behaviour(group.behaviour)


def _render_setting(group: GroupFacts) -> Iterator[tuple[str, str]]:
    conditions, account = group.conditions, group.scores.account
    yield "run", group.run
    yield "agent", f"{group.agent}, version {' and '.join(conditions.revisions)}"
    yield "model", group.model
    yield "configuration", group.configuration
    yield from _render_conditions(conditions, account.counted)
    yield "records", render_counts(group.statuses)
    yield "from", render_counts(group.sources)
    reasons = f" ({render_counts(account.reasons)})" if account.reasons else ""
    yield (
        "trials",
        f"{render_counted(account)}{reasons}",
    )


def _render_conditions(conditions: Conditions, trials: int) -> Iterator[tuple[str, str]]:
    listed = {
        "dataset": conditions.datasets,
        "backend": conditions.backends,
        "scoring profile": conditions.profiles,
        "limits": conditions.limits,
    }
    for label, values in listed.items():
        mixed = "mixed: " if len(values) > 1 else ""
        yield label, mixed + "; ".join(values)
    yield "images", f"{conditions.pinned_images:,} of {count_of(trials, 'trial')} pinned by digest"
    if conditions.first is not None:
        yield "when", f"{conditions.first} to {conditions.last}"


def _render_passes(scores: Scores) -> Iterator[Block]:
    if not scores.pass_at:
        return
    rows = []
    for one, every in zip(scores.pass_at, scores.pass_all, strict=True):
        rows.append(
            (
                Cell(f"{one.k}"),
                Cell(render_number(one.value)),
                Cell(render_ends(one.interval) or "-"),
                Cell(render_number(every.value)),
                Cell(render_ends(every.interval) or "-"),
                Cell(f"{one.n_tasks:,}"),
                Cell(f"{len(one.too_few):,}"),
            )
        )
    columns = (
        Column("k", is_number=True),
        Column("pass@k", is_number=True),
        Column("95% interval"),
        Column("pass^k", is_number=True),
        Column("95% interval"),
        Column("tasks", is_number=True),
        Column("too few attempts", is_number=True),
    )
    yield Heading("pass@k and pass^k", 3)
    yield Table(columns, tuple(rows), "pass@k and pass^k")
    yield Paragraph(
        "pass@k: at least one of k attempts passes; pass^k: all k do. Unscored trials have not "
        "passed.",
        "soft",
    )


def _render_tasks(group: GroupFacts) -> Iterator[Block]:
    yield Heading("Task by task", 3)
    columns = (
        Column("task"),
        Column("attempts", is_dear=True),
        Column("mean", is_number=True),
        Column("variance", is_number=True),
        Column(""),
        Column("revision", is_extra=True),
        Column("image", is_extra=True),
    )
    yield Table(columns, tuple(map(_render_task, group.tasks)), "Tasks")
    yield Paragraph(f"Attempts: {LEGEND}.", "soft")
    spread = group.scores.spread
    flaky = [task.task for task in spread.flaky]
    if flaky:
        yield Paragraph(f"Flaky (scores differ between attempts): {', '.join(flaky)}.")
    if spread.within is not None:
        between = "unknown" if spread.between is None else render_number(spread.between)
        yield Paragraph(
            f"Variance within tasks {render_number(spread.within)}, between tasks {between}."
        )
    means = tuple(task.mean for task in group.tasks if task.mean is not None)
    if len(means) >= _ENOUGH:
        yield Histogram("Tasks by mean reward", "mean reward", means)


def _render_task(task: TaskFacts) -> tuple[Cell, ...]:
    return (
        Cell(task.task),
        Cell(render_marks(task.rewards)),
        Cell("-" if task.mean is None else render_number(task.mean)),
        Cell("-" if task.variance is None else render_number(task.variance)),
        Cell("flaky", "warn") if task.is_flaky else Cell(""),
        Cell(" and ".join(each[:12] for each in task.revisions)),
        Cell(" and ".join(task.images)),
    )


def _render_errors(group: GroupFacts) -> Iterator[Block]:
    reasons, behaviour = group.scores.account.reasons, group.behaviour
    causes = behaviour.causes if behaviour is not None else {}
    if not reasons and not causes and not group.errored:
        return
    yield Heading("What went wrong", 3)
    rows = [("not scored, by reason", render_counts(reasons))]
    counted = count_of(group.scores.account.counted, "trial")
    rows.append(("errored, scored or not", f"{group.errored:,} of {counted}"))
    for exception, trials in group.exceptions.items():
        more = ", …" if len(trials) > _EXAMPLES else ""
        rows.append((exception, f"{len(trials):,}: {', '.join(trials[:_EXAMPLES])}{more}"))
    if behaviour is not None:
        rows.append(("not passed, by cause", render_counts(causes)))
        if behaviour.limits:
            rows.append(("ended by a limit", render_counts(behaviour.limits)))
    yield Facts(tuple(rows))


def _render_cost(group: GroupFacts) -> Iterator[tuple[str, str]]:
    found = group.scores.efficiency
    parts = {"cost": (found.cost_usd, "USD"), "tokens": (found.tokens, "tokens")}
    for label, (spent, unit) in {**parts, "time": (found.seconds, "seconds")}.items():
        yield label, _spent(spent, unit)
        if spent.per_success is not None:
            yield f"{label} per success", render_of(spent.per_success, unit)
    if group.advisor_calls:
        yield "advisor", count_of(group.advisor_calls, "call")


def _spent(spent: Spent, unit: str) -> str:
    of = spent.n_known + spent.n_unknown
    if not spent.n_known:
        return f"{UNKNOWN} for all {count_of(of, 'trial')}"
    known = render_of(spent.known, unit)
    if spent.n_unknown:
        return f"{known} for the {spent.n_known:,} of {count_of(of, 'trial')} with known values"
    return f"{known} for {count_of(of, 'trial')}"


def _render_behaviour(summary: ExperimentSummary | None) -> Iterator[Block]:
    if summary is None or not summary.with_trace:
        return
    yield Heading("Behaviour", 3)
    rows = []
    if summary.behaviour is not None and summary.behaviour.turns:
        shares = [f"{label} {render_percent(s)}" for label, s in summary.behaviour.shares.items()]
        of = count_of(summary.behaviour.turns, "turn")
        rows.append(("turns by purpose", f"{', '.join(shares)} of {of}"))
    rate = UNKNOWN if summary.error_rate is None else render_percent(summary.error_rate)
    rows.append(
        (
            "tool errors",
            f"{summary.tool_errors:,} in {count_of(summary.tool_results, 'result')} ({rate})",
        )
    )
    if summary.first_errors:
        first = summary.first_errors[0]
        rows.append(
            (
                "most common first error",
                f"{first.tool}: {first.text} ({count_of(first.trials, 'trial')})",
            )
        )
    yield Facts(tuple(rows))
    columns = (
        Column("per trial", is_dear=True),
        Column("mean", is_number=True),
        Column("median", is_number=True),
        Column("known for", is_number=True),
    )
    table = [
        (
            Cell(name.replace("_", " ")),
            Cell(render_of(average.mean, _unit(name))),
            Cell(render_of(average.median, _unit(name))),
            Cell(f"{average.n:,}/{summary.trials:,}"),
        )
        for name, average in summary.averages.items()
    ]
    yield Table(columns, tuple(table), "Behaviour, time, tokens and cost of a trial")


def _unit(name: str) -> str:
    return "seconds" if "seconds" in name else _UNITS.get(name, "count")


def render_report(facts: ReportFacts) -> Document:
    """Make the whole document."""
    blocks: list[Block] = [*_render_verdict(facts), *_render_top(facts), *_render_overview(facts)]
    if len(facts.groups) > 1:
        blocks += _render_front(facts)
    for group in facts.groups:
        blocks += render_group(group, is_only=len(facts.groups) == 1)
    blocks += _render_integrity(facts)
    blocks += _render_basis(facts)
    blocks += _render_missing(facts)
    return Document(f"Report: {', '.join(run.name for run in facts.runs)}", tuple(blocks))


# Groups that the first sentences name; the table of scores has all of them.
_MOST_NAMED = 6


def _render_verdict(facts: ReportFacts) -> Iterator[Block]:
    """What scored how much, the difference of two, and what it rests on."""
    by_score = sorted(
        facts.groups, key=lambda each: -(each.scores.account.mean_errors_as_zero or 0.0)
    )
    said = [
        f"{group.label} scores {render_estimate(mean, group.scores.interval_errors_as_zero)}"
        for group in by_score[:_MOST_NAMED]
        if (mean := group.scores.account.mean_errors_as_zero) is not None
    ]
    if said:
        more = f"; {len(by_score) - _MOST_NAMED:,} more" if len(by_score) > _MOST_NAMED else ""
        yield Paragraph(f"{'; '.join(said)}{more}.", "verdict")
    if len(facts.groups) == 2:
        yield Paragraph(_compare_groups(*by_score))
    counted = sum(group.scores.account.counted for group in facts.groups)
    scored = f"{sum(group.scores.account.scored for group in facts.groups):,} scored"
    if no_number := sum(group.scores.account.no_number for group in facts.groups):
        scored += f" ({no_number:,} {NO_NUMBER})"
    tasks = max((group.scores.tasks for group in facts.groups), default=0)
    times = [time for group in facts.groups for time in _times_of(group)]
    yield Paragraph(
        f"Based on {count_of(counted, 'trial')} at {count_of(tasks, 'task')}, {scored}, "
        f"{render_days(min(times, default=None), max(times, default=None))}. Scores are mean "
        "rewards with 95% intervals; a missing reward counts as 0.",
        "soft",
    )


def _times_of(group: GroupFacts) -> list[str]:
    return [time for time in (group.conditions.first, group.conditions.last) if time]


def _compare_groups(a: GroupFacts, b: GroupFacts) -> str:
    """The difference of two groups, if they ran the same tasks under the same conditions."""
    if _setting_of(a) != _setting_of(b):
        return "Their conditions or tasks differ, so they are not compared here."
    accounts = (a.scores.account, b.scores.account)
    if any(each.why_no_mean is not None for each in accounts):
        return "One of them has no mean, so they are not compared here."
    sides = [
        {each.task: [r or 0.0 for r in each.rewards] for each in group.tasks} for group in (a, b)
    ]
    return render_verdict(compare_paired(*sides), (a.label, b.label), "their difference")


def _setting_of(group: GroupFacts) -> object:
    found = group.conditions
    tasks = {each.task: (each.revisions, each.images) for each in group.tasks}
    return (found.datasets, found.backends, found.profiles, found.limits, tasks)


def _render_top(facts: ReportFacts) -> Iterator[Block]:
    """Warnings that come before any number."""
    for run in facts.runs:
        if run.left_out:
            yield Paragraph(f"{run.name}: not counted: {render_counts(run.left_out)}.", "warn")
        for place, why in run.unreadable:
            yield Paragraph(f"{run.name}: {place} is not counted: {why}", "warn")
        for note in run.notes:
            yield Paragraph(note, "warn")
    partial = sum(group.statuses.get("diagnostic", 0) for group in facts.groups)
    if partial:
        yield Paragraph(
            f"Diagnostic: {count_of(partial, 'trial')} with partial records; not eligible "
            "for a leaderboard.",
            "warn",
        )
    common = _find_common(facts)
    found = [
        code
        for group in facts.groups
        for code, trials in group.findings.items()
        for _ in trials
        if code not in common
    ]
    yield from (Paragraph(sentence, "soft") for sentence in common.values())
    if found:
        levels = Counter(str(level_of(code)) for code in sort_codes(found))
        which = f"{count_of(len(found), 'integrity finding')} ({render_counts(levels)})"
        yield Paragraph(f"{which}; see Integrity and reviews below.", tone_of_codes(found))


def _find_common(facts: ReportFacts) -> dict[str, str]:
    """Findings that most trials have, each with its sentence."""
    total = sum(sum(group.statuses.values()) for group in facts.groups)
    counts = Counter(
        code for group in facts.groups for code, trials in group.findings.items() for _ in trials
    )
    return {
        code: render_common(code, n, total)
        for code, n in counts.items()
        if is_common(code, n, total)
    }


def _render_overview(facts: ReportFacts) -> Iterator[Block]:
    yield Heading("Scores")
    columns = (
        Column("agent, model"),
        Column("tasks", is_number=True),
        Column("trials", is_number=True),
        Column("scored", is_number=True),
        Column("mean of scored", is_dear=True),
        Column("mean, missing = 0", is_dear=True),
        Column("passed", is_dear=True, is_extra=True),
        Column("cost per success", is_extra=True),
    )
    yield Table(columns, tuple(map(_render_row, facts.groups)), "Scores by agent and model")
    rows = tuple(map(_spread, facts.groups))
    least, most = extent(v for row in rows for v in (row.value, row.low, row.high)) or (0.0, 1.0)
    yield Intervals(
        "Mean of the scored, with 95% interval", rows, least=min(least, 0.0), most=max(most, 1.0)
    )
    scores = [group.scores for group in facts.groups]
    few = [
        s.tasks for s in scores if s.tasks < FEW_TASKS and (s.interval or s.interval_errors_as_zero)
    ]
    if few:
        which = count_of(min(few), "task")
        yield Paragraph(f"Only {which}: intervals from so few tasks are too narrow.", "warn")
    yield Paragraph(
        "Intervals resample whole tasks (bootstrap); those of pass rates are Wilson's. A job's "
        "official scores, bit for bit as harbor computes them, are in `proctor score --json`.",
        "soft",
    )


def _render_row(group: GroupFacts) -> tuple[Cell, ...]:
    scores, account = group.scores, group.scores.account
    excluded, as_zero = account.mean_errors_excluded, account.mean_errors_as_zero
    return (
        Cell(group.label),
        Cell(f"{scores.tasks:,}"),
        Cell(f"{account.counted:,}"),
        Cell(f"{account.scored:,}"),
        Cell(render_estimate(excluded, scores.interval)),
        Cell(render_estimate(as_zero, scores.interval_errors_as_zero)),
        Cell(render_passed(scores)),
        Cell(render_per_success(scores)),
    )


def _spread(group: GroupFacts) -> Spread:
    ends = group.scores.interval
    mean = group.scores.account.mean_errors_excluded
    return Spread(group.label, mean, ends.low if ends else None, ends.high if ends else None)


def _render_front(facts: ReportFacts) -> Iterator[Block]:
    yield Heading("Cost and score")
    dots = [
        Dot(group.label, cost, score, is_best=group.is_on_front)
        for group in facts.groups
        if (cost := mean_cost(group)) is not None
        and (score := group.scores.account.mean_errors_as_zero) is not None
    ]
    best = [group.label for group in facts.groups if group.is_on_front]
    if dots:
        yield Paragraph(f"No group is both cheaper and better than: {'; '.join(best)}.")
        yield Scatter(
            "Mean reward (not scored = 0) against mean cost per trial",
            "USD per trial",
            "mean reward",
            tuple(dots),
        )
    without = len(facts.groups) - len(dots)
    if without:
        which = count_of(without, "group")
        yield Paragraph(f"{which} omitted: their cost or score is unknown.")
    yield Paragraph("Compare two of them with `proctor compare`.", "soft")


def _render_integrity(facts: ReportFacts) -> Iterator[Block]:
    yield Heading("Integrity and reviews")
    found: dict[str, list[str]] = {}
    for group in facts.groups:
        for code, trials in group.findings.items():
            found.setdefault(code, []).extend(trials)
    if found:
        columns = (
            Column("level"),
            Column("finding", is_dear=True),
            Column("trials", is_number=True),
            Column("for example"),
        )
        rows = [
            (
                Cell(level_of(code), tone_of_codes([code])),
                Cell(code),
                Cell(f"{len(found[code]):,}"),
                Cell(found[code][0], trials=(found[code][0],)),
            )
            for code in sort_codes(found)
        ]
        yield Table(columns, tuple(rows), "Integrity findings")
        common = _find_common(facts)
        apart = [code for code in sort_codes(found) if code not in common]
        listed = [f"{code}: {trial}" for code in apart for trial in found[code]]
        if len(listed) > len(apart):
            yield Lines(tuple(listed), "All trials with findings")
    else:
        yield Paragraph("No integrity findings.")
    reviews: dict[str, int] = {}
    for group in facts.groups:
        for verdict, count in group.reviews.items():
            reviews[verdict] = reviews.get(verdict, 0) + count
    none = reviews.pop("none", 0)
    text = f"{render_counts(reviews)}; " if reviews else ""
    yield Paragraph(f"Reviews: {text}{count_of(none, 'trial')} not reviewed.")


def _render_basis(facts: ReportFacts) -> Iterator[Block]:
    yield Heading("Basis")
    for run in facts.runs:
        yield Facts(tuple(_render_run(run)))
        if run.basis is not None:
            lines = run.basis.checkpoint.rstrip("\n").split("\n")
            yield Lines(tuple(lines), "Checkpoint")


def _render_run(run: RunFacts) -> Iterator[tuple[str, str]]:
    yield "run", run.name
    if run.basis is None:
        yield "read from", "a job directory, which is not protected against changes"
        return
    yield "read from", f"the ledger {run.basis.origin}"
    yield "position", f"{count_of(run.basis.size, 'entry', 'entries')} of the log"
    yield "root hash", run.basis.root
    yield "check it", f"proctor ledger verify; then proctor report {run.name}"


def _render_missing(facts: ReportFacts) -> Iterator[Block]:
    yield Heading("Not computed")
    if not facts.not_computed:
        yield Paragraph("Everything was computed.")
    for sentence in facts.not_computed:
        yield Paragraph(sentence)
