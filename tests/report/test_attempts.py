"""The same trials give the same attempts, read from their directories or from a ledger."""

import json
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import msgspec
import pytest

from proctor.errors import InputError
from proctor.exchange.harbor_job import JobOptions, find_trials
from proctor.exchange.intake import seal_offers
from proctor.ledger.api import Ledger
from proctor.ledger.query import find_trial, load_position
from proctor.ledger.review import append_review, append_supersession
from proctor.report.in_jobs import load_jobs
from proctor.report.policy.from_jobs import load_jobs_submission
from proctor.report.runs import load_job_run

JOBS = Path(__file__).parent.parent / "data" / "harbor" / "jobs"


EVIDENCE = ("evidence", "evidence_files", "evidence_bytes")


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ledger]:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in ("04-binary-scripted-k5", "06-errors-oracle-k1", "14-two-models"):
        found = find_trials(JOBS / name, JobOptions())
        seal_offers(found.offers, partial(Ledger.open_or_create, tmp_path / "ledger"))
    with Ledger.open(tmp_path / "ledger") as made:
        yield made


def test_a_job_and_the_ledger_it_was_brought_into_tell_the_same(ledger: Ledger) -> None:
    sealed = load_position(ledger).trials
    plain = [
        attempt
        for name in ("04-binary-scripted-k5", "06-errors-oracle-k1", "14-two-models")
        for attempt in load_jobs(str(JOBS / name)).trials
    ]
    assert len(plain) == len(sealed) > 10
    for one, other in zip(plain, sealed, strict=True):
        # A record that is made has blanks for people, which a log has not.
        same = {"status": "diagnostic", "seq": other.seq, "place": None, "record": other.record}
        same |= {name: getattr(other, name) for name in EVIDENCE}
        assert msgspec.structs.replace(one, **same) == other


def test_a_position_knows_nothing_of_what_was_said_later(ledger: Ledger) -> None:
    before = load_position(ledger)
    alike = [each for each in before.trials if each.task_id == before.trials[0].task_id]
    first, second = (find_trial(ledger, each.name) for each in alike[:2])
    append_review(ledger, first, "fail", reviewer="ann")
    append_supersession(ledger, first, second, "infrastructure", reason="no disk", author="ann")
    assert load_position(ledger, at=before.size) == before
    now = load_position(ledger).trials
    assert (now[0].status, now[0].review) == ("superseded", "fail")
    assert now[1:] == before.trials[1:]


@pytest.mark.parametrize("at", [0, -1, 10_000])
def test_a_size_that_the_log_never_had_is_refused(ledger: Ledger, at: int) -> None:
    with pytest.raises(InputError, match="expected a position from 1 to"):
        load_position(ledger, at=at)


def test_trials_of_an_earlier_plan_are_in_no_number_of_a_plain_job(tmp_path: Path) -> None:
    job = tmp_path / "job"
    shutil.copytree(JOBS / "01-binary-oracle-k1", job)
    aside = min(each.name for each in job.iterdir() if each.is_dir())
    (job / "proctor.json").write_text(json.dumps({"unplanned": [{"trial": aside}]}))
    run = load_job_run(str(job))
    assert (len(run.trials), run.left_out) == (2, {"set aside": 1})
    assert aside not in {each.trial_id for each in run.trials}
    submission = load_jobs_submission(str(job))
    assert (len(submission.trials), len(submission.counted)) == (3, 2)


def test_a_kept_attempt_counts_for_a_policy_only_where_its_trial_is_not_there(
    tmp_path: Path,
) -> None:
    job = tmp_path / "job"
    shutil.copytree(JOBS / "01-binary-oracle-k1", job)
    trial = next(each for each in sorted(job.iterdir()) if each.is_dir())
    renamed = trial.rename(job / f"{trial.name}.attempt-1")
    result = json.loads((renamed / "result.json").read_text())
    (renamed / "result.json").write_text(json.dumps(result | {"trial_name": renamed.name}))
    assert len(load_jobs_submission(str(job)).counted) == len(load_job_run(str(job)).trials) == 3
