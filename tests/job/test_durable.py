"""What a job that is over counts is on the disk; while it runs, nobody waits for that."""

import asyncio
import os
from pathlib import Path

import pytest

from proctor.job.durable import Durable
from tests.job.jobs import make_config, make_tasks, run


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths that were brought to the disk, in order."""
    seen: list[str] = []
    fsync = os.fsync

    def note(fd: int) -> None:
        seen.append(str(Path(f"/proc/self/fd/{fd}").readlink()))
        fsync(fd)

    monkeypatch.setattr(os, "fsync", note)
    return seen


def test_every_result_is_on_the_disk_before_the_jobs_own(tmp_path: Path, synced: list[str]) -> None:
    dataset = make_tasks(tmp_path / "set", ["a", "b"])
    outcome = run(make_config(dataset, tmp_path / "jobs", n_attempts=2))
    results = {str(path) for path in outcome.directory.glob("*/result.json")}
    assert len(results) == 4
    assert results | {str(Path(path).parent) for path in results} <= set(synced)
    # The last thing of all is the job's own result and the name of it.
    *_, result, directory = synced
    assert Path(result).parent == outcome.directory
    assert directory == str(outcome.directory)


def test_a_result_that_is_not_there_any_more_is_passed_over(tmp_path: Path) -> None:
    said: list[str] = []
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "result.json").touch()
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / "result.json").symlink_to(tmp_path / "here" / "result.json")

    async def sync() -> None:
        durable = Durable(str(tmp_path), said.append)
        for trial in ("gone", "odd", "here"):
            durable.note(trial)
        durable.begin()
        durable.note("here")
        await durable.finish()

    asyncio.run(sync())
    (sentence,) = said
    assert sentence.startswith(f"{tmp_path}/odd/result.json may not be on the disk: ")
