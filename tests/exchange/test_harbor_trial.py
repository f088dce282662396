"""Every real trial gives a record; the same bytes give the same one; what cannot be is refused."""

import time
from functools import cache
from pathlib import Path

import pytest

from proctor.errors import InputError, JobError, RecordError
from proctor.exchange.harbor_trial import RecordRequest, make_record
from proctor.record.read import parse_record, render_record
from proctor.record.rules import check_record, find_missing
from tests.audit.directories import listing
from tests.exchange.trials import (
    TRIALS,
    copy_trial,
    edit_result,
    find_task,
    make,
    sha256sum,
    write_trajectory,
)

KILLED = {"slow-2__GCsWVF8", "slow-3__angZadM"}

every_trial = pytest.mark.parametrize(
    "trial", TRIALS, ids=[f"{path.parent.name}/{path.name}" for path in TRIALS]
)


@cache
def digests_of(task: Path) -> dict[str, str]:
    files = [path for path in sorted(task.rglob("*")) if path.is_file()]
    return {path.relative_to(task).as_posix(): hash_ for path, hash_ in sha256sum(*files).items()}


def test_all_real_trials_are_here() -> None:
    assert len(TRIALS) == 197
    assert sum((find_task(trial) / "task.toml").exists() for trial in TRIALS) == 177


@every_trial
def test_a_real_trial_gives_a_record(trial: Path) -> None:
    made = make(trial)
    data = render_record(made.record)
    again = parse_record(data, "test")
    check_record(again.record)
    assert (again.record, again.generation, again.diagnostics) == (made.record, "G1", ())
    assert render_record(again.record) == data
    assert made.record.completeness == "partial"
    fields = [missing.field for missing in find_missing(made.record)]
    revision = ["agent.adapter_revision"] if trial.name in KILLED else []
    assert fields == [*revision, "inputs.input_files"]


@every_trial
def test_with_its_task_a_real_trial_gives_a_complete_record(trial: Path) -> None:
    task = find_task(trial)
    if not (task / "task.toml").exists():
        with pytest.raises(InputError, match=r"not a valid task|no such"):
            make(trial, task=task)
        return
    made = make(trial, task=task)
    check_record(made.record)
    assert made.record.completeness == "complete"
    files = made.record.inputs.input_files
    assert files is not None
    assert {file.path: file.hash for file in files} == digests_of(task)
    # What was recomputed is what the job recorded.
    assert made.record.task == make(trial).record.task


def test_nothing_in_the_trial_changes_and_twice_is_the_same(tmp_path: Path) -> None:
    trial = copy_trial(tmp_path)
    before = listing(trial.parent)
    made = make(trial, task=find_task(trial))
    assert make(trial, task=find_task(trial)) == made
    assert listing(trial.parent) == before


@pytest.mark.parametrize("zone", ["UTC", "Pacific/Kiritimati", "America/St_Johns"])
def test_clock_and_directory_of_the_reader_do_not_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, zone: str
) -> None:
    trial = copy_trial(tmp_path / "here")
    edit_result(trial, started_at="2026-01-01T00:00:00", finished_at="2026-01-01T00:00:05.5")
    write_trajectory(trial)
    made = make(trial)
    assert made.record.timestamp.isoformat() == "2026-01-01T00:00:05.500000+00:00"
    assert made.record.timing.total_seconds == 5.5
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        monkeypatch.chdir(trial.parent)
        assert make(Path(trial.name)) == made
        assert make(trial.parent.rename(tmp_path / "moved") / trial.name) == made
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize("moment", ["0001-01-01T00:00:00+05:00", "9999-12-31T23:59:59-05:00"])
def test_a_time_that_is_none_in_utc_is_refused(tmp_path: Path, moment: str) -> None:
    trial = copy_trial(tmp_path)
    edit_result(trial, finished_at=moment)
    with pytest.raises(JobError, match="is out of range in UTC"):
        make(trial)


