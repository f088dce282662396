"""Which trace is taken, what it shows, and what of a trial is not followed."""

import json
import os
import shutil
from pathlib import Path

import pytest

from proctor.errors import JobError
from tests.exchange.trials import (
    copy_trial,
    edit_result,
    make,
    write_trajectory,
)

SAID = {"step": 1, "role": "user", "content": "go"}
CONVERSATION = json.dumps({"role": "user", "content": "from the conversation"}) + "\n"


def test_what_the_harness_wrote_comes_before_the_artifacts(tmp_path: Path) -> None:
    trial = copy_trial(tmp_path)
    spoken = [trial / folder / "conversation.jsonl" for folder in ("agent", "artifacts")]
    for path in spoken:
        path.write_text(CONVERSATION, encoding="utf-8")
    atif = trial / "agent" / "trajectory.json"
    told = [write_trajectory(trial, SAID, folder=folder) for folder in ("agent", "artifacts")]
    paths = [told[0], atif, spoken[0], told[1], spoken[1]]
    names = [path.relative_to(trial).as_posix() for path in paths]
    for path, name in zip(paths, names, strict=True):
        outputs = make(trial).record.outputs
        taken = (outputs.trajectory_path, outputs.conversation_path)
        assert taken == ((None, name) if path in spoken else (name, None))
        path.unlink()
    outputs = make(trial).record.outputs
    assert (outputs.trajectory_path, outputs.conversation_path) == (None, None)


def test_without_the_task_the_trace_tells_the_instruction(tmp_path: Path) -> None:
    trial = copy_trial(tmp_path)
    system = {"step": 0, "role": "system", "content": "Be brief."}
    write_trajectory(trial, system, SAID)
    inputs = make(trial).record.inputs
    assert (inputs.instruction, inputs.system_prompt) == ("go", "Be brief.")


def test_a_trajectory_with_a_header_alone_is_passed_over(tmp_path: Path) -> None:
    trial = copy_trial(tmp_path)
    write_trajectory(trial)
    made = make(trial)
    assert made.record.outputs.trajectory_path == "agent/trajectory.json"


def test_an_unreadable_atif_file_is_passed_over(tmp_path: Path) -> None:
    trial = copy_trial(tmp_path)
    (trial / "agent" / "trajectory.json").write_text('{"steps"', encoding="utf-8")
    assert make(trial).record.outputs.trajectory_path is None


def test_a_torn_trajectory_is_used(tmp_path: Path) -> None:
    trial = copy_trial(tmp_path)
    path = write_trajectory(trial, SAID)
    with path.open("a") as file:
        file.write('{"step": 2, "role": "assis')
    made = make(trial)
    assert made.record.outputs.trajectory_path == "agent/trajectory.jsonl"
    assert made.record.inputs.instruction == "go"


def test_the_model_that_answered_is_the_record_s(tmp_path: Path) -> None:
    trial = copy_trial(tmp_path)
    edit_result(trial, config__agent__model_name="acme/asked")
    assert make(trial).record.agent.model == "acme/model-x"


def test_an_agent_directory_that_is_a_link_is_not_evidence(tmp_path: Path) -> None:
    trial = copy_trial(tmp_path)
    shutil.move(trial / "agent", tmp_path / "agent")
    (trial / "agent").symlink_to(tmp_path / "agent")
    assert make(trial).record.outputs.trajectory_path is None


@pytest.mark.parametrize("name", ["result.json", "config.json"])
def test_a_result_or_config_that_is_a_link_is_refused(tmp_path: Path, name: str) -> None:
    trial = copy_trial(tmp_path)
    shutil.move(trial / name, tmp_path / name)
    (trial / name).symlink_to(tmp_path / name)
    with pytest.raises(JobError, match=rf"{name}: a link that leads out of the trial"):
        make(trial)


def test_pipes_are_not_waited_for(tmp_path: Path) -> None:
    trial = copy_trial(tmp_path)
    os.mkfifo(trial / "agent" / "trajectory.jsonl")
    made = make(trial)
    assert made.record.outputs.trajectory_path == "agent/trajectory.json"
    (trial / "result.json").unlink()
    os.mkfifo(trial / "result.json")
    with pytest.raises(JobError, match=r"result\.json: torn or not JSON"):
        make(trial)
