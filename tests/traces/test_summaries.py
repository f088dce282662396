"""A trial's files to its summary: real jobs, trials of several steps, sealed and damaged ones."""

import shutil
from collections import Counter
from pathlib import Path

import pytest

from proctor.cli.trace.summary import summarise_path
from proctor.exchange.submission import SealOptions, find_submissions
from proctor.exchange.traced_files import find_in_files, list_places
from proctor.ledger.ledger import OpenLedger
from proctor.ledger.sealing import seal
from proctor.ledger.traced_trials import trace_sealed
from proctor.ledger.trial_index import TrialFilter
from proctor.traces.trial_summary import summarise_traced
from tests.ledger.ledgers import make_ledger
from tests.task.trees import JOBS

ENTRY = '{"step": 1, "role": "assistant", "content": "x"}\n'
FAILED = (
    '{"step": 1, "role": "tool_call", "tool_name": "bash", "command": "make"}\n'
    '{"step": 1, "role": "tool_result", "tool_name": "bash", "stderr": "no", "exit_code": 2}\n'
)


@pytest.fixture
def trial(tmp_path: Path) -> Path:
    """A harbor trial whose trace is an ATIF file and whose reward is 0."""
    for original in sorted((JOBS / "29-passk-20").glob("pass-simple__*")):
        (found,) = find_in_files(str(original))
        if found.record is not None and found.record.evaluation.reward == 0:
            return Path(shutil.copytree(original, tmp_path / "job" / original.name))
    raise AssertionError("no trial of 29-passk-20 scored 0")


def test_the_trials_of_a_job_have_the_causes_that_their_names_promise() -> None:
    (job,) = JOBS.glob("06-errors-oracle-k1")
    found = [trial for place in list_places(str(job)) for trial in summarise_path(place)[0]]
    causes = {
        (trial.trial_id or "").partition("__")[0]: trial.cause.kind if trial.cause else None
        for trial in found
    }
    assert causes == {
        "agent-timeout-frac": "limit",
        "agent-timeout": None,
        "build-fail": "task",
        "build-timeout": "infrastructure",
        "good-one": None,
        "healthcheck-fail": "task",
        "no-solution": "task",
        "test-exit-nonzero": None,
        "verifier-timeout": "verifier",
    }
    limits = {trial.trial_id: trial.limit.kind for trial in found if trial.limit}
    assert list(limits.values()) == ["time"]


def test_every_failed_trial_of_every_job_has_a_cause_and_no_other_has() -> None:
    kinds: Counter[str] = Counter()
    for job in sorted(JOBS.iterdir())[::3]:
        for trial in (each for place in list_places(str(job)) for each in summarise_path(place)[0]):
            failed = trial.reward is None or trial.reward < 1
            assert (trial.cause is not None) == failed, trial.name
            kinds[str(trial.cause.kind if trial.cause else "none")] += 1
    assert kinds["agent"]
    assert kinds["none"]


def test_an_atif_trace_is_summed_up_and_named(trial: Path) -> None:
    (found,) = summarise_path(str(trial))[0]
    assert (found.trace.source, found.trace.file) == ("ATIF trajectory", "agent/trajectory.json")
    assert found.trace.turns > 0
    assert found.tokens.cache_read == 100
    assert found.cause is not None
    assert found.cause.rule == "scored-low"


def test_the_last_tool_error_stands_in_the_evidence(trial: Path) -> None:
    (trial / "agent" / "trajectory.jsonl").write_text(FAILED)
    (found,) = summarise_path(str(trial))[0]
    assert found.cause is not None
    assert ("trace, step 1, bash", "no") in [
        (each.where, each.quote) for each in found.cause.evidence
    ]


def test_a_download_that_failed_in_the_verifier_is_no_fault_of_the_agent(trial: Path) -> None:
    noise = "x" * 100_000
    said = f"start\n{noise}\ncurl: (6) Could not resolve host: astral.sh\n{noise}\nreward 0\n"
    (trial / "verifier" / "test-stdout.txt").write_text(f"Could not resolve host: a\n{said}")
    (found,) = summarise_path(str(trial))[0]
    assert found.cause is not None
    assert (found.cause.kind, found.cause.rule) == ("infrastructure", "verifier-network")
    assert found.cause.evidence[0].where == "verifier/test-stdout.txt"
    assert found.reward == 0


def test_the_parts_of_a_trial_are_summed_and_each_is_kept(trial: Path) -> None:
    shutil.rmtree(trial / "agent")
    for step, text in (("one", ENTRY), ("two", FAILED)):
        (trial / "steps" / step / "agent").mkdir(parents=True)
        (trial / "steps" / step / "agent" / "trajectory.jsonl").write_text(text)
    (found,) = summarise_path(str(trial))[0]
    assert [part.part for part in found.parts] == ["one", "two"]
    assert (found.trace.turns, found.trace.messages) == (2, 3)
    assert found.trace.errors.first is not None
    assert found.trace.errors.first.part == "two"
    assert found.has_trace


def test_a_trial_without_a_trace_is_said_to_have_none(trial: Path) -> None:
    shutil.rmtree(trial / "agent")
    (found,) = summarise_path(str(trial))[0]
    assert (found.trace.source, found.has_trace, found.trace.turns) == ("none", False, 0)


def test_a_trial_that_cannot_become_a_record_was_nobodys_success(trial: Path) -> None:
    for name in ("result.json", "config.json"):
        (trial / name).write_text("{")
    (found,) = summarise_path(str(trial))[0]
    assert found.problem is not None
    assert found.cause is not None
    assert (found.cause.kind, found.cause.rule) == ("infrastructure", "no-record")
    assert found.has_trace


def test_a_lone_trace_has_no_cause(trial: Path) -> None:
    (found,) = summarise_path(str(trial / "agent" / "trajectory.json"))[0]
    assert (found.cause, found.reward, found.has_trace) == (None, None, True)


@pytest.fixture
def ledger(trial: Path, tmp_path: Path) -> OpenLedger:
    made = make_ledger(tmp_path)
    seal(made, list(find_submissions(trial, SealOptions(experiment="night"))))
    return made


def test_a_sealed_trial_has_the_summary_of_its_files(ledger: OpenLedger, trial: Path) -> None:
    (found,) = trace_sealed(ledger, TrialFilter())
    sealed = summarise_traced(found, labelled=True)
    (lying,) = summarise_path(str(trial))[0]
    assert sealed.trace == lying.trace
    assert sealed.cause == lying.cause
    assert sealed.name == f"night/{trial.name}"


def test_damaged_evidence_is_said_and_ends_nothing(ledger: OpenLedger, tmp_path: Path) -> None:
    for artifact in (tmp_path / "ledger" / "artifacts").rglob("*"):
        if artifact.is_file():
            artifact.chmod(0o600)
            artifact.write_bytes(b"gone")
    (found,) = map(summarise_traced, trace_sealed(ledger, TrialFilter()))
    assert found.problem is not None
    assert not found.has_trace
    assert found.cause is not None


def test_where_verification_was_switched_off_that_is_the_evidence() -> None:
    trial = next((JOBS / "22-disable-verification").glob("pass-two__*"))
    (found,) = summarise_path(str(trial))[0]
    assert found.cause is not None
    assert found.cause.rule == "not-verified"
    assert [each.where for each in found.cause.evidence] == ["agent.configuration verifier.disable"]
