"""aec-bench's classification, apart from its model: turns, answers, scores and summary.

Where it crashes, our own answer is pinned: `MENDED` says which and why.
"""

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from proctor.traces.behaviour import LabelledRun, count_transitions
from proctor.traces.compat_labels import (
    average_matrix,
    find_ideal_sequence,
    make_matrix,
    score_run,
    summarise,
    summarise_confidence,
)
from proctor.traces.entry import Entry
from tests.conformance.aec_turns import (
    AnswerError,
    CompatTurn,
    build_from_entries,
    build_from_rows,
    parse_answer,
    plan_batches,
)
from tests.conformance.vectors import Line, line_params

TASK = "electrical/voltage-drop/au-office-fitout"
"""The task of every record in the vectors."""
MENDED = {
    "load_header_line": "a header is no entry; its reader of the first generation knew that too",
    "struct_no_reference": "without a reference there is no matrix, and no error either",
    "classify_second_batch_malformed_aborts_trace": "the labels of the first batch are kept",
    "load_conversation_missing_file_error": "which file is read is not decided here",
}


def turns_of(vector: Line) -> list[CompatTurn]:
    rows = vector["trajectory"]
    if rows is None:
        return build_from_rows(vector["inputs"]["conversation"])
    entries = [msgspec.convert(row, Entry) for row in rows if "format" not in row]
    return build_from_entries(entries)


def check_load(vector: Line) -> None:
    if "conversation_missing_file" in vector["inputs"]:
        assert vector["name"] in MENDED
        return
    expected = vector["output"]
    if "error_type" in expected:
        assert vector["name"] in MENDED
        expected = vector["output_docs_era"]
    assert {"turns": msgspec.to_builtins(turns_of(vector))} == expected


def check_parse(vector: Line) -> None:
    asked = vector["inputs"]["response"], vector["inputs"]["expected_indices"]
    if "error_type" in vector["output"]:
        with pytest.raises(AnswerError):
            parse_answer(*asked)
        return
    found = {"classifications": msgspec.to_builtins(parse_answer(*asked))}
    assert found == vector["output"]


def check_classify(vector: Line) -> None:
    inputs, output = vector["inputs"], vector["output"]
    sizes = [inputs["batch_size"]] if "batch_size" in inputs else []
    batches = plan_batches(turns_of(vector), *sizes)
    told = [
        {"classify": each["classify"], "context": each["context"]} for each in output["batches"]
    ]
    assert msgspec.to_builtins(batches) == told
    labels, n_bad = [], 0
    for batch, answer in zip(batches, inputs["llm_responses"], strict=True):
        try:
            labels += parse_answer(answer, batch.classify)
        except AnswerError:
            n_bad += 1
    if "error_type" in output:
        assert vector["name"] in MENDED
        assert (len(labels), n_bad) == (5, 1)
    else:
        assert msgspec.to_builtins(labels) == output["classifications"]


def check_structural(vector: Line) -> None:
    output = vector["output"]
    runs = [
        LabelledRun(
            trial=each["trace_id"], task=None, reward=each["reward"], labels=tuple(each["bonds"])
        )
        for each in vector["inputs"]["traces"]
    ]
    found: dict[str, Any] = {
        "matrices": {run.trial: make_matrix(run.labels) for run in runs},
        "counts": {run.trial: count_transitions(run.labels) for run in runs},
        "ideal_sequence": find_ideal_sequence(runs),
    }
    average = average_matrix(runs)
    if average is None:
        assert vector["name"] in MENDED
        output = {key: value for key, value in output.items() if key != "ideal_matrix_error"}
    else:
        found["ideal_matrix"] = average
        found["scores"] = {
            run.trial: score_run(run.labels, average, found["ideal_sequence"]) for run in runs
        }
    check_close(found, output)


def check_confidence(vector: Line) -> None:
    inputs = vector["inputs"]
    found = summarise_confidence(inputs["trace_confidences"], inputs["total_trials"])
    check_close(found, vector["output"])


def check_experiment(vector: Line) -> None:
    inputs = vector["inputs"]
    trials = [
        LabelledRun(
            trial=record["trial_id"],
            task=TASK,
            reward=record["reward"],
            labels=tuple(label for label, _ in inputs["labels"][record["trial_id"]]),
            confidences=tuple(sure for _, sure in inputs["labels"][record["trial_id"]]),
        )
        for record in inputs["records"]
    ]
    check_close(summarise(trials), vector["output"])


def check_close(found: object, expected: object) -> None:
    """Equal, numbers within 1e-6, and in the same order."""
    plain = json.loads(json.dumps(msgspec.to_builtins(found)))
    _check_close(plain, expected)


def _check_close(found: Any, expected: Any) -> None:
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for key, value in expected.items():
            _check_close(found[key], value)
    elif isinstance(expected, list):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            _check_close(one, other)
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, abs=1e-6)
    else:
        assert found == expected


CHECKS: dict[str, Callable[[Line], None]] = {
    "load": check_load,
    "parse": check_parse,
    "classify": check_classify,
    "structural": check_structural,
    "confidence": check_confidence,
    "experiment": check_experiment,
}


@pytest.mark.parametrize("vector", line_params("trace_classification"))
def test_the_classification_of_a_vector_is_reproduced(vector: Line) -> None:
    CHECKS[vector["kind"]](vector)


def test_a_null_where_it_crashes_is_no_call() -> None:
    [turn] = build_from_rows([{"role": "assistant", "content": "a", "tool_calls": None}])
    assert turn.tool_calls == []


@pytest.mark.parametrize("answer", ["```json\n[1]\n```", '{"classifications": null}'])
def test_answers_at_which_it_crashes_are_unreadable(answer: str) -> None:
    with pytest.raises(AnswerError):
        parse_answer(answer, [1])
