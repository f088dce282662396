"""Everything that was written in an overlay is listed, and nothing leads the reader elsewhere."""

import asyncio
import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from proctor.digest import sha256_hex
from proctor.environments.sandbox import accounting, mapped, mapped_work, walk
from proctor.environments.sandbox.blueprint import Part
from proctor.environments.sandbox.walk import Layers, Limits, Written, list_written


@pytest.fixture
def layers(tmp_path: Path) -> Layers:
    """An image of two layers, and an empty upper layer."""
    files = {"1/etc/a": "a", "1/etc/b": "b", "1/etc/c": "c", "1/d/x": "x", "0/etc/top": "t"}
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "1/link").symlink_to("etc")
    whiteout(tmp_path / "0/etc/c")
    (tmp_path / "upper").mkdir()
    return Layers("/", str(tmp_path / "upper"), (str(tmp_path / "0"), str(tmp_path / "1")))


def whiteout(path: Path) -> None:
    os.mknod(path, stat.S_IFCHR, 0)


def listed(
    layers: Layers, known: dict[str, str] | None = None, limits: Limits | None = None
) -> tuple[dict[str, Written], bool]:
    found, is_cut = list_written([layers], known or {}, limits or Limits())
    return {each.path: each for each in found}, is_cut


def test_each_kind_of_change_is_listed(layers: Layers) -> None:
    upper = Path(layers.upper)
    (upper / "etc").mkdir()
    (upper / "etc/a").write_text("other")
    (upper / "etc/c").write_text("again")
    (upper / "etc/top").symlink_to("/etc/shadow")
    whiteout(upper / "etc/b")
    (upper / "d").mkdir(mode=0o700)
    (upper / "link").mkdir()
    (upper / "new/deep").mkdir(parents=True)
    (upper / "new/deep/file").write_bytes(b"\0" * 10)
    os.mkfifo(upper / "new/pipe")
    os.setxattr(upper / "new/deep/file", "user.note", b"n")
    found, is_cut = listed(layers)
    assert not is_cut
    assert {path: (each.how, each.kind, each.in_image) for path, each in found.items()} == {
        "/etc/a": ("changed", "file", True),
        "/etc/b": ("deleted", "file", True),
        # The upper one of the image's layers had taken it away.
        "/etc/c": ("created", "file", False),
        "/etc/top": ("replaced", "link", True),
        "/d": ("changed", "directory", True),
        "/link": ("replaced", "directory", True),
        "/new": ("created", "directory", False),
        "/new/deep": ("created", "directory", False),
        "/new/deep/file": ("created", "file", False),
        "/new/pipe": ("created", "fifo", False),
    }
    assert found["/etc/a"].sha256 == sha256_hex(b"other")
    assert found["/etc/top"].target == "/etc/shadow"
    assert found["/new/deep/file"].xattrs == {"user.note": "n"}
    assert (found["/new/deep/file"].size, found["/d"].mode) == (10, 0o700)


def test_an_opaque_directory_replaces_the_images(layers: Layers) -> None:
    (Path(layers.upper) / "d").mkdir()
    os.setxattr(Path(layers.upper) / "d", "user.overlay.opaque", b"y")
    found, _ = listed(layers)
    assert (found["/d"].how, found["/d"].xattrs) == ("replaced", {})


def test_what_was_there_before_is_told_from_what_came_later(layers: Layers) -> None:
    upper = Path(layers.upper)
    for name in ("kept", "rewritten", "removed"):
        (upper / name).write_text(name)
    before, _ = listed(layers, limits=Limits(is_hashing=False))
    assert before["/kept"].sha256 == ""
    known = {path: each.mark for path, each in before.items()}
    (upper / "rewritten").write_text("rewritten")
    (upper / "removed").unlink()
    (upper / "new").write_text("new")
    found, _ = listed(layers, known)
    assert {path: each.is_known for path, each in found.items()} == {
        "/kept": True,
        "/rewritten": False,
        "/removed": False,
        "/new": False,
    }
    assert found["/removed"].how == "deleted"


