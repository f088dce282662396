"""What is looked at is found by its exact name; no name of a request becomes part of a path."""

import json
import shutil
from functools import partial
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Page

from proctor.errors import NotThereError
from proctor.exchange.harbor_job import JobOptions, find_trials
from proctor.exchange.intake import seal_offers
from proctor.ledger.api import Ledger
from proctor.report.in_jobs import load_jobs
from proctor.web.app import make_app
from proctor.web.data_source import DataSource
from proctor.web.job_directories import JobFiles
from proctor.web.trials.trial_view import opened_trial
from tests.web.browsing import NO_TLS, serving
from tests.web.jobs import JOB, GrowingJob
from tests.web.subjects import JOBS, SEALED, all_jobs, seal_jobs

HOSTILE = '"><script>document.title="owned"</script><img src=x onerror=\'document.title="owned"\'>'


@pytest.mark.parametrize(
    "trial", ["..", ".", "", "../14-two-models", "/etc", "config.json", "a\0b"]
)
def test_a_trial_is_found_by_its_name_alone(sealed: Path, trial: str) -> None:
    for source in (DataSource(jobs=(JOBS / JOB,)), DataSource(ledger=sealed)):
        with pytest.raises(NotThereError), opened_trial(source, JOB, trial):
            pass
        with pytest.raises(NotThereError):
            source.experiment(trial)
    first = min(each.name for each in (JOBS / JOB).iterdir() if each.is_dir())
    with pytest.raises(NotThereError), opened_trial(DataSource(ledger=sealed), JOB, first[:-1]):
        pass


LISTED = ("status", "task_id", "reward", "reason_code", "exception", "agent", "model", "dataset_id",
          "seconds", "cost_usd", "timestamp", "place")  # fmt: skip


def test_the_list_of_a_job_has_the_facts_of_its_report() -> None:
    count = 0
    for job in all_jobs():
        listed = {row.name: row for row in JobFiles(job).look().trials}
        for row in load_jobs(str(job)).trials:
            count += 1
            for fact in LISTED:
                assert getattr(listed[row.name], fact) == getattr(row, fact), (row.name, fact)
    assert count > 150


def test_a_job_whose_clock_was_set_back_has_no_duration(tmp_path: Path) -> None:
    job = shutil.copytree(JOBS / JOB, tmp_path / JOB)
    result = json.loads((job / "result.json").read_text())
    times = {"started_at": "2026-11-15T10:00:01", "finished_at": "2026-11-15T10:00:02.5"}
    (job / "result.json").write_text(json.dumps(result | times))
    assert JobFiles(job).glance().seconds == 1.5
    for end in ("2026-11-15T10:00:00", "2026-11-15T10:00:02Z", "yesterday", None):
        (job / "result.json").write_text(json.dumps(result | times | {"finished_at": end}))
        assert JobFiles(job).glance().seconds is None


def test_a_job_and_a_ledger_give_the_same_trial(sealed: Path) -> None:
    first = min(each.name for each in (JOBS / JOB).iterdir() if each.is_dir())
    found = []
    for source in (DataSource(jobs=(JOBS / JOB,)), DataSource(ledger=sealed)):
        with opened_trial(source, JOB, first) as known:
            assert known.traced.record is not None
            found.append(known.traced.record)
    assert found[0] == found[1]


def test_a_trial_is_not_taken_for_an_attempt_that_is_kept_in_it(tmp_path: Path) -> None:
    job = GrowingJob(tmp_path)
    job.end(0)
    place = job.directory / job.trials[0]
    shutil.copytree(job.source / job.trials[0], place / "attempts" / "1")
    source = DataSource(jobs=(job.directory,))
    assert source.trial_directory(JOB, place.name) == place
    kept = source.trial_directory(JOB, f"{place.name}.attempt-1")
    assert kept == place / "attempts" / "1"
    for number in ("2", "01", "", "../1", "²"):
        with pytest.raises(NotThereError):
            source.trial_directory(JOB, f"{place.name}.attempt-{number}")


def test_a_hostile_name_is_text_and_nothing_else(tmp_path: Path, page: Page) -> None:
    job = GrowingJob(tmp_path)
    job.end(0)
    place = job.directory / job.trials[0]
    result = json.loads((place / "result.json").read_text())
    result |= {"task_name": HOSTILE, "source": HOSTILE}
    result["agent_info"]["name"] = HOSTILE
    result["exception_info"] = {
        "exception_type": HOSTILE, "exception_message": HOSTILE,
        "exception_traceback": "", "occurred_at": "2026-11-15T10:00:00",
    }  # fmt: skip
    (place / "result.json").write_text(json.dumps(result))
    place.rename(job.directory / HOSTILE.replace("/", "|"))
    refused: list[str] = []
    page.on("console", lambda message: refused.append(message.text))
    with serving(make_app(DataSource(jobs=(job.directory,)))) as address:
        for view in ("tasks", "trials"):
            page.goto(f"{address}/experiments/{JOB}?view={view}")
            assert page.title() == f"{JOB} · proctor"
            assert page.locator("script:not([src]), img").count() == 0
            assert page.get_by_text(HOSTILE, exact=True).first.is_visible()
    assert refused == []


def test_what_is_sealed_meanwhile_is_told_and_shown(tmp_path: Path) -> None:
    ledger = seal_jobs(tmp_path / "ledger", SEALED[1:])
    with (
        serving(make_app(DataSource(ledger=ledger))) as address,
        httpx.Client(base_url=address, timeout=30, verify=NO_TLS) as client,
    ):
        name = SEALED[1]
        with client.stream("GET", f"/experiments/{name}/events?since=old") as stream:
            lines = (line for line in stream.iter_lines() if line.startswith("event:"))
            assert next(lines) == "event: change"
            offers = find_trials(JOBS / JOB, JobOptions(experiment=name)).offers
            seal_offers(offers, partial(Ledger.open_or_create, ledger))
            assert next(lines) == "event: change"
        assert offers[0].where.rpartition("/")[2] in client.get(f"/experiments/{name}").text
