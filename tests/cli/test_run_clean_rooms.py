"""What the summary of `proctor run` says of clean rooms."""

import json
from pathlib import Path

import pytest

from proctor.cli.running.report import (
    CleanRooms,
    count_clean_rooms,
    describe_clean_rooms,
    render_clean_rooms,
)
from tests.trial.changed import differing, room

ENDED = (
    b'{"config": {}, "started_at": "2026-11-17T10:00:00Z", "finished_at": "2026-11-17T10:00:02Z"}'
)


def put(job: Path, trial: str, result: bytes, found: bytes | None) -> None:
    (job / trial).mkdir()
    (job / trial / "result.json").write_bytes(result)
    if found is not None:
        (job / trial / "clean-room.json").write_bytes(found)


def test_the_clean_rooms_of_a_job_are_counted(tmp_path: Path) -> None:
    skipped = room("clean-room-skipped", clean=[], seconds=0.08)
    put(tmp_path, "a", ENDED, json.dumps(room("agrees")).encode())
    put(tmp_path, "b", ENDED, differing())
    put(tmp_path, "c", ENDED, json.dumps(skipped).encode())
    put(tmp_path, "d", ENDED, None)
    # What cannot be read counts for nothing.
    put(tmp_path, "e", b'{"started_at": "2026-11-17T10:00:00", "finished_at": 5}', b"5")
    put(tmp_path, "f", ENDED.replace(b"00Z", b"00"), None)
    found = count_clean_rooms(tmp_path, ["a", "b", "c", "d", "e", "f", "gone"], ["c"])
    assert found == CleanRooms(run=2, differ=1, skipped=1, seconds=0.7, trial_seconds=8.0)
    assert describe_clean_rooms(found) == {"run": 2, "differ": 1, "skipped": 1, "seconds": 0.7}


@pytest.mark.parametrize(
    ("rooms", "lines"),
    [
        (
            CleanRooms(run=6, differ=4, seconds=1.9, trial_seconds=16.0),
            ["clean rooms: 6 run, 4 differ; 1.9s (11.9% of trial time)"],
        ),
        (CleanRooms(run=1, seconds=0.2), ["clean rooms: 1 run, 0 differ; 0.2s"]),
        (CleanRooms(skipped=2), ["clean rooms: 0 run, 0 differ, 2 skipped"]),
        (CleanRooms(trial_seconds=3.0), []),
    ],
)
def test_they_are_told_in_one_line(rooms: CleanRooms, lines: list[str]) -> None:
    assert list(render_clean_rooms(rooms)) == lines
