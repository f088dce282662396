"""Sealed trials as logs of Inspect, and back."""

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from proctor.exchange.exporting import ReadTrace, SelectedTrial, read_traces
from proctor.exchange.inspect.conversion import make_sample, make_sample_id
from proctor.exchange.inspect.reading import parse_sample
from proctor.exchange.inspect.sample import read_entries
from proctor.ledger.api import Ledger
from proctor.ledger.query import list_trials
from proctor.ledger.traced_trials import trace_row
from proctor.traces.entry import Entry
from tests.cli.programs import Proctor
from tests.examples import examples
from tests.exchange.inspect import logs
from tests.exchange.sealed import (
    EXPERIMENT,
    TRAJECTORY,
    honest_traces,
    lost_of,
    seal_job,
    sealed_trial,
    small_ledger,
    trajectory,
    tree_of,
)
from tests.ledger.trials import open_ledger
from tests.traces.atif_values import entry_lists


def export(proctor: Proctor, ledger: Path, out: Path, code: int = 0) -> list[Path]:
    """The logs of an export."""
    ran = proctor("export", "--format", "inspect", "--ledger", ledger, "-o", out)
    assert ran.code == code, ran.err
    return sorted(out.glob("*.eval"))


def read_log(path: Path) -> tuple[Any, dict[str, Any]]:
    """The header of a log, and its samples by the name of their member."""
    with zipfile.ZipFile(path) as archive:
        names = [name for name in archive.namelist() if name.startswith("samples/")]
        header = json.loads(archive.read("header.json"))
        return header, {name: json.loads(archive.read(name)) for name in names}


def facts_of(directory: Path) -> dict[tuple[str, str], Any]:
    """What a ledger says of each trial: task, agent, model, reward, reason and trace."""
    found = {}
    with Ledger.open(directory) as ledger:
        for row in list_trials(ledger):
            entry = ledger.entry(row.seq)
            traced = trace_row(ledger, row)
            assert traced.record is not None
            trial = SelectedTrial(row, entry, traced.record, traced)  # type: ignore[arg-type]
            entries = [each for trace in read_traces(trial) for each in trace.entries]
            record = traced.record
            found[row.experiment_id, row.trial_id] = (
                *(record.task, record.agent, record.dataset_id, record.evaluation.reward),
                *(row.reason_code, record.cost, record.timing, entries),
            )
    return found


def test_a_job_becomes_a_log_for_each_model(proctor: Proctor, tmp_path: Path) -> None:
    with open_ledger(tmp_path) as ledger:
        seal_job(ledger, "14-two-models")
    found = [read_log(path) for path in export(proctor, tmp_path / "ledger", tmp_path / "out")]
    assert sorted(header["eval"]["model"] for header, _ in found) == ["acme/model-x", "model-y"]
    for header, samples in found:
        assert header["results"]["total_samples"] == len(samples) == 6
        (score,) = header["results"]["scores"]
        assert (score["name"], score["metrics"]["mean"]["value"]) == ("reward", 1.0)
        for name, sample in samples.items():
            assert name == f"samples/{sample['id']}_epoch_{sample['epoch']}.json"


def test_no_score_is_an_error_with_the_reason_and_never_0(proctor: Proctor, tmp_path: Path) -> None:
    with open_ledger(tmp_path) as ledger:
        seal_job(ledger, "06-errors-oracle-k1")
    (path,) = export(proctor, tmp_path / "ledger", tmp_path / "out")
    header, samples = read_log(path)
    (score,) = header["results"]["scores"]
    assert (score["scored_samples"], score["unscored_samples"]) == (3, 6)
    unscored = [sample for sample in samples.values() if "scores" not in sample]
    assert len(unscored) == 6
    assert all(sample["error"]["message"].startswith("harbor_") for sample in unscored)


def test_export_and_import_give_the_same_trials(proctor: Proctor, tmp_path: Path) -> None:
    with open_ledger(tmp_path) as ledger:
        for job in ("06-errors-oracle-k1", "14-two-models", "16-agent-nonzero", "17-agent-hang"):
            seal_job(ledger, job)
    logs_ = export(proctor, tmp_path / "ledger", tmp_path / "out")
    new = ("--ledger", tmp_path / "new")
    ran = proctor("import", "inspect", tmp_path / "out", *new)
    assert (ran.code, len(logs_) > 3) == (0, True)
    before, after = facts_of(tmp_path / "ledger"), facts_of(tmp_path / "new")
    assert set(before) == set(after)
    for name, facts in before.items():
        assert after[name] == facts, name
    again = proctor("import", "inspect", tmp_path / "out", *new)
    assert (again.code, " 0 imported" in again.out) == (0, True)


def test_attempts_at_a_task_are_epochs(proctor: Proctor, tmp_path: Path) -> None:
    ledger = small_ledger(tmp_path, {name: {TRAJECTORY: trajectory()} for name in "abc"})
    (path,) = export(proctor, ledger, tmp_path / "out")
    header, samples = read_log(path)
    assert sorted(sample["epoch"] for sample in samples.values()) == [1, 2, 3]
    assert (header["eval"]["config"], header["eval"]["dataset"]["samples"]) == ({"epochs": 3}, 1)


