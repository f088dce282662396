"""Replays the golden vectors of the outcome package: every line is one test."""

import base64
import json

import pytest
from _pytest.mark import ParameterSet

from proctor import errors
from proctor.job.planning import size_concurrency
from proctor.record.outcome import RunReading, read_run, render_line, summarize_result
from proctor.record.policy import (
    Keep,
    aggregate_trials,
    job_score,
    keep_scores,
    parse_aggregation,
    parse_keep_policy,
)
from proctor.record.reasons import (
    WORD_RULES,
    classify,
    find_word_rule,
    is_known,
    is_retryable,
    normalize_reason,
)
from proctor.record.score_record import (
    check_score_record,
    make_score_record,
    parse_score_record,
    parse_scoring_policy,
    render_f64be,
    render_score_record,
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


@pytest.mark.parametrize("vector", params("score_policy", "fn"))
def test_a_policy_gives_the_scores_of_agent_challenge(vector: Line) -> None:
    replays = {
        "keep": replay_keep,
        "per_task": replay_per_task,
        "concurrency": replay_concurrency,
        "score_record": replay_score_record,
        "f64be": replay_f64be,
    }
    replay = replays[vector["fn"]]
    if "error" in vector:
        with pytest.raises(getattr(errors, vector["error"])):
            replay(vector)
    else:
        replay(vector)


def replay_keep(vector: Line) -> None:
    keep = Keep(
        parse_keep_policy(vector["policy"]),
        drop_lowest_n=vector.get("drop_lowest_n", 0),
        threshold=vector.get("threshold", 0.0),
    )
    assert repr(keep_scores(vector["scores"], keep)) == repr(vector["kept"])
    assert repr(job_score(vector["scores"], keep)) == repr(vector["job"])


def replay_per_task(vector: Line) -> None:
    score = aggregate_trials(vector["trials"], parse_aggregation(vector["mode"]))
    assert repr(score) == repr(vector["result"])


def replay_concurrency(vector: Line) -> None:
    sizes = ("nproc", "mem_total_kib", "task_cpus", "task_memory_mb", "cap")
    assert size_concurrency(**{size: vector[size] for size in sizes}) == vector["result"]


def replay_f64be(vector: Line) -> None:
    try:
        found = render_f64be(float(vector["value"]))
    except errors.ScoreRecordError as error:
        found = f"ERR {error}"
    assert found == vector["result"]


def replay_score_record(vector: Line) -> None:
    policy = parse_scoring_policy(json.dumps(vector["policy"]).encode())
    expected = vector["record"]
    record = make_score_record(expected["eval_run_id"], policy, vector["trials"])
    assert policy.digest == vector["policy_digest"]
    assert record.document == expected
    assert record.digest == vector["record_digest"]
    assert render_score_record(record).decode() == vector["canonical"]
    assert parse_score_record(json.dumps(expected).encode()) == record
    check_score_record(record, policy)
