"""The images that `task try`, `task try --shell` and `audit --rerun` pull, from a real registry."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from proctor.environments.sandbox.roots.image import Image
from proctor.environments.sandbox.roots.images import ImageStore
from tests.cli.programs import Proctor, Ran, run_child
from tests.cli.test_run import make_task
from tests.environments.sandbox.registries import free_port, needs_programs, push, real_registry
from tests.environments.sandbox.rootfs import make_rootfs, pack
from tests.environments.sandbox.saved import Saved, as_directory, layer, layout_files

pytestmark = [pytest.mark.sandbox, pytest.mark.usefixtures("empty_cache"), needs_programs]
SOLUTION = "#!/bin/sh\ncat /srv/words > /srv/answer\n"
TEST = (
    'test "$(cat /srv/answer)" = first && reward=1 || reward=0\n'
    "echo $reward > /logs/verifier/reward.txt\n"
)


class Site:
    """A registry with one image, whose tag can be moved."""

    def __init__(self, place: Path, host: str) -> None:
        self.place = place
        self.host = host
        self.bottom = pack(make_rootfs(place / "root"), place / "root.tar").read_bytes()

    def publish(self, words: str) -> str:
        """Push an image that has these words, under the same tag each time."""
        layout = self.place / words
        if not layout.exists():
            layout.mkdir()
            layers = (self.bottom, layer(("srv/words", words)))
            as_directory(layout, layout_files(Saved(layers, "gzip", tags=("1",))))
        return push(layout, "1", self.host, "tool:1")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    place = tmp_path_factory.mktemp("site")
    with real_registry(place / "registry") as host:
        yield Site(place, host)


def write_task(directory: Path, reference: str) -> Path:
    task = make_task(directory)
    (task / "environment" / "Dockerfile").write_text(f"FROM {reference}\n", encoding="utf-8")
    (task / "solution").mkdir(exist_ok=True)
    (task / "solution" / "solve.sh").write_text(SOLUTION, encoding="utf-8")
    (task / "tests" / "test.sh").write_text(TEST, encoding="utf-8")
    return task


def stored(reference: str) -> Image:
    image = ImageStore().find(reference)
    assert image is not None
    return image


def try_once(proctor: Proctor, task: Path, *more: object) -> Ran:
    return proctor("task", "try", task, "-k", "1", *more)


def test_a_task_is_tried_on_the_image_that_it_names(
    proctor: Proctor, site: Site, tmp_path: Path
) -> None:
    reference = site.publish("first")
    ran = try_once(proctor, write_task(tmp_path / "task", reference))
    assert (ran.code, "base-substituted" in ran.out) == (0, False), ran
    assert stored(reference).layers


@pytest.mark.parametrize("command", [("task", "try"), ("task", "try", "--shell")])
def test_an_image_that_cannot_be_had_is_refused_as_by_run(
    proctor: Proctor, tmp_path: Path, command: tuple[str, ...]
) -> None:
    reference = f"127.0.0.1:{free_port()}/tool:1"
    task = write_task(tmp_path / "task", reference)
    for more, reason in (((), "cannot be reached"), (("--offline",), "not in the image store")):
        ran = proctor(*command, task, *more)
        assert (ran.code, ran.out) == (2, "")
        assert f"1 of 1 images that the tasks need could not be obtained: {reference}: " in ran.err
        assert reason in ran.err
        assert "--base host runs these tasks on this machine's own system instead" in ran.err


def test_base_and_its_variable_pull_nothing(
    proctor: Proctor, site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = write_task(tmp_path / "task", f"127.0.0.1:{free_port()}/tool:1")
    assert "base-substituted" in try_once(proctor, task, "--base", "host").out
    monkeypatch.setenv("PROCTOR_BASE", "host")
    assert "base-substituted" in try_once(proctor, task).out
    proctor("image", "pull", site.publish("first"), "--as", "base:1")
    monkeypatch.setenv("PROCTOR_BASE", "base:1")
    ran = try_once(proctor, task)
    assert ran.code == 0, ran
    assert "base:1" in ran.out
    assert "base-substituted" in ran.out


def test_a_shell_opens_on_the_image(site: Site, tmp_path: Path) -> None:
    task = write_task(tmp_path / "task", site.publish("first"))
    ran = run_child("task", "try", task, "--shell", stdin="cat /srv/words\n")
    assert (ran.code, ran.out) == (0, "first"), ran


def run_job(tmp_path: Path) -> Path:
    """Run a job in a process that ends: images in use are not removed."""
    jobs = ("-o", tmp_path / "jobs", "--job-name", "one", "-q", "--no-ledger")
    ran = run_child("run", "-p", tmp_path / "task", "-a", "oracle", *jobs)
    assert ran.code == 0, ran.err
    return tmp_path / "jobs" / "one"


def remove(proctor: Proctor, reference: str) -> None:
    ran = proctor("image", "prune", reference)
    assert ran.code == 0, ran.err


def rerun(job: Path, *more: object) -> dict[str, Any]:
    out = job.parent.parent / "reruns"
    ran = run_child("audit", job, "--rerun", 1, "-o", out, "--json", *more)
    (found,) = json.loads(ran.out)["reruns"]
    return {**found, "code": ran.code}


def test_a_rerun_pulls_the_recorded_digest_and_not_the_tag(
    proctor: Proctor, site: Site, tmp_path: Path
) -> None:
    reference = site.publish("first")
    write_task(tmp_path / "task", reference)
    job = run_job(tmp_path)
    then = stored(reference)
    site.publish("second")
    remove(proctor, reference)
    offline = rerun(job, "--offline")
    assert (offline["verdict"], offline["code"]) == ("not replayable", 3)
    assert f"could not be obtained: {reference}: not in the image store" in offline["reason"]
    found = rerun(job)
    assert (found["verdict"], found["notes"]) == ("reproduced", []), found
    assert stored(reference).digest == then.digest
    moved = proctor("image", "pull", reference)
    assert "the name referred to" in moved.out
    refused = rerun(job)
    assert (refused["verdict"], refused["code"]) == ("not replayable", 3)
    assert f"{reference}: the trial ran on sha256:{then.digest[:12]}…" in refused["reason"]
    remedy = refused["reason"].partition("run `proctor ")[2].partition("`")[0].split()
    assert proctor(*remedy).code == 0
    assert rerun(job)["verdict"] == "reproduced"


def test_a_rerun_on_another_base_pulls_nothing(
    proctor: Proctor, site: Site, tmp_path: Path
) -> None:
    reference = site.publish("first")
    write_task(tmp_path / "task", reference)
    job = run_job(tmp_path)
    remove(proctor, reference)
    found = rerun(job, "--base", "host")
    assert (found["verdict"], found["code"]) == ("differs", 1)
    assert any("; now host:" in note for note in found["notes"])
    assert ImageStore().find(reference) is None


def test_a_record_makes_a_rerun_pull_nothing_that_its_task_does_not_name(
    proctor: Proctor, site: Site, tmp_path: Path
) -> None:
    reference = site.publish("first")
    write_task(tmp_path / "task", reference)
    job = run_job(tmp_path)
    image = stored(reference)
    (record,) = job.glob("*/record.json")
    record.write_text(record.read_text().replace(image.pin, f"127.0.0.1:1/x:1@sha256:{'0' * 64}"))
    remove(proctor, reference)
    assert "could not be obtained" not in rerun(job)["reason"]
    assert ImageStore().list_images() == []
