"""The task, the agent's settings and the environment of a harbor trial."""

import shutil
from pathlib import Path

import pytest

from proctor.errors import JobError, TaskError
from proctor.task.digests import load_digests
from tests.audit.directories import edit_config, edit_json, read_json
from tests.exchange.trials import HARBOR, copy_trial, edit_result, find_task, make, sha256sum

PASS_TWO = HARBOR / "tasks" / "binary" / "pass-two"


def test_another_task_is_refused_with_both_digests(tmp_path: Path) -> None:
    trial = copy_trial(tmp_path)
    other = HARBOR / "tasks" / "binary" / "oracle-wrong"
    with pytest.raises(TaskError) as refused:
        make(trial, task=other)
    sat = read_json(trial / "result.json")["task_checksum"]
    assert str(refused.value) == (
        f"{other}: not the task of this trial: its task_checksum is "
        f"{load_digests(other).task_checksum}, the trial ran {sat}"
    )


def test_a_task_that_differs_from_the_lock_is_refused(tmp_path: Path) -> None:
    trial = copy_trial(tmp_path)
    edit_result(trial, task_checksum=None)
    with pytest.raises(TaskError, match=r"its lock digest is [0-9a-f]{64}, the trial ran"):
        make(trial, task=HARBOR / "tasks" / "binary" / "oracle-wrong")
    (trial.parent / "lock.json").unlink()
    assert make(trial, task=PASS_TWO).record.completeness == "partial"


@pytest.mark.parametrize("kept", ["both", "checksum", "lock", "neither"])
def test_a_task_that_could_not_be_compared_leaves_a_record_partial(
    tmp_path: Path, kept: str
) -> None:
    trial = copy_trial(tmp_path)
    if kept in ("lock", "neither"):
        edit_result(trial, task_checksum=None)
    if kept in ("checksum", "neither"):
        (trial.parent / "lock.json").write_text('{"harbor": {"version": "0.13.1"}}')
    made = make(trial, task=PASS_TWO)
    assert made.record.completeness == ("partial" if kept == "neither" else "complete")


def test_files_that_are_links_are_inputs_too(tmp_path: Path) -> None:
    trial = copy_trial(tmp_path)
    task = tmp_path / "linked"
    task.mkdir()
    shutil.copy(PASS_TWO / "task.toml", task)
    for path in sorted(PASS_TWO.iterdir()):
        if path.is_dir() and path.name != "environment":
            (task / path.name).symlink_to(path)
        elif path.is_dir():
            (task / path.name).mkdir()
            for below in path.iterdir():
                (task / path.name / below.name).symlink_to(below)
        elif path.name != "task.toml":
            (task / path.name).symlink_to(path)
    made, real = make(trial, task=task), make(trial, task=PASS_TWO)
    assert made.record == real.record
    assert made.record.completeness == "complete"
    image = made.record.environment.runtime_image
    assert image.startswith("harbor-dockerfile:environment/Dockerfile@sha256:")
    files = {task / file.path: file.hash for file in made.record.inputs.input_files or ()}
    assert files == sha256sum(*files)
    assert len(files) == len([path for path in PASS_TWO.rglob("*") if path.is_file()])


def test_links_with_more_paths_than_can_be_listed_are_refused(tmp_path: Path) -> None:
    trial = copy_trial(tmp_path)
    edit_result(trial, task_checksum=None)
    (trial.parent / "lock.json").unlink()
    task = shutil.copytree(PASS_TWO, tmp_path / "task")
    (tmp_path / "d20").mkdir()
    (tmp_path / "d20" / "file").write_text("x", encoding="utf-8")
    for number in range(20):
        (tmp_path / f"d{number}").mkdir()
        for name in ("a", "b"):
            (tmp_path / f"d{number}" / name).symlink_to(f"../d{number + 1}")
    (task / "links").symlink_to("../d0")
    with pytest.raises(TaskError, match="its links make more paths than can be listed"):
        make(trial, task=task)


def test_the_same_files_under_another_name_are_the_same_task(tmp_path: Path) -> None:
    assert load_digests(PASS_TWO) == load_digests(PASS_TWO.with_name("pass-simple"))
    trial = copy_trial(tmp_path)
    task = shutil.copytree(PASS_TWO, tmp_path / "renamed")
    made = make(trial, task=task)
    assert made.record.task.task_id == "pass-two"
    assert made.record.completeness == "complete"


