"""Every real trial gives a record; the same bytes give the same one; what cannot be is refused."""

import os
import time
from functools import cache
from pathlib import Path

import pytest

from proctor.errors import InputError, JobError, RecordError
from proctor.exchange.harbor_trial import RecordRequest, make_record
from proctor.record.model import AdaptationProvenance
from proctor.record.read import parse_record, render_record
from proctor.record.rules import check_record
from proctor.traces.writer import Redactor
from tests.audit.directories import listing
from tests.exchange.trials import (
    NO_IMAGE,
    TRIALS,
    copy_trial,
    edit_result,
    find_task,
    make,
    sha256sum,
    write_trajectory,
)

ADAPTATION: dict[str, object] = {
    "family_id": "beams",
    "seed_task_id": "beam",
    "variation_key": "span",
    "variation": {"span": "long"},
}
SECRET = 'sk-"quoted"\\päss'  # noqa: S105
KILLED = {"slow-2__GCsWVF8", "slow-3__angZadM"}
WITHOUT_TASK = ("inputs.input_files",)

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
    killed = trial.name in KILLED
    expected = ("agent.adapter_revision", *WITHOUT_TASK, "evaluation", "timing.total_seconds")
    fields = tuple(missing.field for missing in made.missing)
    assert fields == (expected if killed else WITHOUT_TASK)
    assert NO_IMAGE in made.notes


@every_trial
def test_with_its_task_a_real_trial_gives_a_complete_record(trial: Path) -> None:
    task = find_task(trial)
    if not (task / "task.toml").exists():
        with pytest.raises(InputError, match=r"not a valid task|no such"):
            make(trial, task=task)
        return
    made = make(trial, task=task)
    check_record(made.record)
    assert (made.record.completeness, made.missing) == ("complete", ())
    files = made.record.inputs.input_files
    assert files is not None
    assert {file.path: file.hash for file in files} == digests_of(task)
    assert made.pins.is_task_recomputed
    # What was recomputed is what the job recorded.
    bare = make(trial)
    assert made.record.task == bare.record.task
    assert made.pins.task_lock_digest == bare.pins.task_lock_digest


def test_every_file_of_a_trial_is_evidence() -> None:
    trial = find_real("10-multistep-oracle-mounted", "ms-mean")
    files = [path for path in sorted(trial.rglob("*")) if path.is_file()]
    pinned = {trial / file.path: file.sha256 for file in make(trial).evidence}
    assert pinned == sha256sum(*files)


def find_real(job: str, task: str) -> Path:
    return next(path for path in TRIALS if path.match(f"{job}/{task}__*"))


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
    write_trajectory(trial)  # a note will name it
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
    assert [str(missing) for missing in made.missing] == ["environment.tool_versions is missing"]


@pytest.mark.parametrize("version", [None, "", " ", "unknown"])
def test_an_agent_without_a_version_leaves_a_record_partial(
    tmp_path: Path, version: str | None
) -> None:
    trial = copy_trial(tmp_path)
    edit_result(trial, agent_info__version=version)
    made = make(trial, task=find_task(trial))
    assert [str(missing) for missing in made.missing] == ["agent.adapter_revision is missing"]


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


def test_dataset_and_adaptation_are_taken_as_given(tmp_path: Path) -> None:
    trial = copy_trial(tmp_path)
    adaptation = AdaptationProvenance.model_validate(ADAPTATION)
    made = make(trial, dataset_id="binary@1", adaptation=adaptation)
    assert (made.record.dataset_id, made.record.adaptation) == ("binary@1", adaptation)


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
    assert [str(missing) for missing in made.missing] == [
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
    assert (
        "the agent's metadata is nested more than 100 levels deep; "
        "outputs.agent_result.metadata is null"
    ) in made.notes


def leaking_trial(into: Path) -> Path:
    """A trial with a secret wherever a trial can have one."""
    trial = copy_trial(into)
    edit_result(
        trial,
        config__agent__model_name=f"acme/{SECRET}",
        config__agent__kwargs={"key": SECRET, SECRET: 1},
        agent_result__metadata={"nested": [f'{{"key": "{SECRET}"}}']},
        agent_info__version=SECRET,
    )
    edit_result(
        trial, exception_info={"exception_type": "E", "exception_message": "x" * 1980 + SECRET}
    )
    media = ["x" * 60 + SECRET]
    write_trajectory(trial, {"step": 1, "role": "user", "content": SECRET, "media": media})
    (trial / "artifacts" / "sk-plain-name").symlink_to("nowhere")
    (trial / "artifacts" / f"{SECRET}.txt".replace("/", "")).write_text("x", encoding="utf-8")
    return trial


def test_secrets_are_in_no_part_of_what_is_made(tmp_path: Path) -> None:
    trial = leaking_trial(tmp_path)
    redactor = Redactor({"KEY": SECRET, "NAME": "sk-plain-name"}, b"salt")
    made = make_record(RecordRequest(trial=str(trial), experiment="e"), redactor)
    assert "päss" not in repr(made)
    assert "sk-plain" not in repr(made)
    assert "[redacted:KEY]" in made.record.agent.model
    assert made.pins.model_requested == "acme/[redacted:KEY]"
    assert [hidden["name"] for hidden in made.redactions] == ["KEY", "NAME"]
    assert made.redactions[0]["count"] >= 8
    # Nor the half of one that a cut would have left.
    assert made.record.evaluation.validity.errors == (f"E: {'x' * 1980}[redacted:KEY]",)
    assert 'sk-"' not in repr(made)
    # The digest is of the configuration as the record has it: it can be computed again, and
    # nobody can try secrets on it.
    bare = make(trial)
    assert made.pins.configuration_sha256 != bare.pins.configuration_sha256


def test_a_secret_that_cannot_be_taken_out_is_refused(tmp_path: Path) -> None:
    trial = copy_trial(tmp_path)
    with pytest.raises(RecordError, match="a secret is where it cannot be removed"):
        make_record(
            RecordRequest(trial=str(trial), experiment="e"), Redactor({"KEY": "completeness"})
        )
    with pytest.raises(RecordError, match="a secret is where it cannot be removed"):
        make_record(RecordRequest(trial=str(trial), experiment="e"), Redactor({"KEY": "sha256"}))


def test_a_file_name_that_is_no_text_is_spelled_out(tmp_path: Path) -> None:
    trial = copy_trial(tmp_path)
    Path(os.fsdecode(os.fsencode(trial) + b"/artifacts/\xff.bin")).write_bytes(b"x")
    assert "artifacts/\\xff.bin" in [file.path for file in make(trial).evidence]
