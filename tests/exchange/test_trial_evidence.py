"""Which trace is taken, what it shows, and what of a trial is not followed."""

import json
import os
import shutil
import tempfile
from pathlib import Path

import pytest

from proctor.errors import JobError
from tests.exchange.trials import (
    NO_IMAGE,
    copy_trial,
    edit_result,
    make,
    sha256sum,
    write_trajectory,
)
from tests.unprivileged import unprivileged

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
    for number, (path, name) in enumerate(zip(paths, names, strict=True), start=1):
        made = make(trial)
        outputs = made.record.outputs
        taken = (outputs.trajectory_path, outputs.conversation_path)
        assert taken == ((None, name) if path in spoken else (name, None))
        assert made.pins.trace is not None
        assert (made.pins.trace.path, made.pins.trace.sha256) == (name, sha256sum(path)[path])
        others = [
            f"{each} exists too; the trace of the record is {name}" for each in names[number:]
        ]
        assert made.notes == (*others, NO_IMAGE)
        path.unlink()
    assert make(trial).pins.trace is None


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
    assert made.notes[0] == "agent/trajectory.jsonl: no usable entry in it; passed over"


def test_an_unreadable_atif_file_is_passed_over(tmp_path: Path) -> None:
    trial = copy_trial(tmp_path)
    (trial / "agent" / "trajectory.json").write_text('{"steps"', encoding="utf-8")
    made = make(trial)
    assert made.pins.trace is None
    assert made.notes[0].startswith("agent/trajectory.json")
    assert made.notes[0].endswith("; passed over")


def test_a_torn_trajectory_is_used(tmp_path: Path) -> None:
    trial = copy_trial(tmp_path)
    path = write_trajectory(trial, SAID)
    with path.open("a") as file:
        file.write('{"step": 2, "role": "assis')
    made = make(trial)
    assert made.record.outputs.trajectory_path == "agent/trajectory.jsonl"
    assert made.record.inputs.instruction == "go"
    assert any("trajectory.jsonl" in note and "3" in note for note in made.notes)


def test_the_model_that_answered_is_the_record_s(tmp_path: Path) -> None:
    trial = copy_trial(tmp_path)
    edit_result(trial, config__agent__model_name="acme/asked")
    made = make(trial)
    assert made.record.agent.model == "acme/model-x"
    assert (made.pins.model_requested, made.pins.models_reported) == (
        "acme/asked",
        ("acme/model-x",),
    )
    assert made.notes[-1] == "acme/asked was asked for, acme/model-x answered"


def test_media_are_pinned_or_said_to_be_missing(tmp_path: Path) -> None:
    trial = copy_trial(tmp_path)
    picture = trial / "artifacts" / "shots" / "a.png"
    picture.parent.mkdir()
    picture.write_bytes(b"png")
    media = ["shots/a.png", "shots/b.png", "../result.json"]
    write_trajectory(trial, SAID | {"media": media})
    made = make(trial)
    assert [(file.path, file.sha256, file.size) for file in made.pins.media] == [
        ("artifacts/shots/a.png", sha256sum(picture)[picture], 3)
    ]
    assert made.notes[1:3] == (
        "agent/trajectory.jsonl, line 2: step 1 names 'shots/b.png', "
        "which is not among the artifacts",
        "agent/trajectory.jsonl, line 2: step 1 names '../result.json', "
        "a path with .. in it, which is not followed",
    )


def test_two_names_of_one_file_are_one_pin(tmp_path: Path) -> None:
    trial = copy_trial(tmp_path)
    (trial / "artifacts" / "ok.png").write_bytes(b"png")
    names = ["ok.png", "./ok.png", "/logs/artifacts/ok.png"]
    write_trajectory(trial, *(SAID | {"media": [name]} for name in names))
    assert [file.path for file in make(trial).pins.media] == ["artifacts/ok.png"]


def test_artifacts_that_are_a_link_show_nothing(tmp_path: Path) -> None:
    trial = copy_trial(tmp_path)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "a.png").write_bytes(b"png")
    shutil.rmtree(trial / "artifacts")
    (trial / "artifacts").symlink_to(elsewhere)
    write_trajectory(trial, SAID | {"media": ["a.png"]})
    made = make(trial)
    assert made.pins.media == ()
    assert made.notes[:3] == (
        "artifacts: a link; its target is not evidence",
        "agent/trajectory.json exists too; the trace of the record is agent/trajectory.jsonl",
        "agent/trajectory.jsonl names artifacts/a.png, which is outside the trial",
    )


def test_an_agent_directory_that_is_a_link_is_not_evidence(tmp_path: Path) -> None:
    trial = copy_trial(tmp_path)
    shutil.move(trial / "agent", tmp_path / "agent")
    (trial / "agent").symlink_to(tmp_path / "agent")
    made = make(trial)
    assert made.pins.trace is None
    assert not any(file.path.startswith("agent") for file in made.evidence)
    assert made.notes[0] == "agent: a link; its target is not evidence"


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
    assert made.notes[0].startswith("agent/trajectory.jsonl: neither a file nor a directory")
    (trial / "result.json").unlink()
    os.mkfifo(trial / "result.json")
    with pytest.raises(JobError, match=r"result\.json: torn or not JSON"):
        make(trial)


def test_a_file_that_cannot_be_read_is_named() -> None:
    with tempfile.TemporaryDirectory() as made:  # nobody may enter this one, unlike tmp_path
        Path(made).chmod(0o755)
        trial = copy_trial(Path(made))
        make(trial)  # all that is imported late is imported
        locked = trial / "artifacts" / "locked"
        locked.write_text("x", encoding="utf-8")
        locked.chmod(0)
        refused = pytest.raises(JobError, match="artifacts/locked: cannot be read: Permission")
        with unprivileged(), refused:
            make(trial)


def test_traces_of_steps_are_mentioned(tmp_path: Path) -> None:
    trial = copy_trial(tmp_path, "10-multistep-oracle-mounted", "ms-final")
    write_trajectory(trial, SAID, folder="steps/one/agent")
    made = make(trial)
    assert made.pins.trace is None
    assert made.notes[0].startswith("steps have their own")
