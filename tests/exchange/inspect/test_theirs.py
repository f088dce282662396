"""Logs that the real inspect_ai wrote: every sample is read as Inspect itself reads it."""

from pathlib import Path
from typing import Any

import pytest

from proctor.ledger.sealing import Submission
from tests.exchange.inspect.logs import entries_of, find, record_of, submit

type Reading = dict[str, dict[str, Any]]
TASKS = ("grades", "tools", "errors", "limits")
UNSCORED = {"rubbish", "nan", "list", "two-parts"}


@pytest.fixture(params=["eval", "json"])
def form(request: pytest.FixtureRequest) -> str:
    """The form of the logs."""
    found: str = request.param
    return found


def find_log(logs: Path, form: str, task: str) -> Path:
    (path,) = (logs / form / task).glob(f"*.{form}")
    return path


def by_sample(trials: list[Submission]) -> dict[tuple[Any, int], Submission]:
    said = [(record_of(trial)["outputs"]["agent_result"], trial) for trial in trials]
    return {(result["sample_id"], result["epoch"]): trial for result, trial in said}


@pytest.mark.parametrize("task", TASKS)
def test_every_sample_is_read_as_inspect_reads_it(
    real_logs: Path, their_reading: Reading, form: str, task: str
) -> None:
    path = find_log(real_logs, form, task)
    theirs = their_reading[str(path)]
    ours = by_sample(submit(path))
    assert set(ours) == {(each["id"], each["epoch"]) for each in theirs["samples"]}
    for sample in theirs["samples"]:
        trial = ours[sample["id"], sample["epoch"]]
        record = record_of(trial)
        assert record["agent"]["model"] == theirs["model"]
        assert record["dataset_id"].partition("@")[0] == theirs["task"]
        assert record["outputs"]["agent_result"]["eval_id"] == theirs["eval_id"]
        assert record["timing"]["total_seconds"] == sample["total_time"]
        assert record["outputs"]["agent_output"]["error_message"] == sample["error"]
        assert (record["evaluation"]["breakdown"] or {}) == sample["scores"]
        if sample["usage"]:
            cost = record["cost"]
            assert cost["tokens_in"] + cost["tokens_out"] == sum(sample["usage"].values())
        answer = trial.attached.get("output.md", b"").decode()
        assert answer == (sample["answer"] if sample["answer"].strip() else "")
        check_trace(entries_of(trial), sample["messages"])


def check_trace(entries: list[dict[str, Any]], messages: list[dict[str, Any]]) -> None:
    """The entries are Inspect's messages, with their calls and results."""
    said = [each for each in entries if each["role"] in ("system", "user", "assistant")]
    expected = [each for each in messages if each["role"] != "tool"]
    assert [(each["role"], each["content"]) for each in said] == [
        (each["role"], each["text"]) for each in expected
    ]
    called = [each for each in entries if each["role"] == "tool_call"]
    assert [(each["tool_name"], each["arguments"]) for each in called] == [
        (name, arguments) for each in messages for _, name, arguments in each["calls"]
    ]
    results = [each for each in entries if each["role"] == "tool_result"]
    answers = [each for each in messages if each["role"] == "tool"]
    assert [each["stdout"] for each in results] == [each["text"] for each in answers]
    for result, answer in zip(results, answers, strict=True):
        beside = result["metadata"]["conversation"]
        assert beside["call_id"] == answer["answers"]
        assert beside.get("is_error", False) == (answer["error"] is not None)
    for each in (*[each for each in said if each["role"] == "assistant"], *results):
        assert each["timestamp"]


def test_values_become_the_numbers_that_inspects_metrics_use(
    real_logs: Path, their_reading: Reading, form: str
) -> None:
    path = find_log(real_logs, form, "grades")
    theirs = their_reading[str(path)]
    ours = by_sample(submit(path))
    assert len(ours) == 28
    for sample in theirs["samples"]:
        trial = ours[sample["id"], sample["epoch"]]
        reward = record_of(trial)["evaluation"]["reward"]
        if sample["id"] in UNSCORED:
            # Inspect counts most of these as 0.
            assert (reward, trial.reason_code) == (None, "harbor_reward_parse_error")
        elif isinstance(sample["scores"]["first"], dict):
            assert reward == {"one-part": 1, "rewarded": 0.5}[sample["id"]]
        else:
            assert reward == sample["numbers"]["first"]
    for trial in submit(path, scorer="second"):
        record = record_of(trial)
        assert record["evaluation"]["reward"] == record["outputs"]["agent_result"]["epoch"]
    parts = by_sample(submit(path, scorer="first:y"))
    assert record_of(parts["two-parts", 1])["evaluation"]["reward"] == 0


def test_errors_and_limits_are_those_of_inspect(real_logs: Path, form: str) -> None:
    errors = by_sample(submit(find_log(real_logs, form, "errors")))
    codes = {name: trial.reason_code for (name, _), trial in errors.items()}
    assert codes == {"good": None, "bad": "harbor_trial_failed", "dir/odd näme": None}
    (limited,) = submit(find_log(real_logs, form, "limits"))
    record = record_of(limited)
    assert record["outputs"]["agent_result"]["limit"] == {"type": "message", "limit": 7}
    assert record["outputs"]["agent_output"]["status"] == "partial"
    assert record["evaluation"]["reward"] == 1


def test_the_two_forms_give_the_same_traces(real_logs: Path) -> None:
    packed, plain = (
        by_sample(submit(find_log(real_logs, form, "tools"))) for form in ("eval", "json")
    )
    for key, trial in packed.items():
        texts = [
            [(each["role"], each.get("content"), each.get("stdout")) for each in entries_of(one)]
            for one in (trial, plain[key])
        ]
        assert texts[0] == texts[1]


def test_a_log_whose_header_is_not_written_yet_gives_the_same_trials(real_logs: Path) -> None:
    before, after = submit(real_logs / "begun.eval"), submit(find_log(real_logs, "eval", "tools"))
    assert [(each.record, each.attached) for each in before] == [
        (each.record, each.attached) for each in after
    ]


def test_what_failed_or_was_cancelled_says_so(real_logs: Path) -> None:
    found = find(real_logs)
    (begun,) = [note for note in found.notes if "begun.eval" in note]
    assert "its status is started; it may lack samples" in begun
    (cancelled,) = [note for note in found.notes if "cancelled.eval" in note]
    assert "no samples in it; its status is cancelled" in cancelled
    (failed,) = [note for note in found.notes if "/failed/" in note]
    assert "its status is error" in failed
