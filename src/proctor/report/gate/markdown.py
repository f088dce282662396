"""The result of a gate as Markdown, for the summary of a CI run.

Names are untrusted: everything that Markdown or HTML would interpret is escaped.
"""

import re
from collections.abc import Iterable, Iterator, Sequence

from proctor.report.gate.judging import (
    Judged,
    list_missing,
    render_cost,
    render_errors,
)
from proctor.report.gate.limits import Limits, Miss
from proctor.report.gate.numbers import GroupNumbers, is_error, render_reward, value_of
from proctor.report.statistics.intervals import Interval

_SPECIAL = re.compile(r"[*_\[\]~#$\\`|<>&@]|:(?=//)")
# The others are escaped as HTML: a backslash before them could be part of a table.
_TAKES_A_BACKSLASH = "*_[]~#$"
_MOST_LISTED = 50


def render_markdown(judged: Sequence[Judged], limits: Limits, miss: Miss | None) -> str:
    """The page."""
    verdict = f"missed: {miss} (exit code {miss.exit_code})" if miss else "met"
    lines = [f"## Gate {verdict}", ""]
    for each in judged:
        lines += _render_run(each, limits)
    return "\n".join(lines) + "\n"


def escape(text: str) -> str:
    """Text that Markdown shows as it is, on one line."""
    # Control characters would end a table row, or be interpreted by a terminal.
    plain = "".join(char if char.isprintable() else " " for char in text)
    return _SPECIAL.sub(_spelled, plain)


def _spelled(match: re.Match[str]) -> str:
    return f"\\{match[0]}" if match[0] in _TAKES_A_BACKSLASH else f"&#{ord(match[0])};"


def _render_run(judged: Judged, limits: Limits) -> Iterator[str]:
    measured = judged.measured
    yield f"### {escape(measured.name)} ({measured.kind})"
    yield ""
    if judged.checks:
        yield from _table(
            ("", "condition", "of", "found"),
            (
                (
                    "✓" if check.is_met else f"✗ {check.miss}",
                    escape(check.condition),
                    escape(check.group or "all"),
                    escape(check.found),
                )
                for check in judged.checks
            ),
        )
    yield from _table(
        ("group", "mean", "95 %", "pass rate", "95 %", "scored", "missing (counted as 0)"),
        (_row(group) for group in judged.groups),
    )
    yield f"Errors: {escape(render_errors(judged.errors))}  "
    yield f"Cost: {escape(render_cost(judged.cost))}  "
    if missing := list_missing(measured):
        yield f"Incomplete: {escape('; '.join(missing))}  "
    for note in measured.notes:
        yield f"Note: {escape(note)}  "
    yield ""
    yield from _render_failed(judged, limits)


def _row(group: GroupNumbers) -> tuple[str, ...]:
    return (
        escape(group.key),
        f"{group.mean:.4f}",
        _ends(group.mean_interval),
        f"{group.pass_rate:.4f} ({group.passed} of {group.run})",
        _ends(group.pass_interval),
        str(group.scored),
        str(group.zero_by_missing),
    )


def _ends(interval: Interval | None) -> str:
    return f"{interval.low:.4f} to {interval.high:.4f}" if interval else "-"


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
            rows.append((escape(trial.task), escape(trial.trial), reward, escape(why)))
    if not rows:
        return
    yield f"<details><summary>{len(rows)} not passed</summary>"
    yield ""
    yield from _table(("task", "trial", "reward", "why"), rows[:_MOST_LISTED])
    if len(rows) > _MOST_LISTED:
        yield f"… and {len(rows) - _MOST_LISTED} more"
        yield ""
    yield "</details>"
    yield ""


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(headings)} |"
    yield f"|{' --- |' * len(headings)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"
    yield ""
