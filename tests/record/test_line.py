"""The result line: what it says for every shape of result.json."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.errors import JobError
from proctor.record.outcome import (
    MALFORMED,
    MISSING,
    PREFIX,
    JobNumbers,
    Summary,
    explain_resolved,
    parse_numbers,
    render_line,
    summarize_numbers,
    summarize_result,
)

MISSING_LINE = (
    'BASE_BENCHMARK_RESULT={"reason_code": "harbor_result_missing", '
    '"resolved": 0, "score": 0.0, "status": "failed", "total": 0}'
)


def job(*metrics: object, total: object = 3, completed: object = 3, errored: object = 0) -> bytes:
    stats = {
        "n_completed_trials": completed,
        "n_errored_trials": errored,
        "evals": {"a__d": {"metrics": list(metrics)}},
    }
    return json.dumps({"n_total_trials": total, "stats": stats}).encode()


def test_the_prefix_is_the_one_that_the_platform_reads() -> None:
    assert PREFIX == "BASE_BENCHMARK_RESULT="


def test_no_file_is_a_missing_result() -> None:
    assert summarize_result(None) == MISSING
    assert Summary("failed", 0.0, 0, 0, MISSING.reason_code) == MISSING
    assert render_line(MISSING) == MISSING_LINE


def test_a_malformed_result_says_nothing_else() -> None:
    assert summarize_result(b"") == MALFORMED
    assert render_line(MALFORMED) == MISSING_LINE.replace("missing", "malformed")


def test_a_summary_is_a_value() -> None:
    with pytest.raises(AttributeError):
        MISSING.score = 1.0  # type: ignore[misc]


@pytest.mark.parametrize(
    ("score", "text"),
    [
        (1 / 3, "0.3333333333333333"),
        (1.0, "1.0"),
        (-0.0, "-0.0"),
        (1e300, "1e+300"),
        (0.1 + 0.2, "0.30000000000000004"),
    ],
)
def test_the_line_is_the_same_to_the_byte(score: float, text: str) -> None:
    assert render_line(Summary("completed", score, 1, 3, None)) == (
        'BASE_BENCHMARK_RESULT={"reason_code": null, "resolved": 1, '
        f'"score": {text}, "status": "completed", "total": 3}}'
    )


@pytest.mark.parametrize(
    ("summary", "said"),
    [
        (Summary("completed", 0.75, 3, 4, None), None),
        (Summary("completed", 2 / 3, 2, 3, None), None),
        (MISSING, None),
        (
            Summary("completed", 0.75, 2, 3, None),
            "resolved is score x total, rounded (0.75 x 3 = 2.25, so 2); it is not a count of "
            "passed trials",
        ),
        (
            Summary("completed", 1e308, 0, 20, None),
            "resolved is 0 because the result does not say how many trials were planned",
        ),
        (
            Summary("completed", 1.0, 0, 1, None),
            "resolved is 0 because the result does not say how many trials were planned",
        ),
        (
            Summary("completed", 0.5, 0, 1, None),
            "resolved is score x total, rounded (0.5 x 1 = 0.5, so 0); it is not a count of "
            "passed trials",
        ),
        # Sums of harbor's metrics are not exact.
        (Summary("completed", 1e-10, 0, 1, None), None),
    ],
)
def test_resolved_is_explained_where_the_mean_suggests_another_number(
    summary: Summary, said: str | None
) -> None:
    assert explain_resolved(summary) == said


@pytest.mark.parametrize(("mean", "resolved"), [(1.0, 3), (2 / 3, 2), (0.0, 0)])
def test_a_job_without_errors_is_completed_whatever_it_scored(mean: float, resolved: int) -> None:
    assert summarize_result(job({"mean": mean})) == Summary("completed", mean, resolved, 3, None)


@pytest.mark.parametrize("errored", [1, 3, -1, "2", 1.5, True])
def test_any_errored_trial_fails_the_job_and_keeps_its_score(errored: object) -> None:
    summary = summarize_result(job({"mean": 0.5}, total=2, errored=errored))
    assert summary == Summary("failed", 0.5, 1, 2, None)


@pytest.mark.parametrize("errored", [0, None, "", "0", 0.0, 0.9, -0.5, [], {}, False])
def test_what_counts_as_no_errored_trial_completes(errored: object) -> None:
    assert summarize_result(job({"mean": 0.5}, errored=errored)).status == "completed"


@pytest.mark.parametrize(
    ("mean", "total", "resolved"),
    [
        (0.5, 1, 0),
        (0.5, 3, 2),
        (0.5, 5, 2),
        (0.25, 10, 2),
        (0.35, 10, 4),
        (0.833333, 6, 5),
        (-1.5, 1, -2),
        (-0.5, 1, 0),
        (3, 4, 12),
    ],
)
def test_resolved_is_score_times_plan_with_halves_to_even(
    mean: float, total: int, resolved: int
) -> None:
    assert summarize_result(job({"mean": mean}, total=total)).resolved == resolved


@pytest.mark.parametrize(
    ("total", "expected", "resolved"),
    [
        (7, 7, 7),
        ("7", 7, 7),
        (" 1_0 ", 10, 10),
        (2.9, 2, 2),
        (True, 1, 1),
        (-2, -2, -2),
        (0, 5, 0),
        (None, 5, 0),
        ("", 5, 0),
        (False, 5, 0),
        ([], 5, 0),
        ({}, 5, 0),
    ],
)
def test_an_unknown_plan_is_replaced_in_total_but_not_in_resolved(
    total: object, expected: int, resolved: int
) -> None:
    summary = summarize_result(job({"mean": 1.0}, total=total, completed=4, errored=1))
    assert (summary.total, summary.resolved) == (expected, resolved)


@pytest.mark.parametrize(
    ("metrics", "score"),
    [
        ([], 0.0),
        ([{}], 0.0),
        ([{"mean": 0.25, "max": 1.0, "x": "y"}], 0.25),
        ([{"mean": 0.5}, {"max": 1.0}], 0.75),
        ([{"a": 1, "b": 0.5}], 0.75),
        ([{"mean": "0.5"}], 0.5),
        ([{"mean": " 1e-1 "}], 0.1),
        ([{"mean": True}], 1.0),
        ([{"sum": 3}], 3.0),
        ([{"mean": 0.1}, {"mean": 0.2}, {"mean": 0.3}], 0.19999999999999998),
        ([{"mean": 0.1}] * 10, 0.1),
    ],
)
def test_every_metric_value_weighs_the_same(metrics: list[object], score: float) -> None:
    summary = summarize_result(job(*metrics))
    assert repr(summary.score) == repr(score)
    assert summary.reason_code is None


def test_groups_weigh_by_their_values_and_not_by_their_trials() -> None:
    evals = {
        "a": {"metrics": [{"mean": 1.0}], "n_trials": 9},
        "b": {"metrics": [{"x": 0.0, "y": 0.5}], "n_trials": 1},
        "c": {},
    }
    numbers = parse_numbers(json.dumps({"stats": {"evals": evals}}).encode())
    assert numbers == JobNumbers(0, 0, 0, (1.0, 0.0, 0.5))


@pytest.mark.parametrize(
    "text",
    ["{}", '{"stats": {}}', '{"stats": {"evals": {}}}', '{"stats": {"evals": {"k": {}}}}', " {}\n"],
)
def test_a_result_without_contents_completes_with_nothing(text: str) -> None:
    assert summarize_result(text.encode()) == Summary("completed", 0.0, 0, 0, None)


@pytest.mark.parametrize("metrics", ["", {}, []])
def test_empty_metrics_of_any_kind_are_no_metrics(metrics: object) -> None:
    data = json.dumps({"stats": {"evals": {"k": {"metrics": metrics}}}}).encode()
    assert summarize_result(data).status == "completed"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"null", "the result is null; expected an object"),
        (b"[]", "the result is a list; expected an object"),
        (b"5", "the result is a number; expected an object"),
        (b"5.5", "the result is a number; expected an object"),
        (b"true", "the result is true or false; expected an object"),
        (b'"x"', "the result is a text; expected an object"),
        (b'{"stats": null}', "stats is null; expected an object"),
        (b'{"stats": []}', "stats is a list; expected an object"),
        (b'{"stats": {"evals": null}}', "stats.evals is null; expected an object"),
        (b'{"stats": {"evals": []}}', "stats.evals is a list; expected an object"),
        (b'{"stats": {"evals": {"k": null}}}', "stats.evals['k'] is null; expected an object"),
        (
            b'{"stats": {"evals": {"k": {"metrics": null}}}}',
            "stats.evals['k'].metrics is null; expected a list",
        ),
        (
            b'{"stats": {"evals": {"k": {"metrics": "ab"}}}}',
            "stats.evals['k'].metrics is a text; expected a list",
        ),
        (
            b'{"stats": {"evals": {"k": {"metrics": {"mean": 1}}}}}',
            "stats.evals['k'].metrics is an object; expected a list",
        ),
        (
            b'{"stats": {"evals": {"k": {"metrics": 0}}}}',
            "stats.evals['k'].metrics is a number; expected a list",
        ),
        (
            b'{"stats": {"evals": {"k": {"metrics": [{}, "mean"]}}}}',
            "stats.evals['k'].metrics[1] is a text; expected an object",
        ),
        (
            b'{"stats": {"evals": {"k": {"metrics": [[]]}}}}',
            "stats.evals['k'].metrics[0] is a list; expected an object",
        ),
        (
            b'{"stats": {"evals": {"k": {"metrics": [{"mean": null}]}}}}',
            "stats.evals['k'].metrics[0]['mean'] is null; expected a number",
        ),
        (
            b'{"stats": {"evals": {"k": {"metrics": [{"a": 1, "b": {}}]}}}}',
            "stats.evals['k'].metrics[0]['b'] is an object; expected a number",
        ),
        (
            b'{"stats": {"evals": {"k": {"metrics": [{"mean": "high"}]}}}}',
            "stats.evals['k'].metrics[0]['mean'] is 'high'; expected a number",
        ),
        (
            b'{"stats": {"evals": {"k": {"metrics": [{"mean": 1' + b"0" * 400 + b"}]}}}}",
            "stats.evals['k'].metrics[0]['mean'] is 1" + "0" * 39 + "; expected a number",
        ),
        (b'{"n_total_trials": [1]}', "n_total_trials is a list; expected a whole number"),
        (b'{"n_total_trials": "3.0"}', "n_total_trials is '3.0'; expected a whole number"),
        (b'{"n_total_trials": NaN}', "n_total_trials is nan; expected a whole number"),
        (b'{"n_total_trials": Infinity}', "n_total_trials is inf; expected a whole number"),
        (
            b'{"stats": {"n_completed_trials": "x"}}',
            "stats.n_completed_trials is 'x'; expected a whole number",
        ),
        (
            b'{"stats": {"n_errored_trials": {"a": 1}}}',
            "stats.n_errored_trials is an object; expected a whole number",
        ),
        (
            b"{not json",
            "the result is not JSON in UTF-8: Expecting property name enclosed in double quotes: "
            "line 1 column 2 (char 1)",
        ),
    ],
)
def test_what_cannot_count_is_named_and_makes_the_line_malformed(data: bytes, message: str) -> None:
    with pytest.raises(JobError) as caught:
        parse_numbers(data)
    assert str(caught.value) == message
    assert summarize_result(data) == MALFORMED


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{} trailing",
        b"\xff\xfe{}",
        b"\xef\xbb\xbf{}",
        "{}".encode("utf-16"),
        b'{"n_total_trials": ' + b"1" * 4301 + b"}",
    ],
)
def test_bytes_that_are_not_one_json_text_in_utf8_are_malformed(data: bytes) -> None:
    with pytest.raises(JobError, match=r"^the result is not JSON in UTF-8: "):
        parse_numbers(data)
    assert summarize_result(data) == MALFORMED


def test_json_nested_beyond_reason_is_malformed() -> None:
    data = b'{"x": ' + b"[" * 200_000 + b"]" * 200_000 + b"}"
    with pytest.raises(JobError, match=r"^the result is nested too deeply to parse$"):
        parse_numbers(data)
    assert summarize_result(data) == MALFORMED


@pytest.mark.parametrize(
    ("mean", "total"),
    [("nan", 1), ("inf", 1), ("-inf", 1), ("inf", 0), (1e308, 10), (0.0, 10**400), (1.0, 10**400)],
)
def test_a_product_that_is_not_finite_voids_the_job(mean: object, total: int) -> None:
    assert summarize_result(job({"mean": mean}, total=total)) == MALFORMED


def test_a_count_at_the_edge_of_what_can_be_written_is_written() -> None:
    largest = 10**4300 - 1
    summary = summarize_result(job(total=0, completed=largest, errored=0))
    assert summary.total == largest
    assert render_line(summary).endswith("9}")
    assert summarize_result(job(total=0, completed=-largest, errored=0)).total == -largest


def test_a_count_that_cannot_be_written_is_malformed() -> None:
    largest = 10**4300 - 1
    assert summarize_result(job(total=0, completed=largest, errored=1)) == MALFORMED
    assert summarize_result(job(total=0, completed=-largest, errored=-1)) == MALFORMED


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        (JobNumbers(0, 10**4300, 0, ()), "the number of trials is too large to format"),
        (JobNumbers(3, 0, 0, (math.nan,)), "nan x 3 trials cannot be rounded"),
        (JobNumbers(3, 0, 0, (math.inf,)), "inf x 3 trials cannot be rounded"),
        (JobNumbers(10**400, 0, 0, ()), f"0.0 x 1{'0' * 39} trials cannot be rounded"),
    ],
)
def test_numbers_that_make_no_line_say_why(numbers: JobNumbers, message: str) -> None:
    with pytest.raises(JobError) as caught:
        summarize_numbers(numbers)
    assert str(caught.value) == message


@given(st.recursive(st.none() | st.booleans() | st.floats() | st.text(), st.lists))
def test_no_metric_makes_the_line_fail(value: object) -> None:
    assert render_line(summarize_result(job({"mean": value}))).startswith(PREFIX)
