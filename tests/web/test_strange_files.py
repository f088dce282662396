"""What else can lie in a job: links that lead out, pipes, devices, names that are no text."""

import os
import shutil
import tempfile
from pathlib import Path

import httpx
import pytest

from proctor.web.app import make_app
from proctor.web.data_source import DataSource
from tests.unprivileged import unprivileged
from tests.web.browsing import NO_TLS, serving
from tests.web.jobs import JOB
from tests.web.sealed import copy_job
from tests.web.traces import said, write_trial

TRIAL = "oracle-wrong__FgnNypc"
PAGES = ("", "/trace", "/steps?from=0&count=5", "/files/result.json")
PATIENCE = 20
"""Seconds within which every page is answered: a pipe that is waited for never is."""


def visit(job: Path, *paths: str) -> list[httpx.Response]:
    """What a viewer of a job answers."""
    with (
        serving(make_app(DataSource(jobs=(job,), root=job.parent))) as address,
        httpx.Client(base_url=address, timeout=PATIENCE, verify=NO_TLS, trust_env=False) as client,
    ):
        return [client.get(path) for path in paths]


def put_link_to_file(trial: Path, outside: Path) -> None:
    (trial / "agent" / "trajectory.jsonl").symlink_to(outside / "agent" / "trajectory.jsonl")


def put_link_to_folder(trial: Path, outside: Path) -> None:
    (trial / "agent").rmdir()
    (trial / "agent").symlink_to(outside / "agent")


def put_link_to_step(trial: Path, outside: Path) -> None:
    (trial / "steps").mkdir()
    (trial / "steps" / "one").symlink_to(outside)


def put_link_to_steps(trial: Path, outside: Path) -> None:
    (outside / "one").symlink_to(outside)
    (trial / "steps").symlink_to(outside)


def put_link_to_attempts(trial: Path, outside: Path) -> None:
    (outside / "1").symlink_to(outside)
    (trial / "attempts").symlink_to(outside)


@pytest.mark.parametrize(
    "put",
    [
        put_link_to_file,
        put_link_to_folder,
        put_link_to_step,
        put_link_to_steps,
        put_link_to_attempts,
    ],
)
def test_no_link_makes_a_trace_of_what_lies_elsewhere(tmp_path: Path, put: object) -> None:
    job = copy_job(tmp_path, JOB)
    shutil.rmtree(job / TRIAL / "agent")
    (job / TRIAL / "agent").mkdir()
    write_trial(tmp_path, "outside", [said(1, "a secret of this machine")])
    assert callable(put)
    put(job / TRIAL, tmp_path / "outside")
    trial = f"/trials/{JOB}/{TRIAL}"
    found = visit(
        job,
        *(f"{trial}{page}" for page in PAGES),
        *(f"{trial}.attempt-1{page}" for page in PAGES),
        f"{trial}/files/agent/trajectory.jsonl?raw=1",
        "/search?q=secret",
    )
    assert all("of this machine" not in each.text for each in found)
    assert all(each.status_code in (200, 404) for each in found)


def test_a_trial_that_is_a_link_is_none(tmp_path: Path) -> None:
    job = copy_job(tmp_path, JOB)
    (job / "linked__a").symlink_to(job / TRIAL)
    page, trial, search = visit(
        job, f"/experiments/{JOB}", f"/trials/{JOB}/linked__a", "/search?q=task:linked"
    )
    assert "linked__a" not in page.text
    assert trial.status_code == 404
    assert "linked__a" not in search.text


@pytest.mark.parametrize(
    "name",
    ["result.json", "config.json", "agent/trajectory.json", "verifier/reward.txt",
     "verifier/test-stdout.txt", "record.json", "../result.json", "../lock.json", "../config.json"],
)  # fmt: skip
def test_a_pipe_keeps_nobody_waiting(tmp_path: Path, name: str) -> None:
    job = copy_job(tmp_path, JOB)
    pipe = job / TRIAL / name
    pipe.unlink(missing_ok=True)
    os.mkfifo(pipe)
    trial = f"/trials/{JOB}/{TRIAL}"
    found = visit(
        job,
        "/",
        f"/experiments/{JOB}",
        *(f"{trial}{page}" for page in PAGES),
        f"{trial}/files/{name}?raw=1",
        "/search?q=model:x+wrong",
        f"/compare?a={JOB}&b={JOB}",
        f"/diff?a={JOB}/{TRIAL}&b={JOB}/{TRIAL}",
    )
    assert all(each.status_code < 500 for each in found)


def test_a_name_that_is_no_text_is_spelled_out(tmp_path: Path) -> None:
    job = copy_job(tmp_path, JOB)
    shutil.copytree(job / TRIAL, job / "odd\udcff__a")
    shutil.copytree(job, tmp_path / "job\udcfe")
    first, page, trials, compare = visit(
        job,
        "/",
        f"/experiments/{JOB}",
        f"/experiments/{JOB}?view=trials",
        f"/compare?a={JOB}&b={JOB}",
    )
    assert r"odd\udcff__a" in page.text
    assert r"odd\udcff__a" in trials.text
    assert compare.status_code == 200
    assert first.status_code == 200


def test_a_file_that_may_not_be_read_damages_no_ledger() -> None:
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        job = copy_job(Path(name), JOB)
        (job / TRIAL / "trial.log").chmod(0)
        trial = f"/trials/{JOB}/{TRIAL}"
        with (
            serving(make_app(DataSource(jobs=(job,)))) as address,
            httpx.Client(
                base_url=address, timeout=PATIENCE, verify=NO_TLS, trust_env=False
            ) as client,
        ):
            # Whatever Python loads late lies where only root may look.
            client.get(f"{trial}/files/nothing")
            with unprivileged():
                found = client.get(f"{trial}/files/trial.log")
    assert found.status_code == 404
    assert "trial.log: the file cannot be read, or is gone" in found.text


def test_the_trace_of_a_kept_attempt_has_a_page(tmp_path: Path) -> None:
    job = copy_job(tmp_path, JOB)
    shutil.copytree(job / TRIAL, tmp_path / "kept")
    (job / TRIAL / "attempts").mkdir()
    (tmp_path / "kept").rename(job / TRIAL / "attempts" / "1")
    trial = f"/trials/{JOB}/{TRIAL}.attempt-1"
    page, trace, steps = visit(job, trial, f"{trial}/trace", f"{trial}/steps?from=0&count=5")
    assert f'href="{trial}/trace"' in page.text
    assert trace.status_code == 200
    assert steps.json()["rows"]