def test_a_killed_trial_is_dated_by_its_job_and_refused_without_it(tmp_path: Path) -> None:
    trial = copy_trial(tmp_path, "31-killed-before-resume", "slow-2")
    made = make(trial)
    output = made.record.outputs.agent_output
    assert output is not None
    assert output.status == "failed"
    assert made.record.evaluation.reward is None
    assert made.record.evaluation.validity.errors == (
        "the trial was killed before it wrote a result",
    )
    (trial.parent / "lock.json").unlink()
    with pytest.raises(JobError, match="its time is not recorded; expected times in"):
        make(trial)


def test_without_a_lock_the_harbor_is_not_known(tmp_path: Path) -> None:
    trial = copy_trial(tmp_path)
    (trial.parent / "lock.json").unlink()
    made = make(trial, task=find_task(trial))
    assert made.record.completeness == "partial"
    missing = [str(each) for each in find_missing(made.record)]
    assert missing == ["environment.tool_versions is missing"]


@pytest.mark.parametrize("version", [None, "", " ", "unknown"])
def test_an_agent_without_a_version_leaves_a_record_partial(
    tmp_path: Path, version: str | None
) -> None:
    trial = copy_trial(tmp_path)
    edit_result(trial, agent_info__version=version)
    made = make(trial, task=find_task(trial))
    assert made.record.completeness == "partial"
    missing = [str(each) for each in find_missing(made.record)]
    assert missing == ["agent.adapter_revision is missing"]


def test_names_that_are_no_ids(tmp_path: Path) -> None:
    trial = copy_trial(tmp_path)
    with pytest.raises(RecordError, match=r"experiment is '\.\./up'; expected 1 to 200"):
        make_record(RecordRequest(trial=str(trial), experiment="../up"))
    edit_result(trial, trial_name="pass two/é")
    first = make(trial).record.trial_id
    edit_result(trial, trial_name="pass two/è")
    second = make(trial).record.trial_id
    assert [name.rpartition("-")[0] for name in (first, second)] == ["pass-two", "pass-two"]
    assert first != second


def test_a_dataset_is_taken_as_given(tmp_path: Path) -> None:
    trial = copy_trial(tmp_path)
    assert make(trial, dataset_id="binary@1").record.dataset_id == "binary@1"


@pytest.mark.parametrize("name", ["", " ", "a@1\n", "../../up@1", "x" * 301])
def test_a_dataset_that_cannot_be_looked_up_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(RecordError, match=r"dataset_id is .*expected name@version"):
        make(copy_trial(tmp_path), dataset_id=name)


@pytest.mark.parametrize("version", ["latest", "N/A", "Unresolved"])
def test_a_word_for_no_version_leaves_a_record_partial(tmp_path: Path, version: str) -> None:
    trial = copy_trial(tmp_path)
    edit_result(trial, agent_info__version=version)
    made = make(trial, task=find_task(trial))
    assert made.record.agent.adapter_revision == version
    assert [str(missing) for missing in find_missing(made.record)] == [
        f"agent.adapter_revision is {version!r}, which is not a revision"
    ]


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({"task_name": ""}, "task_id: expected text that is not blank"),
        ({"agent_info__name": " "}, "adapter: expected text that is not blank"),
    ],
)
def test_what_a_record_cannot_hold_is_refused(
    tmp_path: Path, changes: dict[str, object], where: str
) -> None:
    trial = copy_trial(tmp_path)
    edit_result(trial, **changes)
    with pytest.raises(RecordError, match=where):
        make(trial)


def test_metadata_that_no_record_can_hold_is_left_out(tmp_path: Path) -> None:
    trial = copy_trial(tmp_path)
    deep: dict[str, object] = {}
    for _ in range(200):
        deep = {"a": deep}
    edit_result(trial, agent_result__metadata=deep)
    made = make(trial)
    assert (made.record.outputs.agent_result or {})["metadata"] is None
