"""Steps of a sealed trajectory, of which only a part is unpacked; and the frames that allow it."""

import io
import json
from pathlib import Path

import pytest
from backports import zstd

from proctor.digest import sha256_hex
from proctor.errors import DamageError
from proctor.ledger.artifacts import FileArtifacts
from proctor.ledger.step_parts import read_sealed_steps

TEXT = "".join(chr(32 + (at * 7919) % 90) for at in range(2000)).replace("\\", "/")


def lines_of(count: int) -> bytes:
    """Some kilobytes a line, steps in order but for one at the end."""
    steps = [*range(count), 3]
    told = [{"step": step, "role": "user", "content": f"{step} {TEXT}"} for step in steps]
    return b"".join(json.dumps(each).encode() + b"\n" for each in told)


DATA = lines_of(5000)


@pytest.fixture
def artifacts(tmp_path: Path) -> FileArtifacts:
    (tmp_path / "ledger").mkdir()
    kept = FileArtifacts(tmp_path / "ledger")
    kept.put(io.BytesIO(DATA))
    kept.settle()
    return kept


def found_lines(artifacts: FileArtifacts, steps: tuple[int, int], cache: Path | None) -> list[int]:
    found = read_sealed_steps(artifacts, sha256_hex(DATA), steps, cache)
    assert found is not None
    return [line for chunk in found for line in chunk.lines]


@pytest.mark.parametrize(
    "data",
    [b"", b"x", DATA, b"y" * 9_000_000, b"z\n" * 5_000_000],
    ids=["empty", "small", "lines", "no-lines", "short-lines"],
)
def test_what_is_kept_in_frames_is_one_file_for_any_reader(tmp_path: Path, data: bytes) -> None:
    artifacts = FileArtifacts(tmp_path)
    digest, size = artifacts.put(io.BytesIO(data))
    artifacts.settle()
    assert (digest, size) == (sha256_hex(data), len(data))
    stored = artifacts.path_of(digest).read_bytes()
    assert zstd.decompress(stored) == data == artifacts.load(digest, len(data))
    artifacts.check(digest, size)
    first = stored[: zstd.get_frame_size(stored)]
    assert len(zstd.decompress(first)) <= 1 << 22
    assert len(data) < 1 << 22 or len(first) < len(stored)


def test_all_places_of_a_step_are_found_also_out_of_order(
    artifacts: FileArtifacts, tmp_path: Path
) -> None:
    for cache in (None, tmp_path / "cache", tmp_path / "cache"):
        assert found_lines(artifacts, (3, 4), cache) == [4, 5, 5001]
        assert found_lines(artifacts, (4999, 9999), cache) == [5000]
        assert found_lines(artifacts, (9999, 9999), cache) == []


def test_what_is_remembered_may_be_deleted_or_broken(
    artifacts: FileArtifacts, tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    assert found_lines(artifacts, (7, 7), cache) == [8]
    (note,) = (cache / "steps").iterdir()
    for damage in (b"", b"\xff" * 100, note.read_bytes()[:-5]):
        note.write_bytes(damage)
        assert found_lines(artifacts, (7, 7), cache) == [8]
    note.unlink()
    assert found_lines(artifacts, (7, 7), cache) == [8]


def test_a_part_that_was_altered_is_not_given(artifacts: FileArtifacts, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    found_lines(artifacts, (7, 7), cache)
    path = artifacts.path_of(sha256_hex(DATA))
    stored = path.read_bytes()
    first = zstd.get_frame_size(stored)
    plain = zstd.decompress(stored[:first])
    forged = zstd.compress(plain.replace(b'"7 ', b'"8 '), level=3)
    path.write_bytes(forged.ljust(first, b"\0")[:first] + stored[first:])
    with pytest.raises(DamageError):
        found_lines(artifacts, (7, 7), cache)
    # What was not asked for was not looked at.
    assert found_lines(artifacts, (4999, 4999), cache) == [5000]
    with pytest.raises(DamageError):
        found_lines(artifacts, (7, 7), None)


def test_an_artifact_in_one_frame_has_to_be_unpacked_as_a_whole(tmp_path: Path) -> None:
    artifacts = FileArtifacts(tmp_path)
    data = b"x" * (1 << 27)
    path = artifacts.path_of(sha256_hex(data))
    path.parent.mkdir(parents=True)
    path.write_bytes(zstd.compress(data))
    assert read_sealed_steps(artifacts, sha256_hex(data), (1, 1), None) is None
