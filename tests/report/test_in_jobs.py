"""A trial in a job directory has one row, whether a record is made of it or not."""

from pathlib import Path

import pytest

from proctor.exchange.harbor_trial import time_phases
from proctor.harbor.documents import load_details
from proctor.harbor.trial import load_trial
from proctor.report.in_jobs import load_jobs, make_row
from tests.harbor.written import rewarded, write_trial

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
