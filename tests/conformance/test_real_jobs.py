"""Real harbor jobs, scored again from their evidence: `stats` comes out as each job published it.

PROCTOR_HARBOR_JOBS names another directory of jobs: every one in it with a result.json.
"""

from proctor.audit.scoring import Scoring, score_jobs
from proctor.harbor.job import Job, OrderBasis, load_job
from proctor.harbor.render import render_json
from proctor.harbor.stats import stats_document
from proctor.reward.profile import DEFAULT_PROFILE
from tests.audit.directories import COPIED, JOBS, NAMES, every_job, listing


def load(name: str) -> Job:
    return load_job(str(JOBS / name))


def score(job: Job) -> Scoring:
    return score_jobs([job], DEFAULT_PROFILE)


def published_text(name: str) -> str:
    return (JOBS / name / "result.json").read_text(encoding="utf-8")


def test_there_are_jobs() -> None:
    assert NAMES


@every_job
def test_the_recomputed_stats_are_the_published_bytes(name: str) -> None:
    stats = render_json(stats_document(score(load(name)).stats), 4, level=1)
    assert published_text(name).endswith(f'"stats": {stats}\n}}')


@every_job
def test_every_trial_result_follows_from_its_reward_files(name: str) -> None:
    assert [found.directory for found in load(name).trials if not found.follows] == []


@every_job
def test_nothing_in_an_untouched_job_is_a_problem(name: str) -> None:
    job = load(name)
    assert (job.problems, job.broken, job.ordered.contradicted) == ([], [], False)


@every_job
def test_every_trial_directory_is_accounted_for(name: str) -> None:
    job = load(name)
    directories = sorted(str(path.parent) for path in (JOBS / name).glob("*/config.json"))
    assert sorted([*(found.directory for found in job.trials), *job.unfinished]) == directories
    assert len(directories) <= job.n_planned


@every_job
def test_reading_and_scoring_leave_no_trace_in_the_job(name: str) -> None:
    before = listing(JOBS / name)
    score(load(name))
    assert listing(JOBS / name) == before


@every_job
def test_a_job_is_finished_when_its_result_has_an_end(name: str) -> None:
    assert load(name).finished is ('"finished_at": null' not in published_text(name))


def test_our_copy_has_finished_cancelled_killed_and_resumed_jobs() -> None:
    jobs = {path.name: load_job(str(path)) for path in COPIED.iterdir()}
    unfinished = {name for name, job in jobs.items() if not job.finished}
    assert unfinished == {"30-cancelled-before-resume", "31-killed-before-resume"}
    assert len(jobs["31-killed-before-resume"].unfinished) == 2
    assert jobs["31-killed"].ordered.basis is OrderBasis.PUBLISHED
