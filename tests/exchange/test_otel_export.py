"""Sealed trials as OpenTelemetry spans: which spans there are, and that nothing goes in silence."""

import json
from io import BytesIO
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import given, settings

from proctor.exchange.exporting import ReadTrace, SelectedTrial
from proctor.exchange.otel import write_trial
from proctor.exchange.otel_spans import TrialSpans
from proctor.traces.entry import Entry
from tests.cli.programs import Proctor
from tests.examples import examples
from tests.exchange.sealed import (
    ATIF,
    EXPERIMENT,
    STEPS,
    TRAJECTORY,
    honest_traces,
    lost_of,
    read_lines,
    seal_job,
    sealed_trial,
    small_ledger,
    trajectory,
)
from tests.ledger.trials import open_ledger
from tests.traces.atif_values import entry_lists


def exported(proctor: Proctor, tmp_path: Path, ledger: Path) -> list[list[dict[str, Any]]]:
    """The spans of each trial, that of the trial itself first."""
    ran = proctor("export", "--ledger", ledger, "--format", "otel", "-o", tmp_path / "out.jsonl")
    assert (ran.code, ran.err) == (0, "")
    lines = read_lines(tmp_path / "out.jsonl")
    found = [line["resourceSpans"][0]["scopeSpans"][0]["spans"] for line in lines]
    return [sorted(spans, key=lambda span: "parentSpanId" in span) for spans in found]


def attributes(thing: dict[str, Any]) -> dict[str, Any]:
    """The attributes of a span or an event, each as its text or number."""
    found = thing["attributes"]
    return {each["key"]: next(iter(each["value"].values())) for each in found}


def test_a_trial_is_a_span_with_its_turns_and_tools_below(proctor: Proctor, tmp_path: Path) -> None:
    ledger = small_ledger(tmp_path, {"a": {TRAJECTORY: trajectory()}})
    ((root, first, tool, second),) = exported(proctor, tmp_path, ledger)
    assert root["name"].startswith("invoke_agent ")
    assert [span["name"].split()[0] for span in (first, tool, second)] == [
        "chat",
        "execute_tool",
        "chat",
    ]
    assert {span["parentSpanId"] for span in (first, tool, second)} == {root["spanId"]}
    assert (len(root["traceId"]), len(root["spanId"])) == (32, 16)
    assert tool["status"] == {"code": 2, "message": "exit code 2"}
    assert "status" not in first
    assert attributes(tool)["process.exit.code"] == "2", "64-bit numbers are texts"
    took = int(tool["endTimeUnixNano"]) - int(tool["startTimeUnixNano"])
    assert took == 2_000_000_000
    said = json.loads(attributes(first)["gen_ai.output.messages"])[0]
    assert [part["type"] for part in said["parts"]] == ["text", "tool_call"]
    asked = json.loads(attributes(second)["gen_ai.input.messages"])
    assert [message["role"] for message in asked] == ["tool"], "only what is new to the model"


def test_the_score_is_an_event_and_no_score_is_never_0(proctor: Proctor, tmp_path: Path) -> None:
    with open_ledger(tmp_path) as ledger:
        seal_job(ledger, "12-nan-oracle")
    spans = exported(proctor, tmp_path, tmp_path / "ledger")
    scores = {
        attributes(root)["proctor.task.id"]: attributes(root["events"][0]) for root, *_ in spans
    }
    assert scores["plain-one"]["gen_ai.evaluation.score.value"] == 1.0
    assert scores["nan-reward"] == {
        "gen_ai.evaluation.name": "reward",
        "gen_ai.evaluation.score.label": "not_scored",
    }


def test_every_key_of_a_reward_is_an_event(proctor: Proctor, tmp_path: Path) -> None:
    with open_ledger(tmp_path) as ledger:
        seal_job(ledger, "10-multistep-oracle-mounted")
    spans = exported(proctor, tmp_path, tmp_path / "ledger")
    (root,) = next(each for each in spans if attributes(each[0])["proctor.task.id"] == "ms-mean")
    names = [attributes(event)["gen_ai.evaluation.name"] for event in root["events"]]
    assert sorted(names) == ["part1", "part3", "reward"]


def test_what_harbor_says_of_tokens_stands_where_it_belongs(
    proctor: Proctor, tmp_path: Path
) -> None:
    with open_ledger(tmp_path) as ledger:
        (trial, *_) = seal_job(ledger, "04-binary-scripted-k5")
    (root, chat, *_), *_ = exported(proctor, tmp_path, tmp_path / "ledger")
    used = json.loads((trial / ATIF).read_text())["steps"][1]["metrics"]
    assert attributes(chat)["gen_ai.usage.input_tokens"] == str(used["prompt_tokens"])
    assert attributes(root)["gen_ai.provider.name"] == "acme"
    lost = lost_of(tmp_path / "out.jsonl.losses.jsonl", f"job-04/{trial.name}")
    assert lost["evidence"] == "there is no place for it"
    assert "entries[1].thought" not in lost
    assert "record.cost.tokens_in" not in lost


def test_what_does_not_say_when_stands_in_order(proctor: Proctor, tmp_path: Path) -> None:
    timeless = [{key: value for key, value in step.items() if key != "timestamp"} for step in STEPS]
    ledger = small_ledger(tmp_path, {"a": {TRAJECTORY: trajectory(*timeless)}})
    ((root, *rest),) = exported(proctor, tmp_path, ledger)
    assert {span["startTimeUnixNano"] for span in rest} == {root["startTimeUnixNano"]}
    lost = lost_of(tmp_path / "out.jsonl.losses.jsonl", f"{EXPERIMENT}/a")
    assert "have no time of their own" in lost["entries"]


def lost_fields(trial: SelectedTrial, entries: list[Entry]) -> set[str]:
    """The fields of entries that spans do not give back."""
    losses = write_trial(BytesIO(), trial, [ReadTrace("", entries, [])])
    return {loss.path.split(".")[1] for loss in losses if loss.path.startswith("entries[")}


def test_an_honest_trace_comes_back_whole(tmp_path_factory: Any) -> None:
    trial = sealed_trial(tmp_path_factory.mktemp("ledger"))

    @settings(max_examples=examples(30), deadline=None)
    @given(honest_traces())
    def check(entries: list[Entry]) -> None:
        assert lost_fields(trial, entries) == set()

    check()


def test_any_trace_becomes_spans_with_a_time_and_an_id_each(tmp_path_factory: Any) -> None:
    trial = sealed_trial(tmp_path_factory.mktemp("ledger"))

    @settings(max_examples=examples(30), deadline=None)
    @given(entry_lists())
    def check(entries: list[Entry]) -> None:
        spans = list(TrialSpans(trial, [ReadTrace("", entries, [])]))
        assert len({span.span_id for span in spans}) == len(spans)
        for span in spans:
            assert 0 <= int(span.start_time_unix_nano) <= int(span.end_time_unix_nano) < 1 << 63
        assert msgspec.json.encode(spans)
        lost_fields(trial, entries)

    check()
