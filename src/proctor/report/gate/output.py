"""The result of a gate: lines for people, JSON, Markdown for a CI summary, and JUnit XML.

Names are untrusted: whatever Markdown, HTML or XML would interpret is escaped or removed.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from xml.etree.ElementTree import Element, SubElement, indent, tostring

import msgspec

from proctor.report.gate.judging import Judged, Miss, render_cost
from proctor.report.gate.runs import Trial
from proctor.report.page.figures import render_ends, render_estimate, render_percent_ends
from proctor.report.page.markdown import escape, render_table
from proctor.reward.number import Number, json_number
from proctor.sentence import render_figure, render_percent

_LONGEST_REWARD = 40
_MOST_LISTED = 50
_NOT_XML = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True, slots=True)
class _Failed:
    """A trial that did not pass."""

    trial: Trial
    error: str
    """Why it is an error; "" if its reward is below the pass mark."""
    reward: str
    """Its reward; "" if it has none."""


def _list_failed(judged: Judged) -> Iterator[_Failed]:
    keys = {group.key: group.reward_key for group in judged.groups}
    for trial in judged.run.trials:
        key = keys[trial.group]
        value, error = trial.value(key), ""
        if value is None or judged.limits.is_error(trial):
            error = trial.reason or trial.exception or f"no reward {key}"
        # Not `<`: nan must fail.
        if error or value is None or not value >= judged.limits.pass_mark:
            yield _Failed(trial, error, "" if value is None else _render_reward(value))


def _render_reward(value: Number) -> str:
    text = json_number(value) if isinstance(value, int) else repr(value)
    return text if len(text) <= _LONGEST_REWARD else f"{text[: _LONGEST_REWARD - 1]}…"


def render_verdict(miss: Miss | None) -> str:
    """Whether the gate is met; if not, with its exit code."""
    return f"MISSED: {miss} (exit code {miss.exit_code})" if miss else "met (exit code 0)"


# Lines for people


def render_text(runs: Sequence[Judged], miss: Miss | None) -> Iterator[str]:
    """Every run with its numbers and conditions, then the verdict."""
    for each in runs:
        yield f"{each.run.name} ({each.run.kind})"
        yield from (f"  {line}" for line in _render_run(each))
        yield ""
    yield f"gate: {render_verdict(miss)}"


def _render_run(judged: Judged) -> Iterator[str]:
    run = judged.run
    for group in judged.groups:
        of = f" of {group.reward_key}" if group.reward_key else ""
        rate = f"{render_percent(group.pass_rate)} {render_percent_ends(group.pass_interval)}"
        yield (
            f"{group.key}: {group.run} run, {group.scored} scored, {group.zero_by_missing} missing "
            "(counted as 0)"
        )
        yield f"  mean{of}  {render_estimate(group.mean, group.mean_interval)}"
        yield f"  pass rate  {rate.rstrip()}: {group.passed} of {group.run}"
    planned, not_run = ("?" if n is None else n for n in (run.planned, run.not_run))
    withheld = f" + {run.withheld} withheld" if run.withheld else ""
    yield (
        f"trials: {planned} planned = {len(run.trials)} run + {run.broken} cannot be read "
        f"+ {not_run} not run{withheld}"
    )
    if run.superseded:
        yield f"        {run.superseded} superseded or restarted: not counted"
    yield from (f"{label.lower()}: {text}" for label, text in _list_basis(judged))
    for check in judged.checks:
        about = f"{check.group}: " if check.group else ""
        code = f"  ({check.miss}, {check.miss.exit_code})" if check.miss else ""
        verdict = "MISSED" if check.miss else "ok    "
        yield f"{verdict}  {about}{check.condition}: {check.found}{code}"


def _list_basis(judged: Judged) -> Iterator[tuple[str, str]]:
    """What the numbers rest on, with a label for each."""
    yield "Errors", str(judged.errors)
    yield "Cost", render_cost(judged.cost)
    if missing := judged.run.missing:
        yield "Incomplete", "; ".join(missing)
    yield from (("Note", note) for note in judged.run.notes)


# JSON


def make_document(runs: Sequence[Judged], miss: Miss | None) -> dict[str, Any]:
    """The result as JSON."""
    return {
        "met": miss is None,
        "miss": miss,
        "exit_code": miss.exit_code if miss else 0,
        "runs": [_describe_run(each) for each in runs],
    }


def _describe_run(judged: Judged) -> dict[str, Any]:
    run, cost = judged.run, judged.cost
    checks = [{**msgspec.to_builtins(check), "met": check.miss is None} for check in judged.checks]
    return {
        "name": run.name,
        "kind": run.kind,
        "place": run.place,
        "denominators": run.denominators,
        "incomplete": run.missing,
        "groups": msgspec.to_builtins(judged.groups),
        "errors": msgspec.to_builtins(judged.errors),
        "cost_usd": {
            "total": cost.total,
            "per_pass": cost.per_success,
            "known": cost.known,
            "n_known": cost.n_known,
            "n_unknown": cost.n_unknown,
        },
        "against": msgspec.to_builtins(judged.drops),
        "checks": checks,
        "damage": run.damage,
        "unshown": run.unshown,
        "notes": run.notes,
    }


# Markdown


def render_markdown(runs: Sequence[Judged], miss: Miss | None) -> str:
    """The page."""
    verdict = f"missed: {miss} (exit code {miss.exit_code})" if miss else "met"
    lines = [f"## Gate {verdict}", "", *(line for each in runs for line in _render_page(each))]
    return "\n".join(lines) + "\n"


def _render_page(judged: Judged) -> Iterator[str]:
    yield from (f"### {escape(judged.run.name)} ({judged.run.kind})", "")
    if judged.checks:
        checks = (
            (
                f"✗ {check.miss}" if check.miss else "✓",
                check.condition,
                check.group or "all",
                check.found,
            )
            for check in judged.checks
        )
        yield from (*render_table(("", "condition", "of", "found"), checks), "")
    groups = (
        (
            group.key,
            render_figure(group.mean),
            render_ends(group.mean_interval) or "-",
            f"{render_percent(group.pass_rate)} ({group.passed} of {group.run})",
            render_percent_ends(group.pass_interval) or "-",
            str(group.scored),
            str(group.zero_by_missing),
        )
        for group in judged.groups
    )
    heads = ("group", "mean", "95 %", "pass rate", "95 %", "scored", "missing (counted as 0)")
    yield from (*render_table(heads, groups), "")
    yield from (f"{label}: {escape(text)}  " for label, text in _list_basis(judged))
    yield ""
    failed = [
        (
            each.trial.task,
            each.trial.row.trial_id,
            each.reward or "-",
            (each.trial.exception or each.error) if each.error else "below the pass mark",
        )
        for each in _list_failed(judged)
    ]
    if failed:
        yield from (f"<details><summary>{len(failed)} not passed</summary>", "")
        yield from render_table(("task", "trial", "reward", "why"), failed[:_MOST_LISTED])
        if len(failed) > _MOST_LISTED:
            yield from ("", f"… and {len(failed) - _MOST_LISTED} more")
        yield from ("", "</details>", "")


# JUnit XML


def render_junit(runs: Sequence[Judged]) -> bytes:
    """A suite with a case for each condition, and a suite for each run with a case for each trial.

    A reward below the pass mark is a failure; no reward, or an exception, is an error, whose type
    is the reason.
    """
    root = Element("testsuites", name="proctor gate")
    gate = SubElement(root, "testsuite", name="gate")
    for check in (check for each in runs for check in each.checks):
        about = f"{check.thing}: {check.group}" if check.group else check.thing
        case = _add_case(gate, about, check.condition, None)
        if check.miss is not None:
            _add_problem(case, "failure", check.miss, f"{check.condition}: {check.found}")
    for each in runs:
        _add_run(root, each)
    for suite in root:
        cases = suite.findall("testcase")
        suite.set("tests", str(len(cases)))
        suite.set("failures", str(len(suite.findall("testcase/failure"))))
        suite.set("errors", str(len(suite.findall("testcase/error"))))
        suite.set("skipped", "0")
        suite.set("time", f"{sum(float(case.get('time', '0')) for case in cases):.3f}")
    for name in ("tests", "failures", "errors"):
        root.set(name, str(sum(int(suite.get(name, "0")) for suite in root)))
    root.set("time", f"{sum(float(suite.get('time', '0')) for suite in root):.3f}")
    indent(root)
    text: str = tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'.encode()


def clean(text: str) -> str:
    """Text without the characters that XML does not allow."""
    return _NOT_XML.sub("", text)


def _add_run(root: Element, judged: Judged) -> None:
    suite = SubElement(root, "testsuite", name=clean(judged.run.name))
    properties = SubElement(suite, "properties")
    for name, value in _list_properties(judged):
        SubElement(properties, "property", name=clean(name), value=clean(value))
    failed = {id(each.trial): each for each in _list_failed(judged)}
    for trial in judged.run.trials:
        case = _add_case(suite, trial.task, trial.row.trial_id, trial.row.seconds)
        found = failed.get(id(trial))
        if found and found.error:
            reward = f"reward {found.reward}" if found.reward else "no reward"
            said = dict.fromkeys(filter(None, (reward, trial.exception, found.error)))
            _add_problem(case, "error", found.error, ": ".join(said))
        elif found:
            least = f"{judged.limits.pass_mark!r} or more"
            _add_problem(case, "failure", "reward", f"reward {found.reward}; expected {least}")


def _list_properties(judged: Judged) -> Iterator[tuple[str, str]]:
    counts = {"errors": judged.errors.count, "cost_usd": judged.cost.total}
    for name, value in (judged.run.denominators | counts).items():
        yield name, "unknown" if value is None else str(value)
    for group in judged.groups:
        for name in ("mean", "mean_interval", "pass_rate", "pass_interval", "scored",
                     "zero_by_missing"):  # fmt: skip
            found = getattr(group, name)
            if name.endswith("_interval"):
                found = f"{found.low!r} {found.high!r}" if found else "unknown"
            yield f"{group.key}.{name}", str(found)


def _add_case(suite: Element, classname: str, name: str, seconds: float | None) -> Element:
    about = {"classname": clean(classname), "name": clean(name), "time": f"{seconds or 0.0:.3f}"}
    return SubElement(suite, "testcase", about)


def _add_problem(case: Element, tag: str, kind: str, text: str) -> None:
    said = clean(text)
    SubElement(case, tag, type=clean(kind), message=said).text = said
