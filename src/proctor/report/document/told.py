"""A report as a document: the top of it, what holds for all groups, and what it rests on."""

from collections import Counter
from collections.abc import Iterator

from proctor.report.document.facts import GroupFacts, ReportFacts, RunFacts, mean_cost
from proctor.report.document.sections import tell_group
from proctor.report.levels import tone_of_codes
from proctor.report.page.blocks import (
    Block,
    Cell,
    Column,
    Document,
    Dot,
    Facts,
    Heading,
    Intervals,
    Lines,
    Paragraph,
    Scatter,
    Spread,
    Table,
)
from proctor.report.page.scale import extent
from proctor.report.statistics.bootstrap import FEW_TASKS
from proctor.report.wording import render_cost, render_counts, render_passed, render_value
from proctor.sentence import count_of
from proctor.trial.finding import level_of, sort_codes


def tell_report(facts: ReportFacts) -> Document:
    """The whole document."""
    blocks: list[Block] = [*_tell_top(facts), *_tell_overview(facts)]
    if len(facts.groups) > 1:
        blocks += _tell_front(facts)
    for group in facts.groups:
        blocks += tell_group(group, is_only=len(facts.groups) == 1)
    blocks += _tell_integrity(facts)
    blocks += _tell_basis(facts)
    blocks += _tell_missing(facts)
    return Document(f"Report: {', '.join(run.name for run in facts.runs)}", tuple(blocks))


def _tell_top(facts: ReportFacts) -> Iterator[Block]:
    """What has to be known before any number."""
    for run in facts.runs:
        if run.left_out:
            told = render_counts(run.left_out)
            yield Paragraph(f"{run.name}: in no number: {told}.", "warn")
        for place, why in run.unreadable:
            yield Paragraph(f"{run.name}: {place} is in no number: {why}", "warn")
        for note in run.notes:
            yield Paragraph(note, "warn")
    partial = sum(group.statuses.get("diagnostic", 0) for group in facts.groups)
    if partial:
        yield Paragraph(
            f"Diagnostic: {count_of(partial, 'trial')} with partial records; good for looking, not "
            "for a leaderboard.",
            "warn",
        )
    found = [
        code for group in facts.groups for code, trials in group.findings.items() for _ in trials
    ]
    if found:
        levels = Counter(str(level_of(code)) for code in sort_codes(found))
        which = f"{count_of(len(found), 'integrity finding')} ({render_counts(levels)})"
        yield Paragraph(f"{which}; see Integrity and reviews below.", tone_of_codes(found))


def _tell_overview(facts: ReportFacts) -> Iterator[Block]:
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
    yield Table(columns, tuple(map(_tell_row, facts.groups)), "Scores by agent and model")
    rows = tuple(map(_spread, facts.groups))
    least, most = extent(v for row in rows for v in (row.value, row.low, row.high)) or (0.0, 1.0)
    yield Intervals(
        "Mean of the scored, with 95% interval", rows, least=min(least, 0.0), most=max(most, 1.0)
    )
    told = [group.scores for group in facts.groups]
    few = [
        s.tasks for s in told if s.tasks < FEW_TASKS and (s.interval or s.interval_errors_as_zero)
    ]
    if few:
        which = count_of(min(few), "task")
        yield Paragraph(f"Only {which}: intervals drawn from so few are too narrow.", "warn")
    yield Paragraph(
        "Intervals draw whole tasks (bootstrap); those of pass rates are Wilson's. A job's "
        "official numbers, bit for bit as harbor has them, are `proctor score`'s.",
        "soft",
    )


def _tell_row(group: GroupFacts) -> tuple[Cell, ...]:
    scores, account = group.scores, group.scores.account
    excluded, as_zero = account.mean_errors_excluded, account.mean_errors_as_zero
    return (
        Cell(group.label),
        Cell(f"{scores.tasks:,}"),
        Cell(f"{account.counted:,}"),
        Cell(f"{account.scored:,}"),
        Cell(render_value(excluded, scores.interval)),
        Cell(render_value(as_zero, scores.interval_errors_as_zero)),
        Cell(render_passed(scores)),
        Cell(render_cost(scores)),
    )


def _spread(group: GroupFacts) -> Spread:
    ends = group.scores.interval
    mean = group.scores.account.mean_errors_excluded
    return Spread(group.label, mean, ends.low if ends else None, ends.high if ends else None)


def _tell_front(facts: ReportFacts) -> Iterator[Block]:
    yield Heading("Cost against score")
    dots = [
        Dot(group.label, cost, score, is_best=group.is_on_front)
        for group in facts.groups
        if (cost := mean_cost(group)) is not None
        and (score := group.scores.account.mean_errors_as_zero) is not None
    ]
    best = [group.label for group in facts.groups if group.is_on_front]
    if dots:
        yield Paragraph(f"None is both cheaper and better than: {'; '.join(best)}.")
        yield Scatter(
            "Mean reward (not scored = 0) against mean cost a trial",
            "USD a trial",
            "mean reward",
            tuple(dots),
        )
    without = len(facts.groups) - len(dots)
    if without:
        which = count_of(without, "group")
        yield Paragraph(
            f"{which} not among them: what a trial costs, or scores, is not known, and not 0."
        )
    pairs = len(facts.groups) * (len(facts.groups) - 1) // 2
    yield Paragraph(
        f"{count_of(pairs, 'pair')} can be made of {len(facts.groups)} groups: at 95%, one in "
        "twenty differs by chance alone. `proctor compare` holds two against each other.",
        "soft",
    )


def _tell_integrity(facts: ReportFacts) -> Iterator[Block]:
    yield Heading("Integrity and reviews")
    rows = [
        (
            Cell(level_of(code), tone_of_codes([code])),
            Cell(code),
            Cell(trial, trials=(trial,)),
        )
        for group in facts.groups
        for code in sort_codes(group.findings)
        for trial in group.findings[code]
    ]
    if rows:
        columns = (Column("level"), Column("finding", is_dear=True), Column("trial"))
        yield Table(columns, tuple(rows), "Integrity findings")
    else:
        yield Paragraph("No integrity finding is on record.")
    reviews: dict[str, int] = {}
    for group in facts.groups:
        for verdict, count in group.reviews.items():
            reviews[verdict] = reviews.get(verdict, 0) + count
    none = reviews.pop("none", 0)
    told = f"{render_counts(reviews)}; " if reviews else ""
    yield Paragraph(f"Reviews: {told}{count_of(none, 'trial')} nobody reviewed.")


def _tell_basis(facts: ReportFacts) -> Iterator[Block]:
    yield Heading("What this rests on")
    for run in facts.runs:
        yield Facts(tuple(_tell_run(run)))
        if run.basis is not None:
            lines = run.basis.checkpoint.rstrip("\n").split("\n")
            yield Lines(tuple(lines), "Checkpoint")


def _tell_run(run: RunFacts) -> Iterator[tuple[str, str]]:
    yield "run", run.name
    if run.basis is None:
        yield "read from", "a job's directory: nothing protects it from being edited"
        return
    yield "read from", f"the ledger {run.basis.origin}"
    yield "position", f"{count_of(run.basis.size, 'entry', 'entries')} of the log"
    yield "root hash", run.basis.root
    yield "check it", f"proctor ledger verify; then proctor report {run.name}"


def _tell_missing(facts: ReportFacts) -> Iterator[Block]:
    yield Heading("What could not be worked out")
    if not facts.not_computed:
        yield Paragraph("Nothing is missing.")
    for sentence in facts.not_computed:
        yield Paragraph(sentence)
