"""The trials of a job in the ledger: each is there once, whatever happened to the runner."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from proctor.errors import KeyFileError, NotSealedError
from proctor.harbor.configs import RetryConfig
from proctor.job.options import LedgerOptions
from proctor.job.sealing import Sealer
from proctor.ledger.entry import TrialEntry
from proctor.ledger.keys import find_key, make_key
from proctor.ledger.ledger import OpenLedger
from proctor.ledger.query import list_trials
from proctor.ledger.row import TrialRow
from proctor.ledger.sealing import Secrets
from proctor.ledger.trial_sealing import seal_trials
from proctor.ledger.verification.verify import verify_ledger
from tests.job.jobs import agent, make_config, make_tasks, resume, run, trial_dirs


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    return make_tasks(tmp_path / "set", ["a", "b", "c"])


@pytest.fixture
def options(tmp_path: Path) -> LedgerOptions:
    return LedgerOptions(tmp_path / "ledger")


def sealed_in(ledger: Path) -> dict[str, TrialRow]:
    """The trials of a ledger that is sound, by id."""
    assert verify_ledger(ledger).damage == []
    with OpenLedger.open(ledger) as opened:
        rows = list_trials(opened)
    assert len({row.trial_id for row in rows}) == len(rows)
    return {row.trial_id: row for row in rows}


def test_each_trial_is_sealed_when_it_ends(
    dataset: Path, tmp_path: Path, options: LedgerOptions
) -> None:
    outcome = run(make_config(dataset, tmp_path / "jobs"), ledger=options)
    assert outcome.sealed is not None
    assert (outcome.sealed.is_new_ledger, outcome.sealed.refused) == (True, [])
    assert outcome.sealed.sealed + outcome.sealed.diagnostic == 3
    sealed = sealed_in(options.directory)
    assert set(sealed) == {trial.name for trial in trial_dirs(outcome.directory)}
    assert {row.experiment_id for row in sealed.values()} == {"job"}
    assert {row.reward for row in sealed.values()} == {1.0}


def test_without_a_ledger_nothing_is_sealed(dataset: Path, tmp_path: Path) -> None:
    outcome = run(make_config(dataset, tmp_path / "jobs"))
    assert outcome.sealed is None
    assert not (tmp_path / "ledger").exists()


def test_attempts_that_were_retried_are_sealed_beside_their_trial(
    dataset: Path, tmp_path: Path, options: LedgerOptions
) -> None:
    retry = RetryConfig(max_retries=2, min_wait_sec=0)
    config = make_config(dataset, tmp_path / "jobs", agents=[agent("Flaky", fails=1)], retry=retry)
    job = run(config, ledger=options).directory
    names = {trial.name for trial in trial_dirs(job)}
    assert set(sealed_in(options.directory)) == names | {f"{name}.attempt-1" for name in names}


def test_a_resume_seals_into_the_ledger_of_the_job_and_nothing_twice(
    dataset: Path, tmp_path: Path, options: LedgerOptions
) -> None:
    job = run(make_config(dataset, tmp_path / "jobs"), ledger=options).directory
    before = sealed_in(options.directory)
    outcome = resume(job)
    assert outcome.sealed is not None
    assert (outcome.sealed.sealed, outcome.sealed.diagnostic) == (0, 0)
    assert sealed_in(options.directory) == before
    assert resume(job, is_sealed=False).sealed is None


def test_a_job_that_was_run_without_is_sealed_by_a_resume_with_one(
    dataset: Path, tmp_path: Path, options: LedgerOptions
) -> None:
    job = run(make_config(dataset, tmp_path / "jobs")).directory
    assert resume(job).sealed is None
    resume(job, ledger=options.directory)
    assert len(sealed_in(options.directory)) == 3


def test_a_sealed_trial_that_is_run_again_stands_beside_its_former_self(
    dataset: Path, tmp_path: Path, options: LedgerOptions
) -> None:
    config = make_config(dataset, tmp_path / "jobs", agents=[agent("Flaky", fails=2)])
    job = run(config, ledger=options).directory
    names = {trial.name for trial in trial_dirs(job)}
    first = sealed_in(options.directory)
    assert set(first) == names
    for _ in range(2):
        resume(job, also=frozenset({"ConnectionError"}))
    sealed = sealed_in(options.directory)
    again = {f"{name}.rerun-{number}" for name in names for number in (1, 2)}
    assert set(sealed) == names | again
    # Nothing of what was sealed first has changed; only the last one stands.
    assert all(sealed[name].record == first[name].record for name in names)
    standing = {name for name, row in sealed.items() if row.status != "superseded"}
    assert standing == {f"{name}.rerun-2" for name in names}
    with OpenLedger.open(options.directory) as ledger:
        entries = [ledger.entry(row.seq) for row in sealed.values()]
    scores = [entry.score for entry in entries if isinstance(entry, TrialEntry)]
    certificates = [score.certificate for score in scores if score and score.certificate]
    # A server computes each score again, under the name of the entry.
    assert {certificate["trial"] for certificate in certificates} == set(sealed)


def test_a_rerun_that_was_not_sealed_is_sealed_by_the_next_resume(
    dataset: Path, tmp_path: Path, options: LedgerOptions
) -> None:
    config = make_config(dataset, tmp_path / "jobs", agents=[agent("Flaky", fails=1)])
    job = run(config, ledger=options).directory
    names = {trial.name for trial in trial_dirs(job)}
    # As if it was killed between the results and their sealing.
    resume(job, also=frozenset({"ConnectionError"}), is_sealed=False)
    assert set(sealed_in(options.directory)) == names
    for _ in range(2):
        resume(job, ledger=options.directory)
        sealed = sealed_in(options.directory)
        assert set(sealed) == names | {f"{name}.rerun-1" for name in names}
        assert {sealed[name].status for name in names} == {"superseded"}


def test_a_trial_that_holds_a_secret_is_not_sealed_and_the_others_are(
    dataset: Path, tmp_path: Path, options: LedgerOptions
) -> None:
    config = make_config(dataset, tmp_path / "jobs", agents=[agent("Echoing")])
    secret = "sk-1234567890"  # noqa: S105 - made up
    config.agents[0].env["API_KEY"] = secret
    (dataset / "b" / "instruction.md").write_text(f"use {secret}")
    outcome = run(config, ledger=options)
    assert outcome.sealed is not None
    (refused,) = outcome.sealed.refused
    assert "contains the value of API_KEY" in refused
    assert secret not in refused
    assert len(sealed_in(options.directory)) == 2


def test_a_ledger_of_another_key_stops_the_job_before_its_first_trial(
    dataset: Path, tmp_path: Path, options: LedgerOptions
) -> None:
    OpenLedger.create(options.directory, make_key(tmp_path / "other", "example.org/x"), "o").close()
    with pytest.raises(KeyFileError, match="the key at hand is"):
        run(make_config(dataset, tmp_path / "jobs"), ledger=options)
    assert not list((tmp_path / "jobs").glob("job/*/result.json"))


def test_what_is_not_sealed_because_the_ledger_is_gone_is_said(tmp_path: Path) -> None:
    sealer = Sealer(
        LedgerOptions(tmp_path / "nowhere"), make_key(tmp_path / "key", "example.org/x"), Secrets()
    )
    sealer.put(tmp_path / "trial")
    sealer.close()
    (said,) = sealer.trials.refused
    assert "no trial from here on" in said
    assert "nowhere: not a ledger" in said


def test_a_trial_whose_record_is_gone_is_said_and_the_others_are_sealed(
    dataset: Path, tmp_path: Path, options: LedgerOptions
) -> None:
    job = run(make_config(dataset, tmp_path / "jobs")).directory
    (trial_dirs(job)[1] / "record.json").unlink()
    outcome = resume(job, ledger=options.directory)
    assert outcome.sealed is not None
    assert outcome.sealed.unrecorded == [trial_dirs(job)[1].name]
    assert len(sealed_in(options.directory)) == 2


def test_a_rerun_that_may_not_be_sealed_stands_in_for_nothing(
    dataset: Path, tmp_path: Path, options: LedgerOptions
) -> None:
    job = run(make_config(dataset, tmp_path / "jobs"), ledger=options).directory
    before = sealed_in(options.directory)
    trial = trial_dirs(job)[0]
    record = (trial / "record.json").read_bytes()
    (trial / "record.json").write_bytes(record.replace(b'"1.0.0"', b'"1.0.1"'))
    (trial / "agent" / "words.txt").write_text("sk-1234567890")
    with OpenLedger.open(options.directory, key=find_key(None, os.environ)) as ledger:
        with pytest.raises(NotSealedError, match="the value of API_KEY"):
            seal_trials(ledger, [trial], Secrets({"API_KEY": "sk-1234567890"}))
        size = ledger.checkpoint().tree.size
    assert size == 1 + len(before)
    assert sealed_in(options.directory) == before


@pytest.mark.parametrize("point", ["started", "verify", "ended", "retried"])
def test_a_runner_that_is_killed_leaves_a_ledger_that_resume_completes(
    dataset: Path, tmp_path: Path, point: str
) -> None:
    words = [sys.executable, "-m", "tests.job.runner", str(tmp_path)]
    env = {**os.environ, "DIE_AT": point, "PYTHONPATH": os.pathsep.join(sys.path)}
    killed = subprocess.run([*words, "run", "Flaky", "fails=1"], env=env, check=False, timeout=120)
    assert killed.returncode == -signal.SIGKILL
    del env["DIE_AT"]
    subprocess.run([*words, "resume"], env=env, check=True, timeout=120)
    names = {trial.name for trial in trial_dirs(tmp_path / "jobs" / "job")}
    sealed = sealed_in(tmp_path / "ledger")
    assert names <= set(sealed)
    assert not [name for name in sealed if ".rerun-" in name]
    subprocess.run([*words, "resume"], env=env, check=True, timeout=120)
    assert sealed_in(tmp_path / "ledger") == sealed
