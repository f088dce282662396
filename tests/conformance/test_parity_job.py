"""The real harbor beside ours on random jobs: counted, assembled, written, read from disk."""

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from proctor.audit.scoring import score_jobs
from proctor.harbor.job import load_job
from proctor.harbor.render import render_json
from proctor.harbor.stats import stats_document
from proctor.reward.profile import DEFAULT_PROFILE
from tests.conformance.facts import Fact, difference, observe
from tests.conformance.ours import Case
from tests.conformance.parity import Subject, check_parity
from tests.conformance.vectors import load_lines
from tests.harbor import generated_jobs, harbor_jobs, job_cases
from tests.harbor.harbor_directories import write_job

pytestmark = pytest.mark.harbor


def load_written_job(case: Case) -> Fact:
    """What we make of a job directory that harbor wrote."""
    with TemporaryDirectory(prefix="proctor-job-") as directory:
        write_job(Path(directory), case)
        return observe(lambda: _describe(directory), directory)


def _describe(directory: str) -> Fact:
    job = load_job(directory)
    stats = score_jobs([job], DEFAULT_PROFILE).stats
    return {
        "stats_json": render_json(stats_document(stats)),
        "not_following": [found.trial.name for found in job.trials if not found.follows],
        "problems": [problem.message for problem in [*job.problems, *job.broken]],
    }


def written_stats(case: Case) -> Fact:
    """What harbor's own result.json in that directory says."""
    with TemporaryDirectory(prefix="proctor-job-") as directory:
        text = write_job(Path(directory), case)
        return {"ok": {"stats_json": text, "not_following": [], "problems": []}}


JOB_STATS = Subject(
    "job_stats", generated_jobs.generate_job, job_cases.assemble_job, harbor_jobs.assemble_job
)
JOB_DIRECTORY = Subject(
    "job_directory", generated_jobs.generate_directory, load_written_job, written_stats
)


def test_harbor_as_we_call_it_still_gives_the_vectors() -> None:
    found = [
        difference(line["expect"], harbor_jobs.assemble_job(line["input"]))
        for line in load_lines("job_stats")
        if line["expect"].get("ok", {}).get("fixed", job_cases.FIXED) == job_cases.FIXED
    ]
    assert [text for text in found if text] == []


def test_random_jobs_give_the_stats_that_harbor_gives() -> None:
    check_parity(JOB_STATS, cases=600)


def test_random_job_directories_give_the_stats_that_harbor_wrote() -> None:
    check_parity(JOB_DIRECTORY, cases=60)


@pytest.mark.soak
def test_many_random_jobs_give_the_stats_that_harbor_gives() -> None:
    check_parity(JOB_STATS, cases=6000)


@pytest.mark.soak
def test_many_random_job_directories_give_the_stats_that_harbor_wrote() -> None:
    check_parity(JOB_DIRECTORY, cases=600)
