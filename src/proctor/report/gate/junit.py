"""The result of a gate as JUnit XML, which CI systems read.

    <testsuites>
      <testsuite name="gate">         a testcase for each condition; a missed one is a failure
      <testsuite name="EXPERIMENT">   a testcase for each trial, with its task as the class:
                                      failure: a reward below the pass mark
                                      error: no reward, or an exception; the type is the reason

Names are untrusted: they are escaped, and characters that XML does not allow are removed.
"""

import re
from collections.abc import Sequence
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from proctor.report.gate.judging import Judged
from proctor.report.gate.limits import Check, Limits
from proctor.report.gate.measured import MeasuredTrial
from proctor.report.gate.numbers import GroupNumbers, is_error, render_reward, value_of
from proctor.report.statistics.intervals import Interval

_NOT_XML = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render_junit(judged: Sequence[Judged], limits: Limits) -> bytes:
    """The document, in UTF-8."""
    root = Element("testsuites", name="proctor gate")
    suites = [_add_gate(root, [check for each in judged for check in each.checks])]
    suites += [_add_run(root, each, limits) for each in judged]
    for name in ("tests", "failures", "errors"):
        root.set(name, str(sum(int(suite.get(name, "0")) for suite in suites)))
    root.set("time", _seconds(sum(float(suite.get("time", "0")) for suite in suites)))
    indent(root)
    text: str = tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'.encode()


def clean(text: str) -> str:
    """Text without the characters that XML does not allow."""
    return _NOT_XML.sub("", text)


def _add_gate(root: Element, checks: Sequence[Check]) -> Element:
    suite = _add_suite(root, "gate")
    for check in checks:
        about = f"{check.thing}: {check.group}" if check.group else check.thing
        case = _add_case(suite, about, check.condition, None)
        if check.miss is not None:
            found = clean(f"{check.condition}: {check.found}")
            SubElement(case, "failure", type=str(check.miss), message=found).text = found
    return _count(suite)


def _add_run(root: Element, judged: Judged, limits: Limits) -> Element:
    suite = _add_suite(root, judged.measured.name)
    properties = SubElement(suite, "properties")
    for name, value in _properties(judged):
        SubElement(properties, "property", name=clean(name), value=clean(value))
    keys = {group.key: group.reward_key for group in judged.groups}
    for trial in judged.measured.trials:
        case = _add_case(suite, trial.task, trial.row.trial_id, trial.row.seconds)
        _mark(case, trial, keys[trial.group], limits)
    return _count(suite)


def _mark(case: Element, trial: MeasuredTrial, reward_key: str | None, limits: Limits) -> None:
    value = value_of(trial, reward_key)
    if value is None or is_error(trial, limits):
        reason = trial.reason or trial.exception or f"no reward {reward_key}"
        parts = [
            "no reward" if value is None else f"reward {render_reward(value)}",
            trial.exception,
            reason,
        ]
        said = clean(": ".join(dict.fromkeys(part for part in parts if part)))
        SubElement(case, "error", type=clean(reason), message=said).text = said
    # Not `<`: nan must fail.
    elif not value >= limits.pass_mark:
        said = f"reward {render_reward(value)}; expected {limits.pass_mark!r} or more"
        SubElement(case, "failure", type="reward", message=said).text = said


def _properties(judged: Judged) -> list[tuple[str, str]]:
    measured = judged.measured
    counts = {
        **measured.denominators,
        "errors": judged.errors.count,
        "cost_usd": judged.cost.total,
    }
    found = [(name, "unknown" if value is None else str(value)) for name, value in counts.items()]
    return found + [pair for group in judged.groups for pair in _properties_of(group)]


def _properties_of(group: GroupNumbers) -> list[tuple[str, str]]:
    numbers = {
        "mean": repr(group.mean),
        "mean_interval": _ends(group.mean_interval),
        "pass_rate": repr(group.pass_rate),
        "pass_interval": _ends(group.pass_interval),
        "scored": str(group.scored),
        "zero_by_missing": str(group.zero_by_missing),
    }
    return [(f"{group.key}.{name}", value) for name, value in numbers.items()]


def _ends(interval: Interval | None) -> str:
    return f"{interval.low!r} {interval.high!r}" if interval else "unknown"


def _add_suite(root: Element, name: str) -> Element:
    return SubElement(root, "testsuite", name=clean(name))


def _add_case(suite: Element, classname: str, name: str, seconds: float | None) -> Element:
    about = {"classname": clean(classname), "name": clean(name), "time": _seconds(seconds or 0.0)}
    return SubElement(suite, "testcase", about)


def _count(suite: Element) -> Element:
    cases = suite.findall("testcase")
    suite.set("tests", str(len(cases)))
    suite.set("failures", str(len(suite.findall("testcase/failure"))))
    suite.set("errors", str(len(suite.findall("testcase/error"))))
    suite.set("skipped", "0")
    suite.set("time", _seconds(sum(float(case.get("time", "0")) for case in cases)))
    return suite


def _seconds(value: float) -> str:
    return f"{value:.3f}"
