"""Which trace a trial is looked at by, in a directory and in a ledger."""

import json
import shutil
from pathlib import Path

import pytest

from proctor.errors import InputError, LedgerError
from proctor.exchange.submission import SealOptions, find_submissions
from proctor.exchange.traced_files import find_in_files
from proctor.ledger.ledger import OpenLedger
from proctor.ledger.sealing import seal
from proctor.ledger.traced_trials import trace_named, trace_sealed
from proctor.ledger.trial_index import TrialFilter
from proctor.traces.entry import TraceKind
from proctor.traces.traced_trial import TracedTrial, opened_traces
from tests.ledger.ledgers import make_ledger
from tests.task.trees import JOBS

ENTRY = '{"step": 1, "role": "assistant", "content": "x"}\n'
SAID = '{"role": "assistant", "content": "x"}\n'


@pytest.fixture
def trial(tmp_path: Path) -> Path:
    """A harbor trial whose trace is an ATIF file."""
    (original,) = sorted((JOBS / "16-agent-nonzero").glob("pass-simple__*"))
    copy = tmp_path / "job" / original.name
    shutil.copytree(original, copy)
    return copy


def used_of(trial: TracedTrial) -> list[tuple[str, TraceKind, str]]:
    with opened_traces(trial) as found:
        return [(each.part, each.kind, each.name) for each in found]


def test_the_atif_file_is_used_where_there_is_nothing_else(trial: Path) -> None:
    (found,) = find_in_files(str(trial))
    assert used_of(found) == [("", TraceKind.ATIF, "agent/trajectory.json")]


def test_a_conversation_goes_before_atif_and_a_trajectory_before_both(trial: Path) -> None:
    (trial / "agent" / "conversation.jsonl").write_text(SAID)
    (found,) = find_in_files(str(trial))
    assert used_of(found) == [("", TraceKind.CONVERSATION, "agent/conversation.jsonl")]
    (trial / "agent" / "trajectory.jsonl").write_text(ENTRY)
    (found,) = find_in_files(str(trial))
    assert used_of(found) == [("", TraceKind.TRAJECTORY, "agent/trajectory.jsonl")]


def test_an_empty_trajectory_hides_nothing_and_is_named(trial: Path) -> None:
    (trial / "agent" / "trajectory.jsonl").write_text("")
    (found,) = find_in_files(str(trial))
    with opened_traces(found) as traces:
        (used,) = traces
        assert used.kind is TraceKind.ATIF
        assert used.passed_over == ("agent/trajectory.jsonl: nothing usable in it",)


def test_each_step_of_a_trial_has_its_own_trace(trial: Path) -> None:
    shutil.rmtree(trial / "agent")
    for step in ("one", "two"):
        (trial / "steps" / step / "agent").mkdir(parents=True)
        (trial / "steps" / step / "agent" / "trajectory.jsonl").write_text(ENTRY)
    (found,) = find_in_files(str(trial))
    assert [part for part, _, _ in used_of(found)] == ["one", "two"]


def test_a_job_gives_its_trials_and_a_file_itself(trial: Path) -> None:
    shutil.copy(JOBS / "16-agent-nonzero" / "config.json", trial.parent)
    shutil.copy(JOBS / "16-agent-nonzero" / "lock.json", trial.parent)
    assert [found.name for found in find_in_files(str(trial.parent))] == [str(trial)]
    lone = trial / "agent" / "trajectory.json"
    (found,) = find_in_files(str(lone))
    assert (found.name, found.record, used_of(found)[0][1]) == (str(lone), None, TraceKind.ATIF)


def test_a_trial_that_cannot_become_a_record_still_has_its_trace(trial: Path) -> None:
    (trial / "result.json").write_text("{")
    (trial / "config.json").write_text("{")
    (found,) = find_in_files(str(trial))
    assert found.record is None
    assert found.problem is not None
    assert used_of(found) == [("", TraceKind.ATIF, "agent/trajectory.json")]


def test_what_has_no_trace_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "certificate.json"
    path.write_text(json.dumps({"format": "x", "profile": "y"}))
    with pytest.raises(InputError, match="expected a trace, a trial, a record or a job"):
        list(find_in_files(str(path)))


@pytest.fixture
def ledger(trial: Path, tmp_path: Path) -> OpenLedger:
    made = make_ledger(tmp_path / "ledger")
    seal(made, list(find_submissions(trial, SealOptions(experiment="night"))))
    return made


def test_a_sealed_trial_is_found_by_filter_by_name_and_by_experiment(
    ledger: OpenLedger, trial: Path
) -> None:
    for found in (
        trace_sealed(ledger, TrialFilter(experiment="night")),
        trace_named(ledger, trial.name),
        trace_named(ledger, "night"),
    ):
        (one,) = found
        assert one.name == f"night/{trial.name}"
        assert used_of(one) == [("", TraceKind.ATIF, "agent/trajectory.json")]
        with opened_traces(one) as traces:
            data = Path(traces[0].path).read_bytes()
        assert data == (trial / "agent" / "trajectory.json").read_bytes()
        assert not Path(traces[0].path).exists()
    with pytest.raises(LedgerError, match="no trial or entry is named"):
        list(trace_named(ledger, "nobody"))


def test_the_steps_of_a_trial_come_in_the_order_they_were_run(tmp_path: Path) -> None:
    (original,) = JOBS.glob("10-multistep-oracle-mounted/ms-mean__*")
    trial = tmp_path / "job" / original.name
    shutil.copytree(original, trial)
    for step in ("one", "two", "three"):
        (trial / "steps" / step / "agent" / "trajectory.jsonl").write_text(ENTRY)
    ledger = make_ledger(tmp_path)
    seal(ledger, list(find_submissions(trial, SealOptions(experiment="night"))))
    for found in (*find_in_files(str(trial)), *trace_sealed(ledger, TrialFilter())):
        assert [part for part, _, _ in used_of(found)] == ["one", "two", "three"]


@pytest.mark.parametrize("result", ["{", '{"step_results": 5}', '{"a":' + "[" * 100_000])
def test_a_result_that_names_no_steps_leaves_them_in_the_order_of_their_names(
    trial: Path, result: str
) -> None:
    shutil.rmtree(trial / "agent")
    for step in ("b", "a"):
        (trial / "steps" / step).mkdir(parents=True)
        (trial / "steps" / step / "trajectory.jsonl").write_text(ENTRY)
    (trial / "result.json").write_text(result)
    (found,) = find_in_files(str(trial))
    assert {part for part, _, _ in used_of(found)} == {"a", "b"}