def test_links_lead_nowhere_and_odd_names_are_listed(layers: Layers, tmp_path: Path) -> None:
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret/key").write_text("key")
    upper = os.fsencode(layers.upper)
    (Path(layers.upper) / "way").symlink_to(tmp_path / "secret")
    Path(os.fsdecode(upper + b"/odd\xff\n")).write_text("odd")
    found, _ = listed(layers)
    assert found["/way"].kind == "link"
    assert sorted(found) == ["/odd\udcff\n", "/way"]


@pytest.mark.parametrize("limit", [Limits(n_entries=3), Limits(n_bytes=2)])
def test_a_limit_that_was_met_is_said(layers: Layers, limit: Limits) -> None:
    for number in range(10):
        (Path(layers.upper) / str(number)).write_text("1")
    found, is_cut = listed(layers, limits=limit)
    assert is_cut is (limit.n_entries == 3)
    assert len(found) <= 10
    assert sum(1 for each in found.values() if each.sha256) <= 3


def test_directories_without_end_do_not_take_all_descriptors(layers: Layers) -> None:
    place = os.open(layers.upper, os.O_DIRECTORY)
    for _ in range(150):
        os.mkdir("d", dir_fd=place)
        deeper = os.open("d", os.O_DIRECTORY, dir_fd=place)
        os.close(place)
        place = deeper
    os.close(place)
    before = len([*Path("/proc/self/fd").iterdir()])
    found, is_cut = listed(layers)
    assert is_cut
    assert len(found) >= 99
    # Fewer if what an earlier test left is collected meanwhile.
    assert len([*Path("/proc/self/fd").iterdir()]) <= before


def test_of_a_file_that_grows_while_it_is_read_only_its_size_is_read(
    layers: Layers, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = Path(layers.upper) / "log"
    path.write_bytes(b"0123456789")
    read_xattrs = walk._read_xattrs

    def grow(fd: int) -> dict[str, str]:
        # After its size is known, before it is read: a terabyte.
        os.truncate(path, 1 << 40)
        return read_xattrs(fd)

    monkeypatch.setattr(walk, "_read_xattrs", grow)
    found, _ = listed(layers)
    assert (found["/log"].size, found["/log"].sha256) == (10, sha256_hex(b"0123456789"))


@pytest.mark.parametrize("part", ["walk", "links"])
def test_whatever_an_agent_left_the_event_loop_does_not_wait_for_its_list(
    layers: Layers, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    make_depth_of_long_names(Path(layers.upper))
    (Path(layers.upper) / "way").symlink_to("/etc/../" * 100)
    threads: list[int] = []

    def note[**P, Made](work: Callable[P, Made]) -> Callable[P, Made]:
        def noting(*args: P.args, **options: P.kwargs) -> Made:
            threads.append(threading.get_ident())
            return work(*args, **options)

        return noting

    monkeypatch.setattr(mapped, "is_all_powerful", lambda: True)
    if part == "walk":
        monkeypatch.setitem(mapped_work.WORK, "walk", note(mapped_work.WORK["walk"]))
    else:
        monkeypatch.setattr(accounting, "find_ends", note(accounting.find_ends))
    parts = [Part(layers.target, layers.lowers, layers.upper, "")]
    changes, is_cut = asyncio.run(accounting.list_changes(parts, {}, is_hashing=True))
    assert not is_cut
    assert {each.path.rpartition("/")[2] for each in changes} >= {"way", "deepest"}
    assert threading.get_ident() not in threads
    assert threads


def make_depth_of_long_names(top: Path) -> None:
    """A file so deep that no path leads there: the kernel refuses those of 4096 bytes."""
    place = os.open(top, os.O_DIRECTORY)
    for _ in range(17):
        os.mkdir("d" * 255, dir_fd=place)
        deeper = os.open("d" * 255, os.O_DIRECTORY, dir_fd=place)
        os.close(place)
        place = deeper
    os.close(os.open("deepest", os.O_CREAT | os.O_WRONLY, dir_fd=place))
    os.close(place)
