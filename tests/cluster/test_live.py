"""The files of a trial that its driver shows, and what takes their place when it ends."""

import io
import shutil
from pathlib import Path

import pytest

from proctor.cluster.archive import pack
from proctor.cluster.link import Live
from proctor.cluster.live import LiveTarget
from proctor.errors import TrialError

SHOWN = {
    "config.json": "config",
    "record.json": "begun",
    "trial.log": "line 1\n",
    "agent/trajectory.jsonl": "{}\n",
    "agent/model-calls.jsonl": "{}\n",
    "attempts/1/record.json": "lost",
}
LEFT = {
    "config.json": "config",
    "record.json": "scored",
    "result.json": "result",
    "trial.log": "line 1\nline 2\n",
    "agent/trajectory.jsonl": "{}\n{}\n",
    "verifier/reward.txt": "1\n",
}


def write(place: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(text)
    return place


def read(place: Path) -> dict[str, str]:
    files = [path for path in place.rglob("*") if path.is_file()]
    return {str(path.relative_to(place)): path.read_text() for path in files}


@pytest.fixture
def target(tmp_path: Path) -> LiveTarget:
    """The directory of a trial that was begun, lost once, and runs again."""
    return LiveTarget(write(tmp_path / "trial", SHOWN))


@pytest.fixture
def archive(tmp_path: Path) -> io.BytesIO:
    """What the trial left on its node."""
    file = io.BytesIO()
    pack(write(tmp_path / "node", LEFT), file)
    file.seek(0)
    return file


def test_what_a_trial_left_takes_the_place_of_what_was_shown(
    target: LiveTarget, archive: io.BytesIO
) -> None:
    target.replace(archive)
    assert read(target.directory) == {**LEFT, "attempts/1/record.json": "lost"}


def test_a_driver_that_is_killed_leaves_no_final_record_without_the_evidence(
    target: LiveTarget, archive: io.BytesIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved: list[str] = []

    def move(source: Path, place: Path) -> None:
        moved.append(source.name)
        if len(moved) == 5:
            raise KeyboardInterrupt
        shutil_move(source, place)

    shutil_move = shutil.move
    monkeypatch.setattr("shutil.move", move)
    with pytest.raises(KeyboardInterrupt):
        target.replace(archive)
    assert moved == ["agent", "config.json", "trial.log", "verifier", "record.json"]
    found = read(target.directory)
    assert found["record.json"] == "begun"
    assert "result.json" not in found


def test_what_is_no_archive_of_a_trial_changes_nothing(target: LiveTarget) -> None:
    with pytest.raises(TrialError, match="damaged"):
        target.replace(io.BytesIO(b"x" * 1024))
    assert read(target.directory) == SHOWN


def test_what_a_killed_worker_left_is_added_to_what_only_the_driver_has(
    target: LiveTarget, archive: io.BytesIO
) -> None:
    target.add_left(archive.getvalue())
    assert read(target.directory) == {
        **LEFT,
        "agent/model-calls.jsonl": "{}\n",
        "attempts/1/record.json": "lost",
    }


def test_what_does_not_continue_a_file_is_not_written(target: LiveTarget) -> None:
    target.write(Live("agent/conversation.jsonl", b"1\n", 0))
    target.write(Live("agent/conversation.jsonl", b"3\n", 4))
    target.write(Live("result.json", b"{}"))
    target.write(Live("record.json", b"running"))
    assert read(target.directory) == {
        **SHOWN,
        "agent/conversation.jsonl": "1\n",
        "record.json": "running",
    }
