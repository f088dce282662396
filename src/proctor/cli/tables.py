"""Prints tables without importing rich, which is slow, and scores with their denominators.

On a terminal, the widest columns are cut or wrapped until a row fits; cut texts end in `…`. Without
a terminal, nothing is cut or wrapped.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from proctor.cli.output import terminal_width
from proctor.cli.stdout import send
from proctor.harbor.render import render_json
from proctor.harbor.stats import Denominators, Group
from proctor.report.page.columns import draw_table
from proctor.sentence import render_errored, render_figure


def print_rows(
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    right: Sequence[str] = (),
    dear: Sequence[str] = (),
    fold: Sequence[str] = (),
) -> None:
    """Print rows; `right` columns are numbers, `dear` ones are cut last, `fold` ones wrapped."""
    send("\n".join(draw_rows(headings, rows, right=right, dear=dear, fold=fold)))


def draw_rows(
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    right: Sequence[str] = (),
    dear: Sequence[str] = (),
    fold: Sequence[str] = (),
) -> list[str]:
    """The rows as lines, headings first."""
    return draw_table(
        headings,
        rows,
        right=[heading in right for heading in headings],
        # What is not wrapped is cut last if anything is wrapped.
        dear=[heading in dear or bool(fold and heading not in fold) for heading in headings],
        fold=[heading in fold for heading in headings],
        room=terminal_width(),
    )


# Scores


_SHOWN = {"zero_by_missing": "missing (counted as 0)"}


def render_group(
    key: str, counts: Mapping[str, int], values: Iterable[tuple[str, str]]
) -> Iterator[str]:
    """Render a group: its counts, and a line for each value."""
    yield f"{key}: {', '.join(_render_count(what, n) for what, n in counts.items())}"
    rows = list(values) or [("no metric", "-")]
    width = max(len(label) for label, _ in rows)
    for label, value in rows:
        yield f"  {label:<{width}}  {value}"


def render_passes(group: Group, estimates: Mapping[int, float]) -> Iterator[tuple[str, str]]:
    """Render pass@k of a group, or why it has none although its tasks were attempted twice."""
    for k, estimate in estimates.items():
        yield f"pass@{k}", render_metric(estimate)
    fewest = min(Counter(group.tasks).values(), default=0)
    if not estimates and fewest > 1:
        yield "pass@k", "none: pass@k requires one reward of 0 or 1 from each trial"


def _render_count(what: str, number: int) -> str:
    if what == "errored":
        return render_errored(number)
    return f"{number} {_SHOWN.get(what, what)}"


def render_parts(parts: Denominators) -> Iterator[str]:
    """Render the denominators as sums."""
    yield (
        f"trials: {parts.planned} planned = {parts.run} run + {parts.broken} cannot be read "
        f"+ {parts.not_run} not run"
    )
    yield (
        f"        {parts.run} run = {parts.scored} scored + {parts.zero_by_missing} missing "
        f"(counted as 0); {render_errored(parts.errored)}"
    )


def render_metric(value: object) -> str:
    """A metric for people; what is not a number is shown as it is."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return render_figure(value)
    return render_json(value)


def count_group(group: Group) -> dict[str, int]:
    """The denominators of a group."""
    run, scored = len(group.column), group.n_rewarded
    return {
        "run": run,
        "scored": scored,
        "errored": group.n_errored,
        "zero_by_missing": run - scored,
    }
