"""A job's own files: whole, read back as they were written, and held by one process at a time."""

import json
import os
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from uuid import uuid4

import msgspec
import pytest

from proctor.errors import JobError
from proctor.job.settings import Settings
from proctor.job.store import (
    ChosenEnvironment,
    JobState,
    NamedSlot,
    held_job,
    load_config,
    load_state,
)


def make_state() -> JobState:
    return JobState(
        proctor="0.1.0",
        job_id=uuid4(),
        started_at=datetime(2026, 1, 2, 3, 4, 5),  # noqa: DTZ001 - local time, as in result.json
        cwd="/somewhere",
        settings=Settings(dataset_id="d@1", strict_tasks=True).model_dump(mode="json"),
        environment=ChosenEnvironment("null", "asked for"),
        slots=[NamedSlot(0, "k0", "a__1"), NamedSlot(1, "k1", "b__1")],
    )


def test_the_state_comes_back_as_it_was_written(tmp_path: Path) -> None:
    state = make_state()
    with held_job(tmp_path) as files:
        files.write_state(state)
    assert load_state(tmp_path) == state
    assert state.read_settings("x") == Settings(dataset_id="d@1", strict_tasks=True)


def test_the_state_of_a_large_job_has_every_key_once(tmp_path: Path) -> None:
    slots = [NamedSlot(at, f"{at % 3:064}", f"task-{at % 3}__{at:07}") for at in range(3000)]
    state = msgspec.structs.replace(make_state(), slots=slots)
    with held_job(tmp_path) as files:
        files.write_state(state, many=2999)
    assert load_state(tmp_path) == state
    assert (tmp_path / "proctor.json").stat().st_size < 3000 * 30


@pytest.mark.parametrize("slot", ["[9, 't']", "[-1, 't']", "['k', 't']", "[0]", "'t'", "7"])
def test_a_slot_without_its_key_is_refused(tmp_path: Path, slot: str) -> None:
    state = msgspec.structs.replace(make_state(), slots=[NamedSlot(0, "k", "t")])
    with held_job(tmp_path) as files:
        files.write_state(state, many=0)
    text = (tmp_path / "proctor.json").read_text()
    assert '[0,"t"]' in text
    (tmp_path / "proctor.json").write_text(text.replace('[0,"t"]', slot.replace("'", '"')))
    with pytest.raises(JobError, match=r"proctor\.json: not as proctor writes it"):
        load_state(tmp_path)


def test_a_directory_without_files_is_no_job_yet(tmp_path: Path) -> None:
    assert load_state(tmp_path) is None
    assert load_config(tmp_path) is None


@pytest.mark.parametrize("text", ["", "{", '{"proctor": 1}', "[]"])
def test_a_state_that_is_none_is_refused_with_a_way_on(tmp_path: Path, text: str) -> None:
    (tmp_path / "proctor.json").write_text(text, encoding="utf-8")
    with pytest.raises(JobError, match=r"proctor\.json: not as proctor writes it.*move it away"):
        load_state(tmp_path)


@pytest.mark.parametrize("text", ["", "{}", '{"job_name": []}'])
def test_a_config_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text, encoding="utf-8")
    with pytest.raises(JobError, match=r"config\.json: not a job's config"):
        load_config(tmp_path)


@pytest.mark.parametrize(
    ("environment", "found"),
    [
        (None, ("docker", None)),
        ({"delete": False}, ("docker", None)),
        ({"import_path": "a:B"}, (None, "a:B")),
        ({"type": "modal"}, ("modal", None)),
    ],
)
def test_the_environment_that_a_later_harbor_leaves_out_is_docker(
    tmp_path: Path, environment: object, found: tuple[str | None, str | None]
) -> None:
    stated = {"environment": environment} if environment else {}
    (tmp_path / "config.json").write_text(json.dumps({"job_name": "j", **stated}))
    config = load_config(tmp_path)
    assert config is not None
    assert (config.environment.type, config.environment.import_path) == found


def test_an_earlier_lock_stays_beside_the_new_one(tmp_path: Path) -> None:
    with held_job(tmp_path) as files:
        for text in (b"first", b"second", b"third"):
            files.write_lock(text)
    read = {path.name: path.read_bytes() for path in tmp_path.glob("*.json")}
    assert read == {"lock.json": b"third", "lock.1.json": b"first", "lock.2.json": b"second"}


def test_a_file_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    for name in ("result.json", "job.log"):
        (tmp_path / name).mkdir()
    with held_job(tmp_path) as files:
        with pytest.raises(JobError, match=r"/result\.json: cannot be written: not a plain file"):
            files.write_result("{}")
        with pytest.raises(JobError, match=r"/job\.log: cannot be written"):
            files.append_log("words")


def test_nothing_is_written_into_a_directory_that_is_not_the_jobs_any_more(tmp_path: Path) -> None:
    with held_job(tmp_path / "job") as files:
        (tmp_path / "job").rename(tmp_path / "away")
        (tmp_path / "job").mkdir()
        with pytest.raises(JobError, match="the job's directory was removed while the job runs"):
            files.write_result("{}")
        assert list((tmp_path / "job").iterdir()) == []


HOLD = """
import sys
from pathlib import Path
from proctor.job.store import held_job
with held_job(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_second_process_is_refused_and_told_of_the_first(tmp_path: Path) -> None:
    job = tmp_path / "jobs" / "job"
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(job)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        assert other.stdin is not None
        assert other.stdout.readline() == b"held\n"
        with (
            pytest.raises(JobError, match=f"process {other.pid} is running this job"),
            held_job(job),
        ):
            pass
        other.stdin.close()
        other.wait()
        with held_job(job) as files:
            files.append_log("mine now")


def test_what_a_killed_holder_left_is_no_obstacle(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        other.kill()
        other.wait()
        with held_job(tmp_path):
            assert (tmp_path / "runner.lock").read_text(encoding="ascii") == f"{os.getpid()}\n"


def test_a_place_that_cannot_be_made_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with (
        pytest.raises(JobError, match="cannot be made: Not a directory"),
        held_job(tmp_path / "file" / "job"),
    ):
        pass
