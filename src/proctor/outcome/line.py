"""The result line: what a job's result.json says, in five facts on one line of stdout.

The rules are those of the block that agent-challenge puts behind every harbor run, oddities
included: a job without metrics completes with 0.0, one metric that is not a number voids all.
Nothing here judges a score: a mean of 12 is passed on, and `consumer` refuses it.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Literal

import msgspec

from proctor.errors import JobError
from proctor.json_values import MOST_VALUES, check_values
from proctor.outcome.reasons import ReasonCode
from proctor.reward.number import exact_sum

PREFIX = "BASE_BENCHMARK_RESULT="
OLDER_PREFIX = "PLATFORM_BENCHMARK_RESULT="
"""The prefix of lines written before 2026-06-24."""

_UNWRITABLE = 10**4300
"""The first whole number that Python refuses to write in decimal."""


class Summary(msgspec.Struct, frozen=True):
    """The line as a value."""

    status: Literal["completed", "failed"]
    """Failed as soon as one trial errored, whatever the score."""
    score: float
    """Unweighted mean over all metric values of all groups; 0.0 if there are none."""
    resolved: int
    """score x planned trials, a half rounded to even. Not a count of solved trials."""
    total: int
    """Trials planned; if that is not known, completed + errored."""
    reason_code: ReasonCode | None
    """None as soon as the result could be read."""


MISSING = Summary("failed", 0.0, 0, 0, ReasonCode.HARBOR_RESULT_MISSING)
MALFORMED = Summary("failed", 0.0, 0, 0, ReasonCode.HARBOR_RESULT_MALFORMED)


class JobNumbers(msgspec.Struct, frozen=True):
    """The numbers of a job that the line is made of."""

    total: int
    """n_total_trials, 0 if it is not given."""
    completed: int
    """n_completed_trials; harbor counts the errored ones here too."""
    errored: int
    """n_errored_trials."""
    values: tuple[float, ...]
    """Metric values in the order of the groups, of their metrics, of the keys."""


def summarize_result(data: bytes | None) -> Summary:
    """What the line says for a result.json of these bytes; None means there is no file."""
    if data is None:
        return MISSING
    try:
        return summarize_numbers(parse_numbers(data))
    except JobError:
        return MALFORMED


def summarize_numbers(numbers: JobNumbers) -> Summary:
    """What the line says for these numbers.

    Raises:
        JobError: a metric is not finite, or a number is too large; the line is then malformed.
    """
    values = numbers.values
    score = float(exact_sum(values)) / len(values) if values else 0.0
    total = numbers.total or numbers.completed + numbers.errored
    if abs(total) >= _UNWRITABLE:
        # The block itself dies here and prints no line at all.
        raise JobError("the number of trials is too large to be written")
    try:
        # Not `total`: where the plan is not known, nothing counts as resolved.
        resolved = round(score * numbers.total)
    except (OverflowError, ValueError) as error:
        raise JobError(f"{score} x {numbers.total!r:.40} trials cannot be rounded") from error
    status: Literal["completed", "failed"] = "completed" if numbers.errored == 0 else "failed"
    return Summary(status, score, resolved, total, reason_code=None)


def render_line(summary: Summary) -> str:
    """The line, without its newline."""
    fields = {
        "reason_code": summary.reason_code,
        "resolved": summary.resolved,
        "score": summary.score,
        "status": summary.status,
        "total": summary.total,
    }
    return PREFIX + json.dumps(fields)


def parse_numbers(data: bytes) -> JobNumbers:
    """The numbers in a result.json.

    Raises:
        JobError: not JSON, or a part of it has a shape or value that cannot count; says which.
    """
    try:
        # As text: given bytes, json would also take UTF-16 and a byte order mark.
        check_values(data, 4 * MOST_VALUES)
        document: object = json.loads(data.decode("utf-8"))
    except RecursionError as error:
        raise JobError("the result is nested too deeply to be read as JSON") from error
    except ValueError as error:
        raise JobError(f"the result is not JSON in UTF-8: {error}") from error
    result = _object(document, "the result")
    stats = _object(result.get("stats", {}), "stats")
    return JobNumbers(
        total=_count(result.get("n_total_trials"), "n_total_trials"),
        completed=_count(stats.get("n_completed_trials"), "stats.n_completed_trials"),
        errored=_count(stats.get("n_errored_trials"), "stats.n_errored_trials"),
        values=tuple(_values(_object(stats.get("evals", {}), "stats.evals"))),
    )


def _values(evals: Mapping[str, object]) -> Iterator[float]:
    for name, group in evals.items():
        where = f"stats.evals[{name!r}]"
        metrics = _object(group, where).get("metrics", [])
        for index, metric in enumerate(_list(metrics, f"{where}.metrics")):
            at = f"{where}.metrics[{index}]"
            yield from _metric_values(_object(metric, at), at)


def _metric_values(metric: Mapping[str, object], where: str) -> Iterator[float]:
    """Only the mean if there is one, however many other keys stand beside it."""
    for key in ["mean"] if "mean" in metric else metric:
        value = metric[key]
        try:
            yield float(_scalar(value, f"{where}[{key!r}]", "a number"))
        except (OverflowError, ValueError) as error:
            raise JobError(f"{where}[{key!r}] is {value!r:.40}; expected a number") from error


def _count(value: object, where: str) -> int:
    """A whole number as `int` takes it from JSON; whatever is empty or null is 0."""
    if not value:
        return 0
    try:
        return int(_scalar(value, where, "a whole number"))
    except (OverflowError, ValueError) as error:
        raise JobError(f"{where} is {value!r:.40}; expected a whole number") from error


def _scalar(value: object, where: str, expected: str) -> int | float | str:
    if not isinstance(value, int | float | str):
        raise JobError(f"{where} is {_kind(value)}; expected {expected}")
    return value


def _object(value: object, where: str) -> dict[str, object]:
    if not isinstance(value, dict):
        raise JobError(f"{where} is {_kind(value)}; expected an object")
    return value


def _list(value: object, where: str) -> list[object]:
    if isinstance(value, list):
        return value
    # The block loops over whatever is there, and over nothing it can loop in peace.
    if value in ("", {}):
        return []
    raise JobError(f"{where} is {_kind(value)}; expected a list")


def _kind(value: object) -> str:
    names = {bool: "true or false", dict: "an object", list: "a list", str: "a text"}
    return "null" if value is None else names.get(type(value), "a number")
