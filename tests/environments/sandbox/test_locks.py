"""A cache that somebody else could write to is refused, by a sentence."""

import os
import stat
from pathlib import Path

import pytest

from proctor.environments.sandbox.locks import make_private
from proctor.environments.sandbox.roots.images import ImageStore
from proctor.environments.sandbox.scratch import cache_directory, find_place
from proctor.errors import ImageError, SandboxError
from proctor.filesystems import find_stranger
from tests.become_user import PERSON

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A directory as /tmp is: everybody makes what they like in it."""
    place = tmp_path / "shared"
    place.mkdir()
    place.chmod(0o1777)
    return place


@as_root
def test_a_cache_that_somebody_else_laid_out_first_is_refused_and_none_of_it_is_used(
    shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = shared / "cache"
    (cache / "images" / "names").mkdir(parents=True)
    for path in (cache, cache / "images", cache / "images" / "names"):
        os.chown(path, PERSON, PERSON)
    monkeypatch.setenv("PROCTOR_CACHE", str(cache))
    said = (
        rf"{cache}: belongs to user {PERSON}, not to this user, and files in the cache are executed"
    )
    with pytest.raises(SandboxError, match=said):
        ImageStore()
    with pytest.raises(ImageError, match="images: belongs to user"):
        make_private(cache / "images")


def test_a_cache_that_everybody_can_write_to_is_refused(shared: Path) -> None:
    said = "world-writable.*; set PROCTOR_CACHE to a directory that"
    with pytest.raises(SandboxError, match=said):
        cache_directory({"PROCTOR_CACHE": str(shared)})


@as_root
def test_a_cache_that_a_group_can_write_to_is_refused(tmp_path: Path) -> None:
    os.chown(tmp_path, -1, PERSON)
    tmp_path.chmod(0o770)
    with pytest.raises(SandboxError, match=f"writable by its group, {PERSON}"):
        cache_directory({"PROCTOR_CACHE": str(tmp_path)})


def test_a_cache_of_the_users_own_group_is_taken(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    assert find_stranger(tmp_path) is None
    if os.geteuid() == 0:
        tmp_path.chmod(0o775)
        assert find_stranger(tmp_path) is None
    assert find_stranger(tmp_path / "absent") is None


@as_root
def test_an_ordinary_user_takes_what_root_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: PERSON)
    assert find_stranger(tmp_path) is None


def test_a_part_of_the_cache_that_stood_open_is_closed(tmp_path: Path) -> None:
    directory = tmp_path / "layers"
    directory.mkdir()
    directory.chmod(0o755)
    assert make_private(directory) == directory
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700


def test_a_scratch_that_others_can_write_to_is_refused(shared: Path) -> None:
    with pytest.raises(SandboxError, match="world-writable, and sandboxes would write"):
        find_place({"PROCTOR_SCRATCH": str(shared)})
