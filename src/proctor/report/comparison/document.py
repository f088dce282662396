"""A comparison as a document."""

from collections.abc import Iterator, Sequence

from proctor.report.comparison.compared import Comparison, SideFacts, TaskPair
from proctor.report.comparison.likeness import name_some
from proctor.report.comparison.sides import OF_TRACES, Mean, Measure
from proctor.report.page.blocks import (
    Bars,
    Block,
    Cell,
    Column,
    Document,
    Facts,
    Heading,
    Intervals,
    Lines,
    Paragraph,
    Spread,
    Table,
    Tone,
)
from proctor.report.page.figures import (
    render_change,
    render_ends,
    render_estimate,
    render_number,
    render_of,
    render_p,
    render_signed,
)
from proctor.report.page.scale import extent
from proctor.report.statistics.bootstrap import FEW_TASKS
from proctor.report.statistics.paired import Paired
from proctor.report.symbols import LEGEND, render_marks, tone_of_codes
from proctor.report.wording import (
    render_counted,
    render_counts,
    render_days,
    render_passed,
    render_per_success,
    render_scored,
    render_verdict,
)
from proctor.sentence import count_of
from proctor.trial.finding import level_of, sort_codes

# Tasks drawn at either end, if there are more.
_MOST_BARS = 20
METHODS = {
    "mcnemar-exact": "exact McNemar test",
    "permutation-exact": "exact paired permutation test",
    "permutation-monte-carlo": "paired permutation test, random signs",
}


def render_comparison(compared: Comparison, commands: Sequence[str] = ()) -> Document:
    """Make the document; `commands` that show single tasks are listed."""
    blocks: list[Block] = [*_render_top(compared), *_render_verdict(compared)]
    for letter, side in (("A", compared.a), ("B", compared.b)):
        blocks += _render_warnings(letter, side)
    blocks += _render_result(compared)
    blocks += [Heading("The two sides"), _render_sides(compared), *_render_tasks(compared)]
    if commands:
        blocks += [Heading("See for yourself"), Lines(tuple(commands))]
    blocks += _render_measures(compared)
    if compared.notes:
        blocks.append(Heading("Notes"))
        blocks += [Paragraph(note) for note in compared.notes]
    return Document(f"A: {_name(compared.a)} against B: {_name(compared.b)}", tuple(blocks))


def _name(side: SideFacts) -> str:
    who = side.agent if side.model == "none" else f"{side.agent}, {side.model}"
    return f"{side.run} ({who})"


def _render_verdict(compared: Comparison) -> Iterator[Block]:
    """What was compared, the difference, and what it rests on."""
    paired = compared.paired_errors_as_zero or compared.paired
    how = " (missing rewards as 0)" if compared.paired_errors_as_zero else ""
    tone: Tone = "verdict" if paired.has_enough_tasks else "warn"
    yield Paragraph(render_verdict(paired, ("A", "B"), f"A - B{how}"), tone)
    sides = [
        f"{letter}: {count_of(side.scores.account.counted, 'trial')}, "
        f"{render_scored(side.scores.account)}, {render_days(side.first, side.last)}"
        for letter, side in (("A", compared.a), ("B", compared.b))
    ]
    yield Paragraph(f"Based on {'; '.join(sides)}.", "soft")


def _render_top(compared: Comparison) -> Iterator[Block]:
    """What makes the sides differ in more than their scores: before any number."""
    for each in compared.unlike:
        yield Paragraph(f"Different conditions, compared on request: {each}.", "warn")
    if compared.revised:
        which = count_of(len(compared.revised), "task")
        named = name_some(compared.revised)
        yield Paragraph(f"{which} of different revisions, compared on request: {named}.", "warn")
    left = {
        "only in A": compared.only_a,
        "only in B": compared.only_b,
        "of another revision": compared.left_out_revised,
    }
    for why, tasks in left.items():
        if tasks:
            which = count_of(len(tasks), "task")
            yield Paragraph(f"Left out, {why}: {which} ({name_some(tasks)}).", "warn")


def _render_warnings(letter: str, side: SideFacts) -> Iterator[Block]:
    partial = side.statuses.get("diagnostic", 0)
    if partial:
        counted = side.scores.account.counted
        yield Paragraph(
            f"Diagnostic: {partial} of the {count_of(counted, 'trial')} of {letter} have partial "
            "records; not eligible for a leaderboard.",
            "warn",
        )
    if side.findings:
        text = ", ".join(
            f"{code} in {count_of(side.findings[code], 'trial')} ({level_of(code)})"
            for code in sort_codes(side.findings)
        )
        tone = tone_of_codes(side.findings)
        yield Paragraph(f"Integrity findings in {letter}: {text}.", tone)


