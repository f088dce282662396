"""A file that is rewritten often."""

import errno
import os
from pathlib import Path

import pytest

from proctor.files import replace_file
from proctor.trial import recording
from proctor.trial.recording import SwappedFile


@pytest.mark.parametrize("exchanges", [True, False])
def test_a_rewritten_file_is_always_the_latest_whole_one(
    tmp_path: Path, exchanges: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not exchanges:
        monkeypatch.setattr(recording, "_RENAME", None)
    path = tmp_path / "record.json"
    file = SwappedFile(str(path))
    for data in (b"first", b"a longer second one", b"3", b"the fourth"):
        file.write(data)
        assert path.read_bytes() == data
    file.close()
    assert [each.name for each in tmp_path.iterdir()] == ["record.json"]


def test_what_a_kill_left_of_a_write_goes_with_the_next_one(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    path.write_bytes(b"old")
    (tmp_path / ".record.json.tmp").write_bytes(b"half of something long")
    SwappedFile(str(path)).write(b"new")
    assert path.read_bytes() == b"new"
    assert [each.name for each in tmp_path.iterdir()] == ["record.json"]


def test_a_file_that_cannot_be_replaced_stays(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "x").touch()
    with pytest.raises(OSError, match="there"):
        replace_file(tmp_path / "there", b"data")
    assert [each.name for each in tmp_path.iterdir()] == ["there"]


@pytest.mark.parametrize("exchanges", [True, False])
@pytest.mark.parametrize("writings", [1, 2, 3])
def test_what_was_before_a_file_becomes_another(
    tmp_path: Path, exchanges: bool, writings: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not exchanges:
        monkeypatch.setattr(recording, "_RENAME", None)
    file = SwappedFile(str(tmp_path / "record.json"))
    for number in range(writings):
        file.write(b"a long record, number %d" % number)
    file.write_by_renaming(str(tmp_path / "result.json"), b"short")
    file.close()
    left = {each.name: each.read_bytes() for each in tmp_path.iterdir()}
    assert left == {
        "record.json": b"a long record, number %d" % (writings - 1),
        "result.json": b"short",
    }


def test_a_write_that_broke_off_leaves_nothing_behind_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = SwappedFile(str(tmp_path / "record.json"))
    file.write(b"first")

    def write_and_fail(fd: int, data: bytes) -> None:
        os.write(fd, data)
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(recording, "write_all", write_and_fail)
        with pytest.raises(OSError, match="No space left"):
            file.write(b"this one is long and does not fit")
    assert (tmp_path / "record.json").read_bytes() == b"first"
    file.write(b"third")
    assert (tmp_path / "record.json").read_bytes() == b"third"
