"""A disk that is full: below the jobs, below the sandboxes, below the cache."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from proctor.environments.sandbox.syscalls import mount, unmount
from tests.faults.site import Site, file_bytes, load

MS_REMOUNT = 32
FULL = "No space left on device"

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")

type Disk = Callable[[Path, str], Path]


@pytest.fixture
def disk(site: Site) -> Iterator[Disk]:
    """Small disks, for as long as the test lasts."""

    def make(directory: Path, size: str) -> Path:
        directory.mkdir(parents=True, exist_ok=True)
        mount("none", str(directory), "tmpfs", options=f"size={size},mode=700")
        site.disks.append(directory)
        return directory

    yield make
    for directory in site.disks:
        unmount(str(directory))


def grow(directory: Path) -> None:
    """Make room."""
    mount("none", str(directory), flags=MS_REMOUNT, options="size=128m")


@pytest.mark.parametrize(
    ("size", "said"),
    [
        ("4k", "no trial was started. Free space there, or use another directory: --jobs-dir"),
        ("16k", "the job cannot continue without its own files"),
    ],
)
def test_a_job_whose_own_files_do_not_fit_is_refused_and_can_be_gone_on_with(
    site: Site, disk: Disk, size: str, said: str
) -> None:
    site.make_task("a")
    jobs = disk(site.jobs, size)
    words = ("-p", site.top / "tasks", "--command", "true")
    ran = site.run(*words)
    assert ran.code == 2
    assert f"cannot be written: {FULL}; {said}" in ran.err
    assert "Traceback" not in ran.err
    grow(jobs)
    assert site.run(*words).code == 0
    assert site.rewards() == [1.0]
    site.check_nothing_left()


def test_a_trial_whose_files_do_not_fit_is_errored_and_loses_nothing(
    site: Site, disk: Disk
) -> None:
    site.make_task("a")
    jobs = disk(site.jobs, "120k")
    prints = "head -c 200000 /dev/urandom > /logs/agent/big; echo words > /logs/agent/words.txt"
    ran = site.run("-p", site.top / "tasks", "--command", prints)
    # Whether the job's own last file still fits is chance.
    assert ran.code in (0, 2, 3)
    assert "Traceback" not in ran.err
    assert "SandboxError" in ran.err
    (trial,) = site.trials()
    assert not [name for name in file_bytes(trial) if "big" in name]
    assert len(site.sandboxes()) == 1
    grow(jobs)
    assert site.proctor("clean").code == 0
    files = file_bytes(trial)
    assert (len(files["agent/big"]), files["agent/words.txt"]) == (200_000, b"words\n")
    ran = site.proctor("resume", site.job, "--also", "SandboxError")
    assert ran.code == 0, ran.err
    assert (site.rewards(), site.errors()) == ([1.0], [])
    assert files["agent/big"] == (trial / "attempts" / "1" / "agent" / "big").read_bytes()
    site.check_nothing_left()


def test_where_no_sandbox_fits_the_job_is_refused_and_leaves_no_trace(
    site: Site, disk: Disk
) -> None:
    task = site.make_task("t")
    scratch = disk(site.top / "scratch", "64k,nr_inodes=6")
    site.env = {"PROCTOR_SCRATCH": str(scratch)}
    ran = site.run("-p", task, "--command", "true")
    assert ran.code == 2
    assert ran.err.startswith("proctor: ")
    assert (ran.err.count("\n"), FULL in ran.err) == (1, True)
    assert not site.jobs.exists()
    site.check_nothing_left()


def test_a_layer_that_does_not_fit_is_an_error_and_leaves_no_half(site: Site, disk: Disk) -> None:
    site.make_task("a", dockerfile="RUN head -c 64000000 /dev/zero > /big\n")
    site.make_task("b")
    cache = disk(site.top / "cache", "16m")
    site.env = {"PROCTOR_SCRATCH": str(site.top / "scratch")}
    ran = site.run("-p", site.top / "tasks", "--command", "true")
    assert ran.code == 3, ran.err
    ((_, message),) = site.errors()
    assert message.startswith("Build failed: RUN head -c 64000000")
    assert FULL in message
    assert site.rewards() == [None, 1.0]
    assert not list(cache.rglob("big"))
    grow(cache)
    ran = site.proctor("resume", site.job, "--also", "RuntimeError")
    assert (ran.code, site.rewards()) == (0, [1.0, 1.0]), ran.err
    assert load(site.job / "result.json")["finished_at"] is not None
    site.check_nothing_left()


def test_an_agent_that_fills_the_disk_of_its_sandbox_meets_its_own_error(
    site: Site, disk: Disk
) -> None:
    site.make_task("a")
    scratch = disk(site.top / "scratch", "16m")
    site.env = {"PROCTOR_SCRATCH": str(scratch)}
    fills = "said=$(head -c 64M /dev/zero 2>&1 > /big); rm /big; echo $said > /logs/agent/said.txt"
    ran = site.run("-p", site.top / "tasks", "--command", fills)
    assert (ran.code, site.rewards()) == (0, [1.0]), ran.err
    assert FULL in (site.trials()[0] / "agent" / "said.txt").read_text()
    site.check_nothing_left()
