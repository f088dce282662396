"""The result line of a job: written from result.json, and read back.

    summarize_result   result.json to the five fields of the line
    read_run           output and exit code of a finished run to its status and score

All rules are agent-challenge's, including odd ones: a job without metrics completes with 0.0, and
one metric that is not a number makes the score invalid. Writing does not judge (a mean of 12 is
passed on); reading rejects a score outside 0 to 1 and repairs nothing.
"""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import msgspec

from proctor.errors import JobError
from proctor.json_values import MOST_VALUES, check_values
from proctor.record.reasons import ReasonCode, normalize_reason
from proctor.reward.number import exact_sum
from proctor.sentence import render_figure

PREFIX = "BASE_BENCHMARK_RESULT="

# The smallest whole number that Python refuses to format: its limit is 4300 digits.
_UNWRITABLE = 10**4300


class Summary(msgspec.Struct, frozen=True):
    """The fields of the line."""

    status: Literal["completed", "failed"]
    """Failed as soon as one trial errored, whatever the score."""
    score: float
    """Unweighted mean over all metric values of all groups; 0.0 if there are none."""
    resolved: int
    """score x planned trials, rounded half to even. Not a count of solved trials."""
    total: int
    """Planned trials; if unknown, completed + errored."""
    reason_code: ReasonCode | None
    """None whenever the result could be read."""


MISSING = Summary("failed", 0.0, 0, 0, ReasonCode.HARBOR_RESULT_MISSING)
MALFORMED = Summary("failed", 0.0, 0, 0, ReasonCode.HARBOR_RESULT_MALFORMED)


class JobNumbers(msgspec.Struct, frozen=True):
    """The numbers of a job that the line is computed from."""

    total: int
    """n_total_trials, 0 if absent."""
    completed: int
    """n_completed_trials; harbor includes errored trials."""
    errored: int
    """n_errored_trials."""
    values: tuple[float, ...]
    """Metric values, ordered by group, metric and key."""


def summarize_result(data: bytes | None) -> Summary:
    """Summarize the bytes of a result.json; None means that the file does not exist."""
    if data is None:
        return MISSING
    try:
        return summarize_numbers(parse_numbers(data))
    except JobError:
        return MALFORMED


def summarize_numbers(numbers: JobNumbers) -> Summary:
    """Summarize the numbers of a job.

    Raises:
        JobError: a metric is not finite, or a number is too large; the result counts as malformed.
    """
    values = numbers.values
    score = float(exact_sum(values)) / len(values) if values else 0.0
    total = numbers.total or numbers.completed + numbers.errored
    if abs(total) >= _UNWRITABLE:
        # agent-challenge's own code crashes here and prints no line.
        raise JobError("the number of trials is too large to format")
    try:
        # Not `total`: if the planned number is unknown, nothing counts as resolved.
        resolved = round(score * numbers.total)
    except (OverflowError, ValueError) as error:
        raise JobError(f"{score} x {numbers.total!r:.40} trials cannot be rounded") from error
    status: Literal["completed", "failed"] = "completed" if numbers.errored == 0 else "failed"
    return Summary(status, score, resolved, total, reason_code=None)


def render_line(summary: Summary) -> str:
    """Format the line, without a newline."""
    fields = {
        "reason_code": summary.reason_code,
        "resolved": summary.resolved,
        "score": summary.score,
        "status": summary.status,
        "total": summary.total,
    }
    return PREFIX + json.dumps(fields)


def explain_resolved(summary: Summary) -> str | None:
    """One sentence about what `resolved` counts; None where it is exactly score x total."""
    product = summary.score * summary.total
    if summary.reason_code is not None or math.isclose(product, summary.resolved, abs_tol=1e-9):
        return None
    if summary.resolved == 0 and abs(product) > 0.5:
        return "resolved is 0 because the result does not say how many trials were planned"
    return (
        f"resolved is score x total, rounded ({render_figure(summary.score)} x {summary.total:,} = "
        f"{render_figure(product)}, so {summary.resolved:,}); it is not a count of passed trials"
    )


