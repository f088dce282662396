"""JUnit XML that readers of it take, whatever the names are made of."""

import re
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.report.gate.judging import Limits, judge
from proctor.report.gate.output import clean, render_junit
from tests.examples import examples
from tests.report.gate.runs import run_of

LIMITS = Limits(min_mean=0.9)
# What Jenkins' schema of JUnit files allows, and requires, of what is used here.
REQUIRED = {
    "testsuites": {"name", "tests", "failures", "errors", "time"},
    "testsuite": {"name", "tests", "failures", "errors", "skipped", "time"},
    "testcase": {"classname", "name", "time"},
    "property": {"name", "value"},
    "failure": {"type", "message"},
    "error": {"type", "message"},
    "properties": set(),
}
CHILDREN = {
    "testsuites": ["testsuite"],
    "testsuite": ["properties", "testcase"],
    "testcase": ["error", "failure"],
    "properties": ["property"],
}
hostile = st.text(max_size=20) | st.sampled_from(
    ["]]>", "<script>", "&#0;", "a\x00b\x1b[31m", "\ud800", "\ufffe", "\"'", "a\nb", "é"]
)


def check_schema(element: Element) -> None:
    assert set(element.attrib) == REQUIRED[element.tag]
    tags = [child.tag for child in element]
    order = CHILDREN.get(element.tag, [])
    assert sorted(tags, key=order.index) == tags
    if element.tag == "testsuite":
        cases = element.findall("testcase")
        assert int(element.get("tests", "")) == len(cases)
        assert int(element.get("failures", "")) == len(element.findall("testcase/failure"))
        assert int(element.get("errors", "")) == len(element.findall("testcase/error"))
    for name in {"tests", "failures", "errors", "skipped"} & set(element.attrib):
        assert re.fullmatch("[0-9]+", element.attrib[name])
    if "time" in element.attrib:
        assert re.fullmatch(r"[0-9]+\.[0-9]{3}", element.attrib["time"])
    for child in element:
        check_schema(child)


def rendered(*rewards: float | None, name: str = "nightly", text: str = "x") -> Element:
    judged = judge(run_of(*rewards, name=name, text=text), LIMITS)
    return ElementTree.fromstring(render_junit([judged]))  # noqa: S314 - our own


def test_a_trial_fails_or_errs_or_passes() -> None:
    root = rendered(1.0, 0.5, None)
    check_schema(root)
    cases = root.findall("testsuite[@name='nightly']/testcase")
    assert [[child.tag for child in case] for case in cases] == [[], ["failure"], ["error"]]
    (failure,), (error,) = cases[1], cases[2]
    assert failure.text == "reward 0.5; expected 1.0 or more"
    assert (error.get("type"), error.text) == (
        "harbor_trial_failed",
        "no reward: x: harbor_trial_failed",
    )


def test_conditions_are_a_suite_of_their_own() -> None:
    (case,) = rendered(1.0, 0.5).findall("testsuite[@name='gate']/testcase")
    assert (case.get("classname"), case.get("name")) == ("nightly: x", "mean >= 0.9")
    (failure,) = case
    assert failure.get("type") == "score"


def test_the_numbers_are_properties() -> None:
    found = {each.get("name"): each.get("value") for each in rendered(1.0, None).iter("property")}
    assert (found["planned"], found["run"], found["errors"]) == ("2", "2", "1")
    assert (found["cost_usd"], found["x.mean"], found["x.scored"]) == ("unknown", "0.5", "1")


@given(hostile, hostile)
@settings(max_examples=examples(60))
def test_any_names_make_a_document_that_is_read_back(name: str, text: str) -> None:
    root = rendered(1.0, 0.0, None, name=name, text=text)
    check_schema(root)
    cases = root[1].findall("testcase")
    # A reader of XML takes a carriage return in an attribute for what it was written as.
    assert [case.get("classname") for case in cases] == [clean(text)] * 3


@pytest.mark.parametrize(
    ("text", "left"), [("a\x00b\x1b[0m", "ab[0m"), ("\ud800x", "x"), ("é\t\n😀", "é\t\n😀")]
)
def test_what_xml_cannot_hold_is_left_out(text: str, left: str) -> None:
    assert clean(text) == left
