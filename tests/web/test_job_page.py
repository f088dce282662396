"""The page of an experiment: its numbers, what it leaves out, and how it keeps up."""

import json
import re
import shutil
import threading
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Page, expect

from proctor.web import job_directories
from proctor.web.app import make_app
from proctor.web.data_source import DataSource
from proctor.web.experiment import state_of
from proctor.web.live import MOST_LISTENERS
from tests.web.browsing import NO_TLS, serving
from tests.web.jobs import JOB, GrowingJob
from tests.web.subjects import JOBS, all_jobs


def figures_of(text: str) -> dict[str, str]:
    """The figures at the head of a page."""
    found = re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", text)
    return {name: re.sub("<.*?>", "", value) for name, value in found}


def count_links(text: str) -> int:
    """The trials that a page leads to."""
    return len(re.findall(r'<a class="m [^>]*href="/trials/', text))


def test_a_job_and_the_ledger_it_was_brought_into_show_the_same(
    jobs_client: httpx.Client, ledger_client: httpx.Client
) -> None:
    for name in (JOB, "06-errors-oracle-k1"):
        path = f"/experiments/{name}"
        in_job, sealed = (
            figures_of(client.get(path).text) for client in (jobs_client, ledger_client)
        )
        for figure in ("Score", "Ended", "Scored", "Not scored"):
            assert in_job[figure] == sealed[figure], figure


def test_means_count_a_missing_reward_as_0_and_say_how_many_are_scored(
    jobs_client: httpx.Client,
) -> None:
    found = figures_of(jobs_client.get(f"/experiments/{JOB}").text)
    rewards = [
        json.loads(path.read_text())["verifier_result"]["rewards"]["reward"]
        for path in (JOBS / JOB).glob("*/result.json")
    ]
    assert found["Score"] == f"{sum(rewards) / len(rewards):.4g}"
    assert found["Scored"] == str(len(rewards))
    errors = figures_of(jobs_client.get("/experiments/06-errors-oracle-k1").text)
    assert int(errors["Ended"]) == int(errors["Scored"]) + int(errors["Not scored"])
    assert int(errors["Errored"]) > 0


def test_models_are_never_one_mean(jobs_client: httpx.Client, ledger_client: httpx.Client) -> None:
    for client in (jobs_client, ledger_client):
        text = client.get("/experiments/14-two-models").text
        assert figures_of(text)["Score"] == "by group"
        assert "agents, models or datasets differ" in text
    assert "12 scored, by group" in ledger_client.get("/?q=two").text


def test_a_score_without_a_number_is_scored(jobs_client: httpx.Client) -> None:
    text = jobs_client.get("/experiments/12-nan-oracle").text
    figures = figures_of(text)
    shown = [figures[name] for name in ("Ended", "Scored", "Without a number", "Not scored")]
    assert shown == ["3", "3", "2", "0"]
    assert count_links(jobs_client.get("/experiments/12-nan-oracle?outcome=numberless").text) == 2


def test_a_job_shows_the_requested_model_and_says_so(
    jobs_client: httpx.Client, ledger_client: httpx.Client
) -> None:
    path = "/experiments/14-two-models?view=trials"
    assert jobs_client.get(path).text.count("Requested model") == 3
    assert "Requested model" not in ledger_client.get(path).text


@pytest.mark.parametrize(
    "query",
    ["outcome=full", "outcome=none", "outcome=errored", "task=flip", "task=FLIP&outcome=none",
     "task=nothing", "model=other"],
)  # fmt: skip
def test_a_filter_leaves_the_trials_that_fit(
    jobs_client: httpx.Client, ledger_client: httpx.Client, query: str
) -> None:
    for client in (jobs_client, ledger_client):
        text = client.get(f"/experiments/{JOB}?{query}").text
        assert count_links(text) == len(_fitting(query))


def _fitting(query: str) -> list[str]:
    """The trials of the job that fit, by another way: straight from their results."""
    asked = dict(pair.split("=") for pair in query.split("&"))
    found = []
    for path in (JOBS / JOB).glob("*/result.json"):
        result = json.loads(path.read_text())
        reward = result["verifier_result"]["rewards"]["reward"]
        names = f"{result['task_name']} {path.parent.name}".lower()
        outcome = {"full": reward >= 1, "none": reward <= 0, "errored": False, None: True}
        if (
            asked.get("task", "").lower() in names
            and outcome[asked.get("outcome")]
            and "model" not in asked
        ):
            found.append(path.parent.name)
    return found


@pytest.mark.parametrize("sort", ["task", "low", "high", "errors", "slow", "cost"])
@pytest.mark.parametrize("view", ["tasks", "trials"])
def test_every_order_shows_every_trial(jobs_client: httpx.Client, sort: str, view: str) -> None:
    text = jobs_client.get(f"/experiments/29-passk-20?sort={sort}&view={view}").text
    assert len(set(re.findall(r'href="(/trials/29-passk-20/[^"]+)"', text))) == 40


def test_every_real_job_has_a_page(jobs_client: httpx.Client) -> None:
    for job in all_jobs():
        response = jobs_client.get(f"/experiments/{job.name}")
        assert response.status_code == 200
        trials = sum(1 for each in job.iterdir() if (each / "config.json").exists())
        assert count_links(response.text) == trials, job.name


# A job that changes underneath