def parse_numbers(data: bytes) -> JobNumbers:
    """Parse the numbers of a result.json.

    Raises:
        JobError: not JSON, or a value of the wrong type; the message says which.
    """
    try:
        # Decode first: given bytes, json would also accept UTF-16 and a byte order mark.
        check_values(data, 4 * MOST_VALUES)
        document: object = json.loads(data.decode("utf-8"))
    except RecursionError as error:
        raise JobError("the result is nested too deeply to parse") from error
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
    """Only the mean, if there is one, regardless of other keys."""
    for key in ["mean"] if "mean" in metric else metric:
        value = metric[key]
        try:
            yield float(_scalar(value, f"{where}[{key!r}]", "a number"))
        except (OverflowError, ValueError) as error:
            raise JobError(f"{where}[{key!r}] is {value!r:.40}; expected a number") from error


def _count(value: object, where: str) -> int:
    """Convert to a whole number as Python's `int` does; empty values and null become 0."""
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
    # agent-challenge iterates over any value, so empty text and objects pass as empty lists.
    if value in ("", {}):
        return []
    raise JobError(f"{where} is {_kind(value)}; expected a list")


def _kind(value: object) -> str:
    names = {bool: "true or false", dict: "an object", list: "a list", str: "a text"}
    return "null" if value is None else names.get(type(value), "a number")


TIMED_OUT = "timed_out"


@dataclass(frozen=True, slots=True)
class RunReading:
    """How a run is judged."""

    status: Literal["completed", "failed", "timed_out"]
    score: float
    """0.0 unless completed."""
    reason_code: str | None
    """A code, a slug of unknown text, or `timed_out`; a completed run may have one too."""
    payload: Mapping[str, object]
    """The JSON of the line, unchanged; empty if there is no readable line."""


def read_run(stdout: str, returncode: int, *, timed_out: bool, prefix: str = PREFIX) -> RunReading:
    """Judge a run by the first rule that applies.

    (1) It timed out.
    (2) Its exit code is not 0: failed, for the line's reason or as a non-zero exit.
    (3) There is no line, or its JSON is not an object: failed.
    (4) Status is not text, or there is no score: partial.
    (5) Status is neither completed nor failed, or score is not a number: invalid.
    (6) Score is not within 0 and 1: invalid.
    (7) Failed with a score above 0: invalid; failed with 0: failed, for the line's reason.
    (8) Completed: the score counts.
    """
    payload, problem = _find_payload(stdout, prefix)
    if timed_out:  # (1)
        return RunReading("timed_out", 0.0, TIMED_OUT, payload)
    reason = _reason(payload)
    if returncode != 0:  # (2)
        return _failed(payload, reason or ReasonCode.HARBOR_NONZERO_EXIT)
    if problem is not None:  # (3)
        return _failed(payload, problem)
    return _judge(payload, reason)


def _judge(payload: Mapping[str, object], reason: str | None) -> RunReading:
    status, score = payload.get("status"), payload.get("score")
    if not isinstance(status, str) or "score" not in payload:  # (4)
        return _failed(payload, ReasonCode.HARBOR_RESULT_PARTIAL)
    if isinstance(score, bool) or not isinstance(score, int | float):  # (5)
        return _failed(payload, ReasonCode.HARBOR_RESULT_INVALID)
    if not 0.0 <= score <= 1.0:  # (6)
        return _failed(payload, ReasonCode.HARBOR_RESULT_INVALID)
    if status == "completed":  # (8)
        return RunReading("completed", float(score), reason, payload)
    if status != "failed" or score > 0.0:  # (5) (7)
        return _failed(payload, ReasonCode.HARBOR_RESULT_INVALID)
    return _failed(payload, reason)


def _find_payload(stdout: str, prefix: str) -> tuple[dict[str, object], ReasonCode | None]:
    """Parse the last line that starts with the prefix. Earlier ones do not replace a bad one."""
    for line in reversed(stdout.splitlines()):
        if line.startswith(prefix):
            return _parse_payload(line.removeprefix(prefix))
    return {}, ReasonCode.HARBOR_RESULT_MISSING


def _parse_payload(text: str) -> tuple[dict[str, object], ReasonCode | None]:
    try:
        payload: object = json.loads(text)
    except (ValueError, RecursionError):
        return {}, ReasonCode.HARBOR_RESULT_MALFORMED
    if not isinstance(payload, dict):
        return {}, ReasonCode.HARBOR_RESULT_MALFORMED
    return payload, None


def _reason(payload: Mapping[str, object]) -> str | None:
    reason = payload.get("reason_code")
    return normalize_reason(reason) if isinstance(reason, str) else None


def _failed(payload: Mapping[str, object], reason: str | None) -> RunReading:
    return RunReading("failed", 0.0, reason, payload)