def _render_sides(compared: Comparison) -> Block:
    a, b = (dict(_render_side(side)) for side in (compared.a, compared.b))
    rows = [(Cell(label), Cell(a.get(label, "-")), Cell(b.get(label, "-"))) for label in {**a, **b}]
    columns = (Column("", is_dear=True), Column("A"), Column("B"))
    return Table(columns, tuple(rows), "The two sides")


def _render_side(side: SideFacts) -> Iterator[tuple[str, str]]:
    scores, account = side.scores, side.scores.account
    yield "run", side.run
    yield "agent", side.agent
    yield "model", side.model
    yield "configuration", side.configuration
    yield "records", render_counts(side.statuses)
    yield "from", render_counts(side.sources)
    if side.left_out:
        yield "not counted", render_counts(side.left_out)
    yield "tasks", f"{scores.tasks:,}"
    yield "trials", render_counted(account)
    if account.reasons:
        yield "why missing", render_counts(account.reasons)
    yield "mean of scored", render_estimate(account.mean_errors_excluded, scores.interval)
    yield (
        "mean, missing = 0",
        render_estimate(account.mean_errors_as_zero, scores.interval_errors_as_zero),
    )
    yield "passed (1 or more)", render_passed(scores)
    for at, estimate in enumerate(scores.pass_at):
        if estimate.k > 1:
            yield f"pass@{estimate.k}", render_estimate(estimate.value, estimate.interval)
            every = scores.pass_all[at]
            yield f"pass^{every.k}", render_estimate(every.value, every.interval)
    yield "cost per success", render_per_success(scores)


def _render_result(compared: Comparison) -> Iterator[Block]:
    paired = compared.paired
    yield Heading("Result")
    rows = [*_render_paired(paired, "")]
    if compared.paired_errors_as_zero is not None:
        rows += _render_paired(compared.paired_errors_as_zero, ", missing = 0")
    yield Facts(tuple(rows))
    if paired.interval is not None and paired.n_tasks < FEW_TASKS:
        few = count_of(paired.n_tasks, "task")
        yield Paragraph(f"Only {few}: intervals from so few tasks are too narrow.", "warn")
    for letter, only in (("A", paired.only_a), ("B", paired.only_b)):
        if only:
            which = count_of(len(only), "task")
            yield Paragraph(f"{which} scored in {letter} only, not compared: {name_some(only)}.")
    if paired.difference is not None:
        yield _plot_scores(compared)


def _render_paired(paired: Paired, how: str) -> Iterator[tuple[str, str]]:
    if paired.difference is None:
        yield f"A - B{how}", "unknown: no task has a score on both sides"
        return
    ends = f"95% interval {render_ends(paired.interval)}" if paired.interval else "no interval"
    over = f"over {count_of(paired.n_tasks, 'task')}"
    yield f"A - B{how}", f"{render_signed(paired.difference)}, {ends}, {over}"
    method = METHODS.get(paired.method or "", paired.method)
    yield f"p-value{how}", f"{render_p(paired.p_value)} ({method})"
    yield (
        f"tasks{how}",
        f"A better at {paired.wins:,}, alike at {paired.ties:,}, B better at {paired.losses:,}",
    )


def _plot_scores(compared: Comparison) -> Block:
    rows = []
    for letter, side in (("A", compared.a), ("B", compared.b)):
        ends = side.scores.interval
        rows.append(
            Spread(
                f"mean of {letter}",
                side.scores.account.mean_errors_excluded,
                ends.low if ends else None,
                ends.high if ends else None,
            )
        )
    ends, found = compared.paired.interval, compared.paired.difference
    # No colour for an interval around 0 or from few tasks: the difference may be due to chance.
    is_sure = ends is not None and not ends.low <= 0 <= ends.high
    is_sure = is_sure and compared.paired.has_enough_tasks
    tone = _tone(found) if is_sure else ""
    rows.append(
        Spread("A - B", found, ends.low if ends else None, ends.high if ends else None, tone)
    )
    around = extent(value for row in rows for value in (row.value, row.low, row.high))
    least, most = around or (0.0, 1.0)
    return Intervals(
        "Means and their difference, with 95% intervals",
        tuple(rows),
        mark=0.0,
        least=min(least, 0.0),
        most=max(most, 1.0),
    )


def _tone(difference: float | None) -> Tone:
    return "" if not difference else "good" if difference > 0 else "bad"


