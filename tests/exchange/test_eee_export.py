"""Sealed trials as Every Eval Ever has them: one aggregate a group, a row a trial with a score."""

import hashlib
import json
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import given, settings

from proctor.exchange.eee import Group, Key, Source, find_row_losses, make_messages, make_row
from proctor.exchange.exporting import ReadTrace, SelectedTrial
from proctor.traces.entry import Entry
from tests.cli.programs import Proctor
from tests.examples import examples
from tests.exchange.sealed import (
    EXPERIMENT,
    honest_traces,
    lost_of,
    read_lines,
    seal_job,
    sealed_trial,
)
from tests.ledger.trials import open_ledger, seal_files
from tests.traces.atif_values import entry_lists

SOURCE = Source(origin="example.org/x", root="ab" * 32, size=3, taken="1794829957")


def exported(proctor: Proctor, tmp_path: Path, job: str, code: int) -> list[tuple[Any, list[Any]]]:
    """Each aggregate with its rows."""
    with open_ledger(tmp_path) as ledger:
        seal_job(ledger, job)
    options = ("--ledger", tmp_path / "ledger", "--format", "every-eval-ever")
    ran = proctor("export", *options, "-o", tmp_path / "out")
    assert ran.code == code
    aggregates = sorted((tmp_path / "out" / "data").rglob("*.json"))
    return [
        (json.loads(path.read_text()), read_lines(path.with_name(f"{path.stem}_samples.jsonl")))
        for path in aggregates
    ]


def test_each_model_has_an_aggregate_that_vouches_for_its_rows(
    proctor: Proctor, tmp_path: Path
) -> None:
    found = exported(proctor, tmp_path, "14-two-models", 0)
    assert [log["model_info"]["id"] for log, _ in found] == ["acme/model-x", "model-y"]
    for log, rows in found:
        detail = log["detailed_evaluation_results"]
        data = (tmp_path / "out" / detail["file_path"]).read_bytes()
        assert detail["checksum"] == hashlib.sha256(data).hexdigest()
        assert detail["total_rows"] == len(rows) == 6
        assert {row["evaluation_id"] for row in rows} == {log["evaluation_id"]}
        assert log["evaluation_results"][0]["score_details"]["score"] == 1.0
        assert "uncertainty" not in log["evaluation_results"][0]["score_details"]


def test_no_score_is_no_row_and_never_0(proctor: Proctor, tmp_path: Path) -> None:
    ((log, rows),) = exported(proctor, tmp_path, "06-errors-oracle-k1", 3)
    details = log["evaluation_results"][0]["score_details"]
    assert (details["score"], len(rows)) == (1.0, 3)
    counts = {key: details["details"][key] for key in ("trials", "scored", "not_scored")}
    assert counts == {"trials": "9", "scored": "3", "not_scored": "6"}
    assert all(row["evaluation"]["score"] == 1.0 for row in rows)


def test_a_row_leads_to_the_sealed_record(proctor: Proctor, tmp_path: Path) -> None:
    ((_, (row, *_)),) = exported(proctor, tmp_path, "16-agent-nonzero", 0)
    name = f"{row['metadata']['experiment_id']}/{row['metadata']['trial_id']}"
    raw = proctor("show", name, "--raw", "--ledger", tmp_path / "ledger").out
    assert hashlib.sha256(raw.encode()).hexdigest() == row["metadata"]["record_sha256"]
    assert [message["role"] for message in row["messages"]] == [
        "user",
        "assistant",
        "tool",
        "assistant",
    ]
    assert row["messages"][1]["reasoning_trace"] == "simple"
    assert row["evaluation"]["tool_calls_count"] == 1
    lost = lost_of(tmp_path / "out" / "losses.jsonl", name)
    assert "record.timing" not in lost
    assert lost["entries[1].timestamp"] == "there is no place for it"


def test_trials_without_any_score_are_no_export(proctor: Proctor, tmp_path: Path) -> None:
    with open_ledger(tmp_path) as ledger:
        seal_job(ledger, "22-disable-verification")
    ran = proctor(
        *("export", "--ledger", tmp_path / "ledger", "--format", "every-eval-ever"),
        *("-o", tmp_path / "out"),
    )
    assert ran.code == 2
    assert "not scored" in ran.err
    assert not (tmp_path / "out").exists()


