"""A trial in a job directory has one row, whether a record is made of it or not."""

from pathlib import Path

import pytest

from proctor.audit.scoring import score_jobs
from proctor.exchange.harbor_trial import time_phases
from proctor.harbor.documents import load_details
from proctor.harbor.job import load_job
from proctor.harbor.trial import load_trial
from proctor.ledger.counting import counted_trials
from proctor.report.in_jobs import load_jobs, make_row
from proctor.reward.profile import DEFAULT_PROFILE
from tests.harbor.written import rewarded, write_result, write_trial
from tests.ledger.ledgers import record_bytes

JOBS = Path(__file__).parent.parent / "data" / "harbor" / "jobs"
SAME = (
    *("experiment_id", "trial_id", "status", "dataset_id", "task_id", "agent", "model", "reward"),
    *("reason_code", "exception", "seconds", "setup_seconds", "agent_seconds"),
    *("verification_seconds", "place"),
)


@pytest.mark.parametrize(
    "job", ["05-rewards-oracle-k1", "06-errors-oracle-k1", "10-multistep-oracle-mounted"]
)
def test_the_row_of_a_result_is_that_of_its_record(job: str) -> None:
    rows = load_jobs(str(JOBS / job)).trials
    assert rows
    for row in rows:
        directory = row.place or ""
        found = load_trial(directory)
        timing = time_phases(load_details(directory))
        made = make_row(found, job, name=row.trial_id, timing=timing)
        assert [getattr(made, name) for name in SAME] == [getattr(row, name) for name in SAME]


def test_a_trial_without_a_readable_result_is_in_no_number_as_in_a_score(tmp_path: Path) -> None:
    job = tmp_path / "job"
    write_trial(job, "a__1")
    killed = job / "b__1"
    killed.mkdir()
    (killed / "config.json").write_text("{}")
    write_trial(killed / "attempts", "1", trial_name="b__1")
    torn = write_trial(job, "c__1")
    (torn / "result.json").write_text("{")
    (torn / "record.json").write_bytes(record_bytes("c__1", **{"evaluation.reward": 1.0}))
    write_result(job, {}, n_total_trials=3)
    found = load_jobs(str(job))
    assert [(row.trial_id, row.status) for row in found.trials] == [
        ("a__1", "unsealed"),
        ("b__1.attempt-1", "begun again"),
    ]
    assert {Path(each.place).name for each in found.unreadable} == {"b__1", "c__1"}
    scored = score_jobs([load_job(str(job))], DEFAULT_PROFILE).denominators
    assert scored.run == len(counted_trials(found.trials)) == 1


def test_a_model_that_the_agent_does_not_report_is_the_configured_one(tmp_path: Path) -> None:
    config = {"task": {"path": "tasks/t"}, "agent": {"name": "ag", "model_name": "maker/m-1"}}
    place = write_trial(
        tmp_path,
        "t__1",
        {"reward.txt": "1"},
        verifier_result=rewarded(reward=1),
        agent_info={"name": "ag", "version": "1.0", "model_info": None},
        config=config,
    )
    assert make_row(load_trial(str(place)), "job", name="t__1").model == "maker/m-1"
