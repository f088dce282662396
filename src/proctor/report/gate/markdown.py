"""The result of a gate as Markdown, for the summary of a CI run.

Names are untrusted: everything that Markdown or HTML would interpret is escaped.
"""

from collections.abc import Iterator, Sequence

from proctor.report.gate.judging import (
    Judged,
    list_missing,
    render_errors,
    render_spent,
)
from proctor.report.gate.limits import Limits, Miss
from proctor.report.gate.numbers import GroupNumbers, is_error, render_reward, value_of
from proctor.report.page.figures import render_ends, render_percent_ends
from proctor.report.page.markdown import escape, render_table
from proctor.sentence import render_figure, render_percent

_MOST_LISTED = 50


def render_markdown(judged: Sequence[Judged], limits: Limits, miss: Miss | None) -> str:
    """The page."""
    verdict = f"missed: {miss} (exit code {miss.exit_code})" if miss else "met"
    lines = [f"## Gate {verdict}", ""]
    for each in judged:
        lines += _render_run(each, limits)
    return "\n".join(lines) + "\n"


def _render_run(judged: Judged, limits: Limits) -> Iterator[str]:
    measured = judged.measured
    yield f"### {escape(measured.name)} ({measured.kind})"
    yield ""
    if judged.checks:
        yield from render_table(
            ("", "condition", "of", "found"),
            (
                (
                    "✓" if check.is_met else f"✗ {check.miss}",
                    check.condition,
                    check.group or "all",
                    check.found,
                )
                for check in judged.checks
            ),
        )
        yield ""
    yield from render_table(
        ("group", "mean", "95 %", "pass rate", "95 %", "scored", "missing (counted as 0)"),
        (_row(group) for group in judged.groups),
    )
    yield ""
    yield f"Errors: {escape(render_errors(judged.errors))}  "
    yield f"Cost: {escape(render_spent(judged.cost))}  "
    if missing := list_missing(measured):
        yield f"Incomplete: {escape('; '.join(missing))}  "
    for note in measured.notes:
        yield f"Note: {escape(note)}  "
    yield ""
    yield from _render_failed(judged, limits)


def _row(group: GroupNumbers) -> tuple[str, ...]:
    return (
        group.key,
        render_figure(group.mean),
        render_ends(group.mean_interval) or "-",
        f"{render_percent(group.pass_rate)} ({group.passed} of {group.run})",
        render_percent_ends(group.pass_interval) or "-",
        str(group.scored),
        str(group.zero_by_missing),
    )


def _render_failed(judged: Judged, limits: Limits) -> Iterator[str]:
    """The trials that did not pass, collapsed; only as many as fit on a page."""
    keys = {group.key: group.reward_key for group in judged.groups}
    rows = []
    for trial in judged.measured.trials:
        value = value_of(trial, keys[trial.group])
        failed = is_error(trial, limits)
        if failed or value is None or not value >= limits.pass_mark:
            why = trial.exception or trial.reason or "" if failed else "below the pass mark"
            reward = "-" if value is None else render_reward(value)
            rows.append((trial.task, trial.row.trial_id, reward, why))
    if not rows:
        return
    yield f"<details><summary>{len(rows)} not passed</summary>"
    yield ""
    yield from render_table(("task", "trial", "reward", "why"), rows[:_MOST_LISTED])
    yield ""
    if len(rows) > _MOST_LISTED:
        yield f"… and {len(rows) - _MOST_LISTED} more"
        yield ""
    yield "</details>"
    yield ""