def test_a_restarted_attempt_and_a_score_without_a_number_have_no_row(
    proctor: Proctor, tmp_path: Path
) -> None:
    with open_ledger(tmp_path) as ledger:
        seal_files(ledger, "a.attempt-1", {}, **{"evaluation.reward": 1.0})
        for name, reward in {"a": 0.0, "b": 1.0}.items():
            seal_files(ledger, name, {}, **{"evaluation.reward": reward})
        several = {"evaluation.reward": None, "evaluation.breakdown": {"x": 1, "y": 0}}
        seal_files(ledger, "c", {}, **several)
    ran = proctor(
        *("export", "--ledger", tmp_path / "ledger", "--format", "every-eval-ever"),
        *("-o", tmp_path / "out"),
    )
    assert f"left out: {EXPERIMENT}/a.attempt-1: restarted; another trial counts" in ran.out
    assert f"left out: {EXPERIMENT}/c: without a number, and a row must have a score" in ran.out
    (path,) = (tmp_path / "out" / "data").rglob("*.json")
    details = json.loads(path.read_text())["evaluation_results"][0]["score_details"]
    assert details["score"] == 0.5
    counts = ("trials", "scored", "not_scored", "no_number")
    assert [details["details"][name] for name in counts] == ["3", "3", "0", "1"]


def test_what_another_trial_stands_in_for_does_not_count(proctor: Proctor, tmp_path: Path) -> None:
    with open_ledger(tmp_path, "a", "b") as ledger:
        first, second = ledger.find("a"), ledger.find("b")
        ledger.supersede(first, second, "infrastructure", reason="the disk was full", author="ana")
    out = tmp_path / "out"
    ran = proctor(
        "export", "--ledger", Path(ledger.where), "--format", "every-eval-ever", "-o", out
    )
    assert ran.code == 3
    assert f"left out: {EXPERIMENT}/a: superseded" in ran.out
    (samples,) = out.rglob("*_samples.jsonl")
    assert [row["metadata"]["trial_id"] for row in read_lines(samples)] == ["b"]


def test_names_that_no_system_takes_become_others() -> None:
    key = Key("data", None, "a", None, "NUL/../x:free", "harbor", "0.13.1", None)
    (data, collection, developer, model) = Group(key, SOURCE).folder.split("/")
    assert data == "data"
    assert collection.startswith("data-")
    assert developer.startswith("NUL-")
    assert (model.startswith("_"), ".." in model.split("_")) == (False, False)


def lost_fields(trial: SelectedTrial, entries: list[Entry]) -> set[str]:
    """The fields of entries that a row does not give back."""
    trace = ReadTrace("", entries, [])
    messages = make_messages([trace])
    told = trial.document()
    row = make_row(trial, told, 1.0, messages) | {"model_id": trial.record.agent.model}
    losses = find_row_losses(msgspec.json.encode(row), told, [trace], messages)
    return {each.path.split(".")[1] for each in losses if each.path.startswith("entries[")}


def test_an_honest_trace_loses_only_what_messages_have_no_place_for(tmp_path: Path) -> None:
    trial = sealed_trial(tmp_path)

    @settings(max_examples=examples(30), deadline=None)
    @given(honest_traces())
    def check(entries: list[Entry]) -> None:
        no_place = {"timestamp", "stderr", "exit_code", "duration_ms"}
        assert lost_fields(trial, entries) <= no_place

    check()


def test_any_trace_becomes_messages_in_order(tmp_path: Path) -> None:
    trial = sealed_trial(tmp_path)

    @settings(max_examples=examples(30), deadline=None)
    @given(entry_lists())
    def check(entries: list[Entry]) -> None:
        messages = make_messages([ReadTrace("", entries, [])])
        assert [each.body["turn_idx"] for each in messages] == list(range(len(messages)))
        places = [at for each in messages for at in (each.said, *each.calls) if at is not None]
        assert sorted(places) == list(range(len(entries))), "every entry is in one message"
        lost_fields(trial, entries)

    check()
