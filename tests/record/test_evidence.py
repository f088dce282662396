"""Files that a record names are looked for under one root, and nowhere else."""

import os
from pathlib import Path

import pytest

from proctor.errors import RecordError
from proctor.record.evidence import check_evidence, find_evidence
from proctor.record.model import TrialRecord
from tests.record.samples import DRAWING, made


def named(path: str, **outputs: str | None) -> TrialRecord:
    """A record with one input file, whose digest is DRAWING's, and no traces but those given."""
    digest = made().inputs.input_files
    assert digest is not None
    traces = {"conversation_path": None, "trajectory_path": None, **outputs}
    return made(
        **{
            "inputs.input_files": [{"path": path, "hash": digest[0].hash}],
            **{f"outputs.{name}": value for name, value in traces.items()},
        }
    )


@pytest.fixture
def trial(tmp_path: Path) -> Path:
    """A trial's directory with the input file in it."""
    (tmp_path / "trial" / "input").mkdir(parents=True)
    (tmp_path / "trial" / "input" / "drawing.json").write_bytes(DRAWING)
    (tmp_path / "outside.json").write_bytes(DRAWING)
    return tmp_path / "trial"


def state(record: TrialRecord, root: Path) -> tuple[str, bool]:
    (evidence,) = find_evidence(record, root)
    assert evidence.field in evidence.message
    return evidence.state, evidence.is_problem


def test_a_true_digest_is_verified(trial: Path) -> None:
    assert state(named("input/drawing.json"), trial) == ("verified", False)
    check_evidence(named("input/drawing.json"), trial)


def test_a_file_that_was_changed_is_caught(trial: Path) -> None:
    (trial / "input" / "drawing.json").write_bytes(b"changed")
    assert state(named("input/drawing.json"), trial) == ("differs", True)
    with pytest.raises(
        RecordError, match=r"'trial-001': inputs.input_files\[0\]: .* the record says"
    ):
        check_evidence(named("input/drawing.json"), trial)


def test_a_file_without_a_true_digest_is_only_present(trial: Path) -> None:
    record = made(
        **{
            "inputs.input_files": [{"path": "input/drawing.json", "hash": "hash-123"}],
            "outputs.conversation_path": None,
        }
    )
    assert state(record, trial) == ("present", False)


@pytest.mark.parametrize("path", ["input/absent.json", "/workspace/input/drawing.json"])
def test_an_input_that_is_not_here_is_said_and_is_no_failure(trial: Path, path: str) -> None:
    assert state(named(path), trial) == ("absent", False)
    check_evidence(named(path), trial)


def test_an_absolute_path_into_the_root_is_looked_at(trial: Path) -> None:
    assert state(named(str(trial / "input" / "drawing.json")), trial) == ("verified", False)


@pytest.mark.parametrize(
    "path", ["../outside.json", "input/../../outside.json", "a\x00b", "x" * 5000]
)
def test_a_path_that_leads_out_or_nowhere_is_refused(trial: Path, path: str) -> None:
    assert state(named(path), trial) == ("refused", True)
    with pytest.raises(RecordError):
        check_evidence(named(path), trial)


def test_links_out_of_the_root_are_refused(trial: Path) -> None:
    (trial / "link.json").symlink_to(trial.parent / "outside.json")
    (trial / "up").symlink_to(trial.parent)
    (trial / "round").symlink_to("round")
    for path in ("link.json", "up/outside.json", "round"):
        assert state(named(path), trial) == ("refused", True)


def test_a_link_within_the_root_is_followed(trial: Path) -> None:
    (trial / "link.json").symlink_to("input/drawing.json")
    assert state(named("link.json"), trial) == ("verified", False)


def test_only_plain_files_are_opened(trial: Path) -> None:
    os.mkfifo(trial / "pipe")
    for path in ("pipe", "input"):
        assert state(named(path), trial) == ("refused", True)


def test_a_trace_that_is_named_must_be_there(trial: Path) -> None:
    record = named("input/drawing.json", trajectory_path="trajectory.jsonl")
    assert [evidence.state for evidence in find_evidence(record, trial)] == ["verified", "absent"]
    with pytest.raises(
        RecordError, match=r"outputs.trajectory_path: 'trajectory.jsonl' is not under"
    ):
        check_evidence(record, trial)
    (trial / "trajectory.jsonl").write_text("")
    check_evidence(record, trial)
    assert find_evidence(record, trial)[1].state == "present"


def test_a_root_that_is_not_there_has_no_evidence(tmp_path: Path) -> None:
    assert state(named("input/drawing.json"), tmp_path / "absent") == ("absent", False)
