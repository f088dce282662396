"""What `gate` says: lines for people, and one document for programs."""

import msgspec

from proctor.cli.output import print_line
from proctor.report.gate.judging import (
    Judged,
    find_missing,
    render_cost,
    render_errors,
)
from proctor.report.gate.limits import Check, Miss
from proctor.report.gate.numbers import GroupNumbers
from proctor.report.statistics.intervals import Interval


def print_judged(judged: list[Judged], miss: Miss | None) -> None:
    """Every run with its numbers and conditions, then the verdict."""
    for each in judged:
        _print_run(each)
        print_line()
    print_line(f"gate: {render_verdict(miss)}")


def render_verdict(miss: Miss | None) -> str:
    """Whether the gate is met, and the name of the exit code where it is not."""
    return f"MISSED: {miss} (exit code {miss.exit_code})" if miss else "met (exit code 0)"


def _print_run(judged: Judged) -> None:
    measured = judged.measured
    print_line(f"{measured.name} ({measured.kind})")
    for group in judged.groups:
        for line in _lines_of(group):
            print_line(f"  {line}")
    for line in _basis_of(judged):
        print_line(f"  {line}")
    for check in judged.checks:
        print_line(f"  {_render_check(check)}")


def _lines_of(group: GroupNumbers) -> list[str]:
    of = f" of {group.reward_key}" if group.reward_key else ""
    return [
        f"{group.key}: {group.run} run, {group.scored} scored, {group.zero_by_missing} zero by "
        "missing",
        f"  mean{of}  {group.mean!r}{_between(group.mean_interval)}",
        f"  pass rate  {group.pass_rate!r}{_between(group.pass_interval)}: {group.passed} of "
        f"{group.run}",
    ]


def _between(interval: Interval | None) -> str:
    return f"  [{interval.low:.4f}, {interval.high:.4f}]" if interval else ""


def _basis_of(judged: Judged) -> list[str]:
    measured = judged.measured
    planned = "?" if measured.planned is None else measured.planned
    not_run = "?" if measured.not_run is None else measured.not_run
    parts = f"{measured.run} run + {measured.broken} broken + {not_run} not run"
    if measured.withheld:
        parts += f" + {measured.withheld} withheld"
    lines = [f"trials: {planned} planned = {parts}"]
    if measured.superseded:
        lines.append(f"        {measured.superseded} superseded or begun again: in no number")
    lines.append(f"errors: {render_errors(judged.errors)}")
    lines.append(f"cost: {render_cost(judged.cost)}")
    if missing := find_missing(measured):
        lines.append(f"incomplete: {'; '.join(missing)}")
    return lines + [f"note: {note}" for note in measured.notes]


def _render_check(check: Check) -> str:
    about = f"{check.group}: " if check.group else ""
    verdict = "ok    " if check.is_met else "MISSED"
    said = f"{verdict}  {about}{check.condition}: {check.found}"
    return said if check.miss is None else f"{said}  ({check.miss}, {check.miss.exit_code})"


def document_of(judged: list[Judged], miss: Miss | None) -> dict[str, object]:
    """All of it, for programs."""
    return {
        "met": miss is None,
        "miss": miss,
        "exit_code": miss.exit_code if miss else 0,
        "runs": [_run_document(each) for each in judged],
    }


def _run_document(judged: Judged) -> dict[str, object]:
    measured, cost = judged.measured, judged.cost
    return {
        "name": measured.name,
        "kind": measured.kind,
        "place": measured.place,
        "denominators": measured.denominators,
        "incomplete": find_missing(measured),
        "groups": [msgspec.to_builtins(group) for group in judged.groups],
        "errors": msgspec.to_builtins(judged.errors),
        "cost_usd": {
            "total": cost.total,
            "per_pass": cost.per_success,
            "known": cost.known,
            "n_known": cost.n_known,
            "n_unknown": cost.n_unknown,
        },
        "against": {key: _drop_document(judged, key) for key in judged.drops},
        "checks": [{**msgspec.to_builtins(check), "met": check.is_met} for check in judged.checks],
        "damage": measured.damage,
        "unshown": measured.unshown,
        "notes": measured.notes,
    }


def _drop_document(judged: Judged, key: str) -> dict[str, object]:
    drop = judged.drops[key]
    return {
        "baseline": drop.baseline,
        "paired": msgspec.to_builtins(drop.paired),
        "other_revision": drop.changed,
    }