def _render_tasks(compared: Comparison) -> Iterator[Block]:
    yield Heading("Task by task")
    columns = (
        Column("task"),
        Column("A"),
        Column("mean A", is_number=True),
        Column("B"),
        Column("mean B", is_number=True),
        Column("A - B", is_number=True),
        Column("trial of A", is_extra=True),
        Column("trial of B", is_extra=True),
    )
    rows = tuple(map(_render_task, compared.tasks))
    yield Table(columns, rows, "Tasks by difference, A's best first")
    yield Paragraph(f"Attempts: {LEGEND}.", "soft")
    differing = [(each.task, each.difference) for each in compared.tasks if each.difference]
    if len(differing) > 2 * _MOST_BARS:
        ends = (*differing[:_MOST_BARS], *differing[-_MOST_BARS:])
        yield Bars(f"A - B by task: the {_MOST_BARS} at either end of the table", ends)
    elif len(differing) > 1:
        yield Bars("A - B by task, where they differ", tuple(differing))


def _render_task(text: TaskPair) -> tuple[Cell, ...]:
    trial_a, trial_b = text.trial_a, text.trial_b
    return (
        Cell(text.task),
        Cell(render_marks(text.rewards_a)),
        Cell(_score(text.mean_a)),
        Cell(render_marks(text.rewards_b)),
        Cell(_score(text.mean_b)),
        Cell(_signed(text.difference), _tone(text.difference), (trial_a, trial_b)),
        Cell(trial_a.partition("/")[2], trials=(trial_a,)),
        Cell(trial_b.partition("/")[2], trials=(trial_b,)),
    )


def _score(mean: float | None) -> str:
    return "-" if mean is None else render_number(mean)


def _signed(difference: float | None) -> str:
    return "-" if difference is None else render_signed(difference)


def _render_measures(compared: Comparison) -> Iterator[Block]:
    yield Heading("Behaviour")
    columns = (
        Column("mean per trial", is_dear=True),
        Column("A", is_number=True),
        Column("B", is_number=True),
        Column("A - B", is_number=True),
        Column("95% interval"),
        Column("known of A", is_number=True, is_extra=True),
        Column("known of B", is_number=True, is_extra=True),
    )
    known = [each for each in compared.measures if each.a.n or each.b.n]
    if known:
        rows = tuple(map(_render_measure, known))
        yield Table(columns, rows, "Behaviour, time, tokens and cost")
    if not compared.with_traces:
        yield Paragraph("Traces were not read: turns and tools are not compared.", "soft")
    if unknown := [each.name for each in compared.measures if not (each.a.n or each.b.n)]:
        yield Paragraph(_render_unknown(unknown, with_traces=compared.with_traces), "soft")
    short = [each for each in known if not _is_full(each)]
    if short:
        text = "; ".join(_render_coverage(short))
        yield Paragraph(f"Known for some trials only (unknown is not 0): {text}.")
    yield Paragraph(
        f"{count_of(len(known), 'measure')}, each with a 95% interval: about one in "
        "twenty misses by chance alone.",
        "soft",
    )


def _render_unknown(names: Sequence[str], *, with_traces: bool) -> str:
    """One sentence about measures that no trial of either side has."""
    said = f"Unknown on both sides, and not listed: {', '.join(names)}."
    if not with_traces or not set(names) & OF_TRACES:
        return said
    return (
        f"{said} Behaviour needs a trace with steps: run the agent with a model through the "
        "gateway (-m MODEL), or let it write a trace to $PROCTOR_TRAJECTORY."
    )


def _render_coverage(short: Sequence[Measure]) -> Iterator[str]:
    """The numbers of trials for which measures are known, grouped."""
    names: dict[tuple[str, str], list[str]] = {}
    for each in short:
        names.setdefault((_coverage(each.a), _coverage(each.b)), []).append(each.name)
    for (a, b), named in names.items():
        yield f"{', '.join(named)}: {a} trials of A, {b} of B"


def _is_full(measure: Measure) -> bool:
    return measure.a.n == measure.a.of and measure.b.n == measure.b.of


def _coverage(mean: Mean) -> str:
    return f"{mean.n:,}/{mean.of:,}"


def _render_measure(measure: Measure) -> tuple[Cell, ...]:
    unit, ends = measure.unit, measure.interval
    within = f"{render_change(ends.low, unit)} to {render_change(ends.high, unit)}" if ends else "-"
    return (
        Cell(measure.name),
        Cell(render_of(measure.a.mean, unit)),
        Cell(render_of(measure.b.mean, unit)),
        Cell(render_change(measure.difference, unit)),
        Cell(within),
        Cell(_coverage(measure.a)),
        Cell(_coverage(measure.b)),
    )
