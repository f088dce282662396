"""A job that somebody made to hurt whoever imports it: nothing leaves it, nothing hangs."""

import contextlib
import json
import os
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from proctor.exchange.harbor_job import JobOptions, find_trials
from proctor.exchange.intake import Reconciliation, seal_offers
from proctor.ledger.entry import TrialEntry
from proctor.ledger.exchange.harbor_jobs import write_jobs
from proctor.ledger.ledger import OpenLedger
from tests.audit.directories import copy_job, edit_json, find_trial
from tests.ledger.ledgers import find_key, make_ledger


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A copy of a small job."""
    return copy_job("01-binary-oracle-k1", tmp_path)


def bring_in(job: Path, tmp_path: Path) -> Reconciliation:
    place = tmp_path / "ledger"
    if not place.exists():
        make_ledger(tmp_path).close()
    found = find_trials(job, JobOptions())
    outcome = seal_offers(found.offers, lambda: OpenLedger.open(place, key=find_key(tmp_path)))
    outcome.later += found.later
    outcome.notes += found.notes
    return outcome


@contextlib.contextmanager
def entries(tmp_path: Path) -> Iterator[tuple[OpenLedger, list[TrialEntry]]]:
    with OpenLedger.open(tmp_path / "ledger") as ledger:
        size = ledger.refresh().tree.size
        found = [ledger.entry(seq) for seq in range(size)]
        yield ledger, [entry for entry in found if isinstance(entry, TrialEntry)]


def test_a_name_with_control_characters_is_no_id_and_no_path(job: Path, tmp_path: Path) -> None:
    trial = find_trial(job, "pass-two")
    name = "a\x1b[31m\n/../b".replace("/", "_")
    evil = trial.rename(job / name)
    edit_json(evil / "result.json", lambda result: result.update(trial_name=f"../{name}"))
    outcome = bring_in(job, tmp_path)
    assert (len(outcome.new), outcome.refused) == (3, [])
    ids = [each.trial_id for each in outcome.new]
    assert any(each.startswith("a-31m-_.._b-") for each in ids)
    with entries(tmp_path) as (ledger, found):
        written = write_jobs(ledger, [entry.seq for entry in found], tmp_path / "out")
    assert written.written == 3
    # The directory goes by the trial's id: nobody gets escape sequences into their listings.
    names = {path.name for path in (tmp_path / "out" / job.name).iterdir() if path.is_dir()}
    assert names == set(ids)


def test_a_name_that_is_no_text_comes_in(job: Path, tmp_path: Path) -> None:
    trial = find_trial(job, "pass-two")
    trial.rename(os.fsdecode(os.fsencode(job) + b"/\xff\xfe"))
    (job / os.fsdecode(b"\xff.log")).write_text("x")
    outcome = bring_in(job, tmp_path)
    assert (len(outcome.new), outcome.refused) == (3, [])
    assert any("cannot be evidence" in note and "\\xff.log" in note for note in outcome.notes)


def test_links_pipes_loops_and_depths_keep_no_trial_out(job: Path, tmp_path: Path) -> None:
    trial = find_trial(job, "pass-two")
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "key").write_text("the secret of somebody else")
    (trial / "agent" / "key").symlink_to(secret / "key")
    (trial / "agent" / "all").symlink_to(secret)
    (trial / "agent" / "loop").symlink_to(trial)
    (trial / "attempts").symlink_to(secret)
    os.mkfifo(trial / "agent" / "pipe")
    (job / "job-link").symlink_to(secret / "key")
    dig(trial / "agent", 400)
    outcome = bring_in(job, tmp_path)
    assert (len(outcome.new), outcome.refused) == (3, [])
    assert any("job-link" in note for note in outcome.notes)
    with entries(tmp_path) as (ledger, found):
        (entry,) = [each for each in found if each.findings]
        everything = b"".join(
            ledger.artifacts.load(file.sha256, file.size)
            for each in found
            for file in each.evidence
        )
    assert b"somebody else" not in everything
    refused = set(entry.findings[0]["detail"]["files"])
    assert {"agent/all", "agent/key", "agent/loop", "agent/pipe"} <= refused
    assert len(refused) > 4


def dig(place: Path, depth: int) -> None:
    """Directories in directories, deeper than a path can be long, and a file in the last."""
    here = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
    for _ in range(depth):
        os.mkdir("d" * 20, dir_fd=here)
        below = os.open("d" * 20, os.O_RDONLY | os.O_DIRECTORY, dir_fd=here)
        os.close(here)
        here = below
    os.close(os.open("file", os.O_WRONLY | os.O_CREAT, 0o644, dir_fd=here))
    os.close(here)


def test_a_trial_that_is_a_link_is_refused(job: Path, tmp_path: Path) -> None:
    trial = find_trial(job, "pass-two")
    shutil.move(trial, tmp_path / "elsewhere")
    trial.symlink_to(tmp_path / "elsewhere")
    outcome = bring_in(job, tmp_path)
    assert len(outcome.new) == 2
    assert "a link, which is not followed" in outcome.refused[0].message


def test_a_kept_attempt_that_is_a_link_is_refused(job: Path, tmp_path: Path) -> None:
    trial = find_trial(job, "pass-two")
    shutil.copytree(trial, tmp_path / "elsewhere")
    (trial / "attempts").mkdir()
    (trial / "attempts" / "1").symlink_to(tmp_path / "elsewhere")
    outcome = bring_in(job, tmp_path)
    assert len(outcome.new) == 3
    assert "attempts/1: is a link, which is not followed" in outcome.refused[0].message


def check_sparse(job: Path, tmp_path: Path, size: int) -> None:
    trial = find_trial(job, "pass-two")
    with (trial / "agent" / "sparse.bin").open("wb") as file:
        file.truncate(size)
    outcome = bring_in(job, tmp_path)
    assert (len(outcome.new), outcome.refused) == (3, [])
    with entries(tmp_path) as (ledger, found):
        (file_,) = [
            file for each in found for file in each.evidence if file.path.endswith("sparse.bin")
        ]
        stored = ledger.artifacts.stored_size(file_.sha256) or 0
    assert file_.size == size
    assert stored < size / 1000


def test_a_file_that_is_one_large_hole_is_stored_small(job: Path, tmp_path: Path) -> None:
    check_sparse(job, tmp_path, 32 << 20)


@pytest.mark.soak
def test_a_hole_of_a_gigabyte_is_stored_small(job: Path, tmp_path: Path) -> None:
    check_sparse(job, tmp_path, 1 << 30)


def test_a_file_that_the_job_takes_away_meanwhile_keeps_no_trial_out(
    job: Path, tmp_path: Path
) -> None:
    make_ledger(tmp_path).close()
    (job / "result.json.tmp").write_text("half of it")
    found = find_trials(job, JobOptions())
    (job / "result.json.tmp").unlink()
    opened = partial(OpenLedger.open, tmp_path / "ledger", key=find_key(tmp_path))
    assert len(seal_offers(found.offers, opened).new) == 3


def test_a_trial_cannot_pass_off_a_file_as_the_jobs(job: Path, tmp_path: Path) -> None:
    trial = find_trial(job, "pass-two")
    (trial / "_job").mkdir()
    (trial / "_job" / "result.json").write_text("forged")
    bring_in(job, tmp_path)
    with entries(tmp_path) as (ledger, found):
        write_jobs(ledger, [entry.seq for entry in found], tmp_path / "out")
        named = [entry.findings for entry in found if entry.findings]
    assert named[0][0]["detail"]["files"] == ["_job/result.json"]
    out = tmp_path / "out" / job.name
    assert (out / "result.json").read_bytes() == (job / "result.json").read_bytes()


def test_first_words_beyond_all_measure_do_not_keep_a_trial_out(job: Path, tmp_path: Path) -> None:
    trial = find_trial(job, "pass-two")
    lines = [
        {"version": 1, "format": "aec-bench-trajectory"},
        {"role": "user", "step": 0, "content": "x" * (9 << 20)},
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (trial / "agent" / "trajectory.jsonl").write_text(text)
    outcome = bring_in(job, tmp_path)
    assert (len(outcome.new), outcome.refused) == (3, [])
