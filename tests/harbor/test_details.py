"""What a trial says of itself, and what is no trial."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from proctor.errors import JobError
from proctor.harbor.documents import (
    AgentReport,
    LockDocument,
    TaskConfig,
    TimedPhase,
    TrialConfigDocument,
    check_is_trial,
    load_config,
    load_details,
    load_lock,
)
from proctor.harbor.record import find_seconds
from tests.audit.directories import COPIED, find_trial

JOB = COPIED / "04-binary-scripted-k5"
EARLY, LATE = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, 0, 1, tzinfo=UTC)


def test_a_real_trial(tmp_path: Path) -> None:
    trial = find_trial(JOB, "pass-two")
    check_is_trial(str(trial))
    details = load_details(str(trial))
    assert details is not None
    assert details.config == load_config(str(trial))
    assert details.agent_info.version == "0.0.1"
    assert load_details(str(tmp_path)) is None


def test_the_whole_report_of_the_agent_is_read_without_odd_counts(tmp_path: Path) -> None:
    written = {"n_input_tokens": "many", "cost_usd": 0.5, "metadata": {"a": 1}}
    document = {"config": {}, "agent_result": written}
    (tmp_path / "result.json").write_text(json.dumps(document), encoding="utf-8")
    details = load_details(str(tmp_path))
    assert details is not None
    assert details.agent_result == AgentReport(cost_usd=0.5, metadata={"a": 1})


@pytest.mark.parametrize(
    ("phase", "seconds"),
    [
        (TimedPhase(EARLY, LATE), 60.0),
        (TimedPhase(EARLY, EARLY), 0.0),
        (TimedPhase(LATE, EARLY), None),
        (TimedPhase(None, LATE), None),
        (TimedPhase(EARLY, None), None),
        (TimedPhase(EARLY.replace(tzinfo=None), LATE), None),
        (TimedPhase(EARLY.replace(tzinfo=None), LATE.replace(tzinfo=None)), 60.0),
    ],
)
def test_seconds_of_a_phase(phase: TimedPhase, seconds: float | None) -> None:
    assert find_seconds(phase) == seconds


def test_the_lock_pins_the_task_of_a_trial(tmp_path: Path) -> None:
    lock = load_lock(str(JOB))
    assert lock is not None
    task = load_config(str(find_trial(JOB, "pass-two")))["task"]
    digest = lock.find_digest(task["path"], task["name"])
    assert digest is not None
    assert digest.startswith("sha256:")
    assert lock.harbor.version == "0.13.1"
    assert load_lock(str(tmp_path)) is None


def test_a_task_is_found_by_path_else_by_name_and_only_if_it_is_one() -> None:
    tasks = [
        TaskConfig(name="a", path="x/a", digest="1"),
        TaskConfig(name="b", digest="2"),
        TaskConfig(name="c", path="x/c", digest="3"),
        TaskConfig(name="c", path="x/c", digest="4"),
    ]
    lock = LockDocument(trials=[TrialConfigDocument(task) for task in tasks for _ in range(2)])
    assert lock.find_digest("x/a", None) == "1"
    assert lock.find_digest(None, "b") == "2"
    for path, name in (("x/c", None), ("y", None), (["odd"], None), (None, None)):
        assert lock.find_digest(path, name) is None


def test_what_is_no_trial_is_refused(tmp_path: Path) -> None:
    with pytest.raises(JobError, match="nowhere: no such directory; expected the directory"):
        check_is_trial(str(tmp_path / "nowhere"))
    with pytest.raises(JobError, match="neither result"):
        check_is_trial(str(tmp_path))
    (tmp_path / "file").touch()
    with pytest.raises(JobError, match="file: not a directory"):
        check_is_trial(str(tmp_path / "file"))
    with pytest.raises(JobError, match="a job; expected one of the trial directories in it"):
        check_is_trial(str(JOB))


@pytest.mark.parametrize("name", ["result.json", "config.json"])
def test_a_link_is_not_harbor_s_own_file(tmp_path: Path, name: str) -> None:
    (tmp_path / name).symlink_to(find_trial(JOB, "pass-two") / name)
    with pytest.raises(JobError, match=rf"{name}: a link that leads out of the trial"):
        check_is_trial(str(tmp_path))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"task_name": "a"', "torn or not JSON"),
        ("", "torn or not JSON"),
        ('{"config": ' + '{"a": ' * 100_000, "torn or not JSON"),
        ("{}", "not as harbor writes it: Object missing required field `config`"),
    ],
    ids=["torn", "empty", "deep", "another"],
)
def test_a_torn_result_is_refused(tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / "result.json").write_text(text, encoding="utf-8")
    with pytest.raises(JobError, match=why):
        load_details(str(tmp_path))
