"""How the reader of the line takes a run."""

import json

import pytest

from proctor.record.outcome import PREFIX, TIMED_OUT, RunReading, read_run


def line(**fields: object) -> str:
    return PREFIX + json.dumps(fields)


def read(stdout: str, returncode: int = 0) -> RunReading:
    return read_run(stdout, returncode, timed_out=False)


def verdict(reading: RunReading) -> tuple[str, float, str | None]:
    return reading.status, reading.score, reading.reason_code


GOOD = line(status="completed", score=0.75)


def test_a_completed_run_has_its_score() -> None:
    payload = {"status": "completed", "score": 0.75}
    assert read(GOOD) == RunReading("completed", 0.75, None, payload)


@pytest.mark.parametrize("score", [0, 1, 0.0, 1.0, 5e-324, 0.9999999999999999])
def test_a_score_within_bounds_counts_as_a_double(score: float) -> None:
    reading = read(line(status="completed", score=score))
    assert verdict(reading) == ("completed", score, None)
    assert isinstance(reading.score, float)


def test_negative_zero_passes_as_it_is() -> None:
    assert repr(read(line(status="completed", score=-0.0)).score) == "-0.0"


@pytest.mark.parametrize(
    "score",
    [
        1.0000000000000002,
        -5e-324,
        2,
        -1,
        10**400,
        float("nan"),
        float("inf"),
        float("-inf"),
        "1.0",
        None,
        True,
        False,
        [],
        {},
    ],
)
@pytest.mark.parametrize("status", ["completed", "failed"])
def test_a_score_that_is_none_is_invalid_and_never_clamped(status: str, score: object) -> None:
    reading = read(line(status=status, score=score))
    assert verdict(reading) == ("failed", 0.0, "harbor_result_invalid")
    assert set(reading.payload) == {"status", "score"}


@pytest.mark.parametrize(
    "status", ["Completed", "COMPLETED", "errored", "timed_out", "", "failed "]
)
def test_a_status_of_another_word_is_invalid(status: str) -> None:
    assert verdict(read(line(status=status, score=0.0))) == (
        "failed",
        0.0,
        "harbor_result_invalid",
    )


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"status": "completed"},
        {"score": 1.0},
        {"status": None, "score": 1.0},
        {"status": 1, "score": 1.0},
        {"status": ["completed"], "score": 5},
    ],
)
def test_a_line_without_status_or_score_is_partial(fields: dict[str, object]) -> None:
    reading = read(line(**fields))
    assert verdict(reading) == ("failed", 0.0, "harbor_result_partial")
    assert reading.payload == fields


@pytest.mark.parametrize("score", [0.5, 1, 5e-324])
def test_a_failed_run_with_a_score_is_invalid(score: float) -> None:
    reading = read(line(status="failed", score=score, reason_code="x"))
    assert verdict(reading) == ("failed", 0.0, "harbor_result_invalid")


@pytest.mark.parametrize("score", [0, 0.0, -0.0])
def test_a_failed_run_without_score_keeps_its_reason(score: float) -> None:
    reading = read(line(status="failed", score=score, reason_code="AgentTimeoutError"))
    assert verdict(reading) == ("failed", 0.0, "harbor_agent_timeout_error")
    assert repr(reading.score) == "0.0"


@pytest.mark.parametrize("status", ["completed", "failed"])
@pytest.mark.parametrize(
    ("reason", "code"),
    [
        (None, None),
        ("", None),
        ("  ", None),
        (5, None),
        (["x"], None),
        ("Odd Thing", "odd_thing"),
        ("harbor-nonzero-exit", "harbor_nonzero_exit"),
    ],
)
def test_a_reason_is_normalized_and_kept_even_when_completed(
    status: str, reason: object, code: str | None
) -> None:
    reading = read(line(status=status, score=0.0, reason_code=reason))
    assert verdict(reading) == (status, 0.0, code)


@pytest.mark.parametrize("stdout", ["", "bye", f"[log] {GOOD}", f" {GOOD}", PREFIX[:-1] + "{}"])
def test_without_a_line_that_starts_with_the_prefix_the_result_is_missing(stdout: str) -> None:
    assert read(stdout) == RunReading("failed", 0.0, "harbor_result_missing", {})


@pytest.mark.parametrize("text", ["", "{bad", "[1]", "null", '"x"', "1", "{} {}", "1" * 4301])
def test_a_line_that_is_no_json_object_is_malformed(text: str) -> None:
    reading = read(f"{GOOD}\n{PREFIX}{text}")
    assert reading == RunReading("failed", 0.0, "harbor_result_malformed", {})


def test_a_line_nested_beyond_reason_is_malformed() -> None:
    assert read(PREFIX + "[" * 200_000).reason_code == "harbor_result_malformed"


@pytest.mark.parametrize(
    "end", ["\n", "\r\n", "\r", "\f", "\v", "\u2028", "\u2029", "\x85", "\x1c"]
)
def test_the_last_line_decides_wherever_python_ends_lines(end: str) -> None:
    first = line(status="failed", score=0.0)
    assert read(end.join([first, GOOD, "bye", ""])).score == 0.75
    assert read(end.join([GOOD, first])).status == "failed"


@pytest.mark.parametrize("returncode", [1, 2, -9, 124, 255])
def test_a_non_zero_exit_discards_the_score_and_keeps_the_payload(returncode: int) -> None:
    payload = {"status": "completed", "score": 0.75}
    assert read(GOOD, returncode) == RunReading("failed", 0.0, "harbor_nonzero_exit", payload)


@pytest.mark.parametrize(
    ("stdout", "code"),
    [
        ("", "harbor_nonzero_exit"),
        (PREFIX + "{bad", "harbor_nonzero_exit"),
        (line(reason_code="   "), "harbor_nonzero_exit"),
        (line(reason_code=7), "harbor_nonzero_exit"),
        (line(reason_code="CancelledError"), "harbor_cancelled_error"),
        (line(reason_code="Odd Thing"), "odd_thing"),
    ],
)
def test_a_non_zero_exit_is_explained_by_the_line_if_it_can(stdout: str, code: str) -> None:
    assert verdict(read(stdout, 1)) == ("failed", 0.0, code)


@pytest.mark.parametrize("returncode", [0, 1, -9])
@pytest.mark.parametrize(("stdout", "payload"), [(GOOD, json.loads(GOOD[len(PREFIX) :])), ("", {})])
def test_a_time_out_beats_everything(
    returncode: int, stdout: str, payload: dict[str, object]
) -> None:
    reading = read_run(stdout, returncode, timed_out=True)
    assert reading == RunReading("timed_out", 0.0, "timed_out", payload)
    assert TIMED_OUT == "timed_out"


def test_lines_with_the_older_prefix_are_read_when_asked_for() -> None:
    former = "PLATFORM_BENCHMARK_RESULT="
    older = former + json.dumps({"status": "completed", "score": 0.5})
    assert read(older).reason_code == "harbor_result_missing"
    assert read_run(older, 0, timed_out=False, prefix=former).score == 0.5
