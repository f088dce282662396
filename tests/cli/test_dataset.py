"""`proctor dataset`, and runs of datasets by name, with a git server of this machine."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.programs import Proctor, command_line, environment
from tests.cli.test_run import NULL, Run, load, only_job
from tests.cli.test_run import run as run  # a fixture
from tests.job.git_server import git_server
from tests.job.test_dataset_fetch import Site


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    with git_server(tmp_path) as server:
        site = Site(tmp_path, server)
        for name in ("HOME", "XDG_CACHE_HOME"):
            monkeypatch.setenv(name, site.host[name])
        monkeypatch.setenv("PROCTOR_REGISTRY", f"{server.url}/registry.json")
        yield site


def test_datasets_are_listed(proctor: Proctor, site: Site) -> None:
    ran = proctor("dataset", "list")
    assert (ran.code, ran.err) == (0, "")
    assert [line.split() for line in ran.out.splitlines()] == [
        ["name", "version", "tasks", "description"],
        ["set", "1.0", "2"],
    ]
    document = json.loads(proctor("dataset", "list", "--json").out)
    assert document["registry"] == f"{site.server.url}/registry.json"
    assert document["datasets"] == [
        {"name": "set", "version": "1.0", "description": "", "n_tasks": 2}
    ]


def test_without_a_registry_the_published_ones_are_listed(
    proctor: Proctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PROCTOR_REGISTRY", raising=False)
    ran = proctor("dataset", "list")
    assert "terminal-bench 2.1 89" in " ".join(ran.out.split())


def test_a_registry_without_datasets_is_said(proctor: Proctor, tmp_path: Path) -> None:
    path = tmp_path / "none.json"
    path.write_text("[]")
    ran = proctor("dataset", "list", "--registry-path", path)
    assert (ran.code, ran.out) == (0, f"{path}: no datasets in it\n")


def test_a_dataset_is_fetched_shown_and_verified(proctor: Proctor, site: Site) -> None:
    assert proctor("dataset", "fetch", "set@1.0", "--verify").out == (
        "set@1.0: 2 tasks, 0 here\n  2 tasks not fetched\n"
    )
    ran = proctor("dataset", "fetch", "set")
    assert ran.code == 0, ran.err
    assert ran.out.splitlines()[0] == "set@1.0: 2 tasks, 2 here"
    assert ran.out.splitlines()[-1] == "  2 fetched, 0 already cached, 0 refused"
    at = site.repository.first
    assert ran.err.splitlines() == [
        f"fetching 2 tasks of {site.url} at {at}",
        f"fetched 2 tasks of {site.url}",
    ]
    again = proctor("dataset", "fetch", "set@1.0")
    assert (again.err, again.out.splitlines()[-1]) == (
        "",
        "  0 fetched, 2 already cached, 0 refused",
    )
    document = json.loads(proctor("dataset", "list", "set", "--json").out)
    assert document["dataset_id"] == "set@1.0"
    assert f"  digest {document['digest']}\n" in ran.out
    assert [task["state"] for task in document["tasks"]] == ["cached", "cached"]
    assert proctor("dataset", "fetch", "set", "--verify").code == 0
    (Path(document["tasks"][0]["directory"]) / "instruction.md").write_text("Do nothing.\n")
    ran = proctor("dataset", "fetch", "set", "--verify")
    assert ran.code == 1
    assert "refused: one: " in ran.out
    assert "changed since it was fetched" in ran.out
    assert proctor("dataset", "fetch", "set", "--again", "--quiet").code == 0
    assert proctor("dataset", "fetch", "set", "--verify", "--json").code == 0


def test_some_tasks_are_fetched(proctor: Proctor, site: Site) -> None:
    assert proctor("dataset", "fetch", "set", "-i", "t*").code == 0
    assert site.list_cached() == ["two"]
    ran = proctor("dataset", "fetch", "set", "-i", "x*")
    assert (ran.code, ran.out) == (2, "")
    assert "set@1.0: no task is named x*; it has 2 tasks, such as one, two" in ran.err
    lines = [" ".join(line.split()) for line in proctor("dataset", "list", "set").out.splitlines()]
    assert lines[1] == f"source {site.url} at {site.repository.first[:12]}"
    assert lines[3:5] == ["task source state digest", "one tasks/one not fetched"]


def test_a_run_of_a_dataset_has_its_id_and_digest_on_record(
    run: Run, proctor: Proctor, site: Site, tmp_path: Path
) -> None:
    ran = run("-d", "set@1.0", *NULL)
    assert ran.code == 0, ran.err
    job = only_job(tmp_path)
    digest = json.loads(proctor("dataset", "list", "set", "--json").out)["digest"]
    assert load(job / "proctor.json")["datasets"] == [
        {"id": "set@1.0", "digest": digest, "n_tasks": 2, "n_listed": 2}
    ]
    assert {load(path)["dataset_id"] for path in job.glob("*/record.json")} == {"set@1.0"}
    assert load(job / "config.json")["datasets"][0]["registry_url"].endswith("/registry.json")
    assert {trial["task"]["git_commit_id"] for trial in load(job / "lock.json")["trials"]} == {
        site.repository.first
    }


def test_a_run_of_a_dataset_in_git_is_pinned_to_the_commit(
    run: Run, site: Site, tmp_path: Path
) -> None:
    ran = run("-d", f"git+{site.url}@main#subdirectory=tasks", *NULL, "-l", "1")
    assert ran.code == 0, ran.err
    job = only_job(tmp_path)
    (task,) = load(job / "config.json")["tasks"]
    assert (task["git_commit_id"], task["path"]) == (site.repository.first, "tasks/one")
    (record,) = job.glob("*/record.json")
    assert load(record)["dataset_id"] == f"repository@{site.repository.first}"


def test_a_quiet_run_of_a_dataset_in_git_shows_no_progress(
    run: Run, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A fetch of half a second shows nothing yet: what would show it must not be made.
    monkeypatch.setattr("proctor.cli.running.git_dataset.make_report", None)
    ran = run("-d", f"git+{site.url}@main#subdirectory=tasks", *NULL, "-l", "1", "-q")
    assert (ran.code, ran.err) == (0, "")


def test_a_registry_of_a_stranger_gets_a_sentence(proctor: Proctor, site: Site) -> None:
    for url, said in (
        ("ext::sh -c touch\t/tmp/x", "is not the URL of a git repository"),
        ("--upload-pack=x", "is not the URL of a git repository"),
        ("file:///etc", "is a repository on this machine"),
    ):
        site.url = url
        site.register(None, "one")
        for deed in (["list"], ["fetch"], ["fetch", "--verify"]):
            ran = proctor("dataset", *deed, "set")
            assert (ran.code, ran.out) == (2, "")
            assert said in ran.err
            assert "Traceback" not in ran.err
    assert not site.caches.tasks.exists()


@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGKILL])
def test_a_fetch_that_is_ended_leaves_a_cache_that_works(
    proctor: Proctor, site: Site, kind: signal.Signals
) -> None:
    site.server.hold.clear()
    child = subprocess.Popen(
        command_line("dataset", "fetch", "set"),
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    assert site.server.asked.wait(30)
    child.send_signal(kind)
    _, err = child.communicate(timeout=30)
    assert child.returncode == (130 if kind is signal.SIGINT else -signal.SIGKILL), err
    assert site.list_cached() == []
    if kind is signal.SIGINT:
        assert site.list_left() == []
    site.server.hold.set()
    ran = proctor("dataset", "fetch", "set")
    assert ran.code == 0, ran.err
    assert site.list_cached() == ["one", "two"]
    assert site.list_left() == []


def test_a_run_that_is_interrupted_while_it_fetches_ends_at_once(
    site: Site, tmp_path: Path
) -> None:
    site.server.hold.clear()
    child = subprocess.Popen(
        command_line("run", "-o", tmp_path / "jobs", "-d", "set", *NULL, "--no-ledger"),
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    assert site.server.asked.wait(30)
    os.kill(child.pid, signal.SIGINT)
    _, err = child.communicate(timeout=20)
    assert child.returncode == 130, err
    assert not (tmp_path / "jobs").exists()
    assert site.list_left() == []
