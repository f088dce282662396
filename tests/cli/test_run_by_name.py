"""One command runs a task of a dataset by name in its own image: fetched, pulled, without Docker.

A git server, a registry of datasets and a registry of images on this machine stand for the
published ones; the command is the README's.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.programs import Proctor, Ran
from tests.cli.test_image_pull import publish, task_from
from tests.environments.sandbox.registries import small_registry
from tests.environments.sandbox.rootfs import make_rootfs, pack
from tests.job.git_server import git_server
from tests.job.test_dataset_fetch import Site
from tests.ordinary_user import environment, ordinary_home, run_as_ordinary_user

pytestmark = pytest.mark.sandbox

COMMAND = ("run", "-d", "set@1.0", "-i", "three", "-a", "nop", "-q", "--job-name", "one")


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """A published dataset with the task `three`, whose image a registry has; where it is."""
    bottom = pack(make_rootfs(tmp_path / "root"), tmp_path / "root.tar").read_bytes()
    with git_server(tmp_path) as server, small_registry() as registry:
        site = Site(tmp_path, server)
        reference = publish(registry, bottom, "first")
        task_from(site.repository.tree / "tasks" / "three", reference)
        site.register(site.repository.commit("three"), "one", "two", "three")
        yield f"{server.url}/registry.json"


def check(ran: Ran, top: Path) -> None:
    assert ran.code == 0, ran.err
    (trial,) = (top / "jobs" / "one").glob("three__*")
    result = json.loads((trial / "result.json").read_text())
    assert result["verifier_result"]["rewards"] == {"reward": 1.0}
    record = json.loads((trial / "record.json").read_text())
    assert record["dataset_id"] == "set@1.0"
    assert "/tool" in record["environment"]["runtime_image"]
    assert "@sha256:" in record["environment"]["runtime_image"]
    assert "base-substituted" not in ran.out + ran.err


def test_by_root(
    proctor: Proctor, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROCTOR_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PROCTOR_REGISTRY", address)
    monkeypatch.delenv("PROCTOR_BASE", raising=False)
    monkeypatch.chdir(tmp_path)
    check(proctor(*COMMAND), tmp_path)


def test_by_an_ordinary_user(address: str) -> None:
    with ordinary_home() as home:
        env = {**environment(home), "PROCTOR_REGISTRY": address}
        del env["PROCTOR_BASE"]
        check(run_as_ordinary_user("proctor", *COMMAND, home=home, env=env), home)