def test_files_have_their_part_in_the_task(tmp_path: Path) -> None:
    trial = copy_trial(tmp_path, "10-multistep-oracle-mounted", "ms-final")
    files = make(trial, task=find_task(trial)).record.inputs.input_files
    assert files is not None
    parts = {file.path: file.source for file in files}
    assert parts["task.toml"] == "task"
    assert parts["environment/Dockerfile"] == "environment"
    assert {parts[path] for path in parts if "/tests/" in path} == {"verifier"}
    assert {parts[path] for path in parts if "/solution/" in path} == {"solution"}


def test_the_instruction_is_the_task_s_and_that_of_all_steps(tmp_path: Path) -> None:
    trial = copy_trial(tmp_path)
    text = (PASS_TWO / "instruction.md").read_text()
    assert make(trial, task=PASS_TWO).record.inputs.instruction == text
    trial = copy_trial(tmp_path, "10-multistep-oracle-mounted", "ms-final")
    task = find_task(trial)
    steps = [path.read_text() for path in sorted(task.glob("steps/*/instruction.md"))]
    assert make(trial, task=task).record.inputs.instruction == "\n\n".join(steps)


def test_without_task_and_trace_the_instruction_is_not_made_up(tmp_path: Path) -> None:
    trial = copy_trial(tmp_path, "01-binary-oracle-k1")
    made = make(trial)
    assert made.record.inputs.instruction == "unresolved"
    assert made.record.environment.runtime_image == "unresolved"
    assert made.record.agent.model == "none"


@pytest.mark.parametrize(
    ("changes", "limits"),
    [
        ({}, {"agent_sec": None, "agent_setup_sec": 360.0}),
        ({"timeout_multiplier": 2.0}, {"agent_sec": None, "agent_setup_sec": 720.0}),
        (
            {"agent_setup_timeout_multiplier": 0.5, "timeout_multiplier": 2.0},
            {"agent_setup_sec": 180.0},
        ),
        ({"agent": {"override_timeout_sec": 50.0}}, {"agent_sec": 50.0}),
        ({"agent": {"override_timeout_sec": 50.0, "max_timeout_sec": 20.0}}, {"agent_sec": 20.0}),
        ({"agent": {"override_timeout_sec": 50.0, "max_timeout_sec": 0.0}}, {"agent_sec": 50.0}),
        ({"agent": {"max_timeout_sec": 20.0}}, {"agent_sec": None}),
        ({"agent": {"override_setup_timeout_sec": 0.0}}, {"agent_setup_sec": 0.0}),
        ({"environment": {"override_memory_mb": 512}}, {"memory_mb": 512}),
    ],
)
def test_limits_are_those_that_harbor_set(
    tmp_path: Path, changes: dict[str, object], limits: dict[str, object]
) -> None:
    trial = copy_trial(tmp_path)
    task = shutil.copytree(PASS_TWO, tmp_path / "task")
    (task / "task.toml").write_text(
        "\n".join(
            line
            for line in (PASS_TWO / "task.toml").read_text().splitlines()
            if not line.startswith("timeout_sec")
        )
    )
    edit_result(trial, task_checksum=None)
    (trial.parent / "lock.json").write_text('{"harbor": {"version": "0.13.1"}}')

    def change(config: dict[str, dict[str, object]]) -> None:
        for key, value in changes.items():
            if isinstance(value, dict):
                config[key].update(value)
            else:
                config[key] = value  # type: ignore[assignment]

    edit_config(trial, change)
    found = make(trial, task=task).record.agent.configuration
    assert found is not None
    assert {key: found["limits"][key] for key in limits} == limits
    assert "limits" not in (make(trial).record.agent.configuration or {})


def test_a_killed_trial_with_odd_settings_gets_no_made_up_limits(tmp_path: Path) -> None:
    trial = copy_trial(tmp_path, "31-killed-before-resume", "slow-2")
    edit_json(trial / "config.json", lambda config: config.update(agent=[1], environment="x"))
    with pytest.raises(JobError, match="its config is not as harbor writes it"):
        make(trial)


def test_keys_of_a_later_harbor_are_passed_over(tmp_path: Path) -> None:
    trial = copy_trial(tmp_path)
    before = make(trial).record

    def add(result: dict[str, dict[str, object]]) -> None:
        result["agent_info"]["extra"] = {"a": 1}
        result["agent_result"]["n_calls"] = 3
        result["verifier_env"] = {"started_at": None}

    edit_json(trial / "result.json", add)
    assert make(trial).record == before