def test_what_is_half_written_or_gone_is_told_and_no_error(tmp_path: Path) -> None:
    job = GrowingJob(tmp_path)
    source = DataSource(jobs=(job.directory,))
    states: list[str] = []

    def look() -> None:
        files = source.directories.find(JOB)
        assert files is not None
        files._at = 0.0  # as if a while had passed
        states.append(" ".join(state_of(row) for row in files.look().trials))

    look()
    place = job.begin(0)
    look()
    (place / "result.json").write_text('{"task_name": "half')
    look()
    job.end(0)
    look()
    (job.directory / "result.json").write_text("{")
    look()
    shutil.rmtree(place)
    look()
    assert states == ["", "running", "broken", "scored", "scored", ""]
    # Run again, and given up after that: only what was kept of it is left.
    place = job.begin(0)
    shutil.copytree(job.source / place.name, place / "attempts" / "1")
    look()
    (place / "config.json").unlink()
    look()
    assert states[-2:] == ["attempt running", "attempt"]
    shutil.rmtree(job.directory)
    look()
    with serving(make_app(source)) as address:
        response = httpx.get(f"{address}/experiments/{JOB}", verify=NO_TLS)
        assert response.status_code == 200
        assert "cannot be read: No such file or directory" in response.text
        assert httpx.get(address, verify=NO_TLS).status_code == 200


def test_a_trial_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    job = GrowingJob(tmp_path)
    job.end(0)
    (job.directory / job.trials[1]).symlink_to(job.source / job.trials[1])
    experiment = DataSource(jobs=(job.directory,)).experiment(JOB)
    assert [row.trial_id for row in experiment.trials] == [job.trials[0]]


def test_a_reward_that_is_changed_later_is_seen(tmp_path: Path) -> None:
    job = GrowingJob(tmp_path)
    job.end(0)
    source = DataSource(jobs=(job.directory,))
    (row,) = source.experiment(JOB).trials
    assert row.reward is not None
    reward = job.directory / job.trials[0] / "verifier" / "reward.txt"
    reward.write_text("0.25")
    files = source.directories.find(JOB)
    assert files is not None
    files._at = 0.0  # as if a while had passed
    (row,) = source.experiment(JOB).trials
    assert row.reward == 0.25


def test_a_job_that_comes_later_is_listed(tmp_path: Path) -> None:
    first = GrowingJob(tmp_path)
    source = DataSource(jobs=(first.directory,), root=tmp_path)
    shutil.copytree(JOBS / "14-two-models", tmp_path / "14-two-models")
    source.directories._at = 0.0  # as if a while had passed
    assert [job.name for job in source.jobs] == [JOB, "14-two-models"]


def test_jobs_that_nobody_looks_at_are_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    source = DataSource(jobs=all_jobs())
    monkeypatch.setattr(job_directories, "_MOST", 40)
    for job in all_jobs():
        source.experiment(job.name)
    kept = sum(files.size for files in source.directories.all())
    assert 0 < kept < 120


# Live


def test_the_page_keeps_up_with_a_running_job(tmp_path: Path, page: Page) -> None:
    job = GrowingJob(tmp_path)
    job.end(0)
    with serving(make_app(DataSource(jobs=(job.directory,)))) as address:
        page.goto(f"{address}/experiments/{JOB}")
        said = page.locator("#connection")
        expect(said).to_have_text("Live")
        marks = page.locator("td.marks a")
        expect(marks).to_have_count(1)
        page.get_by_label("Task or trial").fill("what somebody types")
        job.begin(1)
        expect(marks).to_have_count(2)
        expect(page.locator("td.marks a.running")).to_have_count(1)
        job.end(1)
        expect(page.locator("td.marks a.running")).to_have_count(0)
        expect(page.get_by_label("Task or trial")).to_have_value("what somebody types")
        job.write_result(is_finished=True)
        expect(page.locator(".tag.good")).to_have_text("finished")
        expect(said).to_have_text("")


def test_the_page_says_that_it_lost_the_connection(tmp_path: Path, page: Page) -> None:
    job = GrowingJob(tmp_path)
    with serving(make_app(DataSource(jobs=(job.directory,)))) as address:
        page.goto(f"{address}/experiments/{JOB}")
        expect(page.locator("#connection")).to_have_text("Live")
    expect(page.locator("#connection")).to_contain_text("Connection lost")


def test_events_tell_changes_and_the_end(tmp_path: Path) -> None:
    job = GrowingJob(tmp_path)
    app = make_app(DataSource(jobs=(job.directory,)))
    with serving(app) as address:
        path = f"{address}/experiments/{JOB}/events"
        with httpx.stream(
            "GET", path, params={"since": "old"}, timeout=30, verify=NO_TLS
        ) as stream:
            assert stream.headers["content-type"].startswith("text/event-stream")
            lines = (line for line in stream.iter_lines() if line.startswith("event:"))
            assert next(lines) == "event: change"
            job.end(0)
            assert next(lines) == "event: change"
            job.write_result(is_finished=True)
            assert list(lines) == ["event: change", "event: end"]
        _wait_for_silence(app.state.listeners)


def _wait_for_silence(listeners: object) -> None:
    waiting = threading.Event()
    for _ in range(200):
        if not getattr(listeners, "number", 0):
            return
        waiting.wait(0.05)
    raise AssertionError("somebody still listens")


def test_only_so_many_may_listen_and_who_goes_is_noticed(tmp_path: Path) -> None:
    job = GrowingJob(tmp_path)
    app = make_app(DataSource(jobs=(job.directory,)))
    with (
        serving(app) as address,
        httpx.Client(base_url=address, timeout=30, verify=NO_TLS) as client,
    ):
        path = f"/experiments/{JOB}/events"
        streams = [
            client.send(client.build_request("GET", path), stream=True)
            for _ in range(MOST_LISTENERS)
        ]
        # Kept until the end: who lets go of a reader closes its stream.
        readers = [stream.iter_lines() for stream in streams]
        assert {next(reader) for reader in readers} == {"retry: 2000"}
        refused = client.get(path)
        assert refused.status_code == 503
        assert refused.headers["retry-after"] == "10"
        for stream in streams:
            stream.close()
        _wait_for_silence(app.state.listeners)