def test_the_loss_report_names_the_evidence(proctor: Proctor, tmp_path: Path) -> None:
    ledger = small_ledger(tmp_path, {"a": {TRAJECTORY: trajectory()}})
    export(proctor, ledger, tmp_path / "out")
    lost = lost_of(tmp_path / "out" / "losses.jsonl", f"{EXPERIMENT}/a")
    assert lost == {"evidence": "the log has their digests, not their bytes"}


def test_the_same_ledger_gives_the_same_bytes(proctor: Proctor, tmp_path: Path) -> None:
    ledger = small_ledger(tmp_path, {name: {TRAJECTORY: trajectory()} for name in "ab"})
    for name in ("one", "two"):
        export(proctor, ledger, tmp_path / name)
    assert tree_of(tmp_path / "one") == tree_of(tmp_path / "two")


def test_an_imported_log_comes_out_with_the_bytes_that_were_sealed(
    proctor: Proctor, tmp_path: Path
) -> None:
    samples = [logs.make_sample("a"), logs.make_sample("a", 2), logs.make_sample(3, scores=None)]
    path = logs.write_archive(tmp_path / "a.eval", *samples)
    options = ("--ledger", tmp_path / "ledger")
    assert proctor("import", "inspect", path, *options).code == 0
    (out,) = export(proctor, tmp_path / "ledger", tmp_path / "out")
    with zipfile.ZipFile(out) as after:
        for trial, name in zip(
            logs.submit(path), ("a_epoch_1", "a_epoch_2", "3_epoch_1"), strict=True
        ):
            assert after.read(f"samples/{name}.json") == trial.attached["inspect_sample.json"]
        header = json.loads(after.read("header.json"))
        summaries = json.loads(after.read("summaries.json"))
    assert header["eval"].items() >= logs.EVAL.items()
    assert [(each["id"], each["epoch"]) for each in summaries] == [("a", 1), ("a", 2), (3, 1)]
    again = proctor("import", "inspect", out, *options)
    assert "3 samples found: 0 imported, 3 already there, 0 refused" in again.out


def test_a_superseded_trial_is_left_out(proctor: Proctor, tmp_path: Path) -> None:
    with open_ledger(tmp_path, "a", "b") as ledger:
        first, second = ledger.find("a"), ledger.find("b")
        ledger.supersede(first, second, "infrastructure", reason="the disk was full", author="ana")
    (path,) = export(proctor, tmp_path / "ledger", tmp_path / "out", code=3)
    _, samples = read_log(path)
    assert [sample["metadata"]["trial"] for sample in samples.values()] == [f"{EXPERIMENT}/b"]


def test_a_restarted_attempt_is_left_out_whatever_is_selected(
    proctor: Proctor, tmp_path: Path
) -> None:
    with open_ledger(tmp_path, "a.attempt-1", "a", "alone.attempt-1"):
        pass
    (path,) = export(proctor, tmp_path / "ledger", tmp_path / "out", code=3)
    _, samples = read_log(path)
    names = {sample["metadata"]["trial"] for sample in samples.values()}
    assert names == {f"{EXPERIMENT}/a", f"{EXPERIMENT}/alone.attempt-1"}
    ran = proctor(
        *("export", "--ledger", tmp_path / "ledger", "--format", "inspect"),
        *("--where", "trial=a.attempt-1", "-o", tmp_path / "one"),
    )
    assert ran.code == 2
    assert "a.attempt-1: restarted" in ran.err


def test_no_more_files_are_open_than_a_process_may_have(proctor: Proctor, tmp_path: Path) -> None:
    path = tmp_path / "logs"
    path.mkdir()
    for number in range(40):
        given_ = {**logs.EVAL, "eval_id": f"Ev{number}"}
        header = {**logs.HEADER, "eval": given_}
        logs.write_archive(path / f"{number}.eval", logs.make_sample(1), header=header)
        logs.write_archive(path / f"{number}b.eval", logs.make_sample(2), header=header)
    options = ("--ledger", tmp_path / "ledger")
    assert proctor("import", "inspect", path, *options).code == 0
    found = export(proctor, tmp_path / "ledger", tmp_path / "out")
    assert len(found) == 40
    assert all(len(read_log(each)[1]) == 2 for each in found)


def test_tasks_that_are_no_plain_names_become_others() -> None:
    assert make_sample_id("org/task") == "org/task"
    for task in ("../x", "/etc/x", "a\\b", "a\x1bb", "x" * 300, "a/../b"):
        assert "/" not in make_sample_id(task)


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory) -> SelectedTrial:
    """A sealed trial without a trace."""
    return sealed_trial(tmp_path_factory.mktemp("sealed"))


@settings(max_examples=examples(100))
@given(entries=honest_traces() | entry_lists())
def test_every_entry_comes_back(trial: SelectedTrial, entries: list[Entry]) -> None:
    sample = make_sample(trial, {"record": {}}, [ReadTrace("", entries, [])], 1)
    assert read_entries(parse_sample(json.dumps(sample).encode(), ""), []) == entries
