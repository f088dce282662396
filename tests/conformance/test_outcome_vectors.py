"""Replays the golden vectors of the outcome package: every line is one test."""

import base64

import pytest
from _pytest.mark import ParameterSet

from proctor.job.planning import size_concurrency
from proctor.record.outcome import RunReading, read_run, render_line, summarize_result
from proctor.record.reasons import (
    WORD_RULES,
    classify,
    find_word_rule,
    is_known,
    is_retryable,
    normalize_reason,
)
from tests.conformance.vectors import Line, load_lines

# The seed document quotes only these three rules; its `null` means that none of them fits.
QUOTED_RULES = [rule for rule in WORD_RULES if rule.number in {13, 14, 15}]


def params(name: str, label: str) -> list[ParameterSet]:
    return [
        pytest.param(line, id=f"{str(line[label])[:60]}@{number}")
        for number, line in enumerate(load_lines(name), start=1)
    ]


def consumer_params(kind: str) -> list[ParameterSet]:
    lines = [line for line in load_lines("consumer") if line["input"]["kind"] == kind]
    return [pytest.param(line, id=line["id"]) for line in lines]


def reading_facts(reading: RunReading) -> Line:
    return {
        "status": reading.status,
        "score": repr(reading.score),
        "reason_code": reading.reason_code,
        "payload_keys": sorted(reading.payload),
    }


def expected_facts(vector: Line) -> Line:
    facts = {key: vector[key] for key in ("status", "reason_code", "payload_keys")}
    return facts | {"score": repr(vector["score"])}


@pytest.mark.parametrize("vector", consumer_params("result_json"))
def test_a_result_json_gives_the_documented_summary_and_line(vector: Line) -> None:
    encoded = vector["input"]["result_json_b64"]
    summary = summarize_result(None if encoded is None else base64.b64decode(encoded))
    expected = vector["expect"]["ok"]
    assert summary.score.hex() == expected["summary"]["score"]["hex"]
    assert (summary.status, summary.resolved, summary.total, summary.reason_code) == tuple(
        expected["summary"][key] for key in ("status", "resolved", "total", "reason_code")
    )
    assert render_line(summary) == expected["line"]


@pytest.mark.parametrize("vector", consumer_params("reason_code"))
def test_the_documents_three_rules_give_its_reason_codes(vector: Line) -> None:
    match = find_word_rule(vector["input"]["message"], QUOTED_RULES)
    assert (match and match.code) == vector["expect"]["ok"]["reason_code"]


@pytest.mark.parametrize("vector", consumer_params("reason_code"))
def test_a_message_that_no_quoted_rule_fits_becomes_no_reward_code(vector: Line) -> None:
    code = normalize_reason(vector["input"]["message"])
    if vector["expect"]["ok"]["reason_code"] is None:
        assert code not in {rule.code for rule in QUOTED_RULES}
    else:
        assert is_known(code)


def test_consumer_vectors_have_no_other_kinds() -> None:
    kinds = {line["input"]["kind"] for line in load_lines("consumer")}
    assert kinds <= {"result_json", "reason_code"}


@pytest.mark.parametrize("vector", params("reason_code", "input"))
def test_text_becomes_the_reason_code_of_agent_challenge(vector: Line) -> None:
    code = normalize_reason(vector["input"])
    assert code == vector["output"]
    assert is_known(code) is vector["known"]
    assert is_retryable(code, 1) is vector["retryable_attempt1"]
    assert is_retryable(code, 3) is vector["retryable_attempt3"]
    assert classify(vector["input"]) == vector["classified_code"]


@pytest.mark.parametrize("vector", params("result_line", "case"))
def test_an_odd_result_json_gives_the_line_and_its_reader_the_verdict(vector: Line) -> None:
    text = vector["file"]
    data = bytes.fromhex(text) if vector["file_is_hex"] else text.encode()
    line = render_line(summarize_result(data))
    assert line == vector["line"]
    reading = read_run(line, 0, timed_out=False)
    assert reading_facts(reading) == expected_facts(vector["downstream_exit0"])


@pytest.mark.parametrize("vector", params("normalize_result", "case"))
def test_a_finished_run_is_read_as_agent_challenge_reads_it(vector: Line) -> None:
    reading = read_run(vector["stdout"], vector["returncode"], timed_out=vector["timed_out"])
    assert reading_facts(reading) == expected_facts(vector)


SIZED = [param for param in params("score_policy", "fn") if str(param.id).startswith("concurrency")]


@pytest.mark.parametrize("vector", SIZED)
def test_as_many_trials_run_at_once_as_agent_challenge_runs(vector: Line) -> None:
    sizes = ("nproc", "mem_total_kib", "task_cpus", "task_memory_mb", "cap")
    assert size_concurrency(**{size: vector[size] for size in sizes}) == vector["result"]
