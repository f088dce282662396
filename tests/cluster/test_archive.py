"""Archives of directories: everything that travels arrives, and what an agent planted stays out."""

import io
import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from proctor.cluster import archive
from proctor.cluster.archive import pack, unpack
from proctor.errors import TrialError


def travel(source: Path, target: Path) -> None:
    packed = io.BytesIO()
    pack(source, packed)
    packed.seek(0)
    target.mkdir()
    unpack(packed, target)


def test_a_directory_arrives_as_it_was(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "empty").mkdir(parents=True)
    (tree / "a").mkdir()
    (tree / "a" / "run.sh").write_bytes(b"#!/bin/sh\n")
    (tree / "a" / "run.sh").chmod(0o755)
    os.utime(tree / "a" / "run.sh", (1_000_000_000, 1_000_000_000))
    (tree / os.fsdecode(b"n\xff\nm")).write_bytes(b"\0" * 1000)
    (tree / "link").symlink_to("../elsewhere")
    (tree / "same").hardlink_to(tree / "a" / "run.sh")
    (tree / "closed").mkdir()
    (tree / "closed" / "inside").write_text("x")
    (tree / "closed").chmod(0o500)
    travel(tree, tmp_path / "copy")
    copy = tmp_path / "copy"
    assert sorted(path.relative_to(copy) for path in copy.rglob("*")) == sorted(
        path.relative_to(tree) for path in tree.rglob("*")
    )
    script = copy / "a" / "run.sh"
    assert (script.stat().st_mode & 0o777, script.stat().st_mtime) == (0o755, 1_000_000_000)
    assert (copy / "link").readlink() == Path("../elsewhere")
    assert (copy / "same").read_bytes() == b"#!/bin/sh\n"
    assert (copy / "closed").stat().st_mode & 0o777 == 0o500


def test_a_single_file_arrives_under_its_name(tmp_path: Path) -> None:
    (tmp_path / "script.sh").write_text("ls\n")
    travel(tmp_path / "script.sh", tmp_path / "copy")
    assert (tmp_path / "copy" / "script.sh").read_text() == "ls\n"


def test_packing_stops_before_a_file_that_is_too_much(tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "a").write_bytes(b"\1" * 20_000)
    with (tmp_path / "tree" / "b").open("wb") as file:
        # Takes no room, and would take a lot in an archive.
        file.truncate(1 << 40)
    packed = io.BytesIO()
    with pytest.raises(TrialError, match="more than 100,000 bytes"):
        pack(tmp_path / "tree", packed, 100_000)
    assert packed.tell() < 100_000


def test_pipes_and_sockets_stay(tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    os.mkfifo(tmp_path / "tree" / "pipe")
    travel(tmp_path / "tree", tmp_path / "copy")
    assert list((tmp_path / "copy").iterdir()) == []


def make(*members: tuple[str, bytes, str]) -> io.BytesIO:
    """An archive of (name, type, link or content)."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name, kind, content in members:
            member = tarfile.TarInfo(name)
            member.type = kind
            if kind == tarfile.REGTYPE:
                member.size = len(content)
            else:
                member.linkname = content
            tar.addfile(member, io.BytesIO(content.encode()))
    packed.seek(0)
    return packed


FILE, LINK, DIRECTORY = tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.DIRTYPE


@pytest.mark.parametrize(
    "members",
    [
        [("../out", FILE, "x")],
        [("/etc/out", FILE, "x")],
        [("a/../../out", FILE, "x")],
        [("a", LINK, "/etc"), ("a/out", FILE, "x")],
        [("a", LINK, ".."), ("a/out", LINK, "x")],
        [("a", LINK, ".."), ("a/out", DIRECTORY, "")],
        [("a", FILE, "x"), ("a", FILE, "y")],
        [("a", FILE, "x"), ("b", tarfile.LNKTYPE, "a")],
        [("dev", tarfile.CHRTYPE, "")],
        [("pipe", tarfile.FIFOTYPE, "")],
        [("d/" * 300 + "x", FILE, "x")],
    ],
)
def test_what_leads_elsewhere_is_refused(
    tmp_path: Path, members: list[tuple[str, bytes, str]]
) -> None:
    (tmp_path / "deep" / "place").mkdir(parents=True)
    with pytest.raises((TrialError, OSError)):
        unpack(make(*members), tmp_path / "deep" / "place")
    assert [path.name for path in tmp_path.rglob("out")] == []


@pytest.mark.parametrize(
    ("name", "members"),
    [
        ("MOST_ENTRIES", [(f"f{n}", FILE, "x") for n in range(4)]),
        ("MOST_BYTES", [("large", FILE, "x" * 100)]),
    ],
)
def test_too_much_is_refused(
    tmp_path: Path,
    name: str,
    members: list[tuple[str, bytes, str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(archive, name, 3)
    with pytest.raises(TrialError, match="refused"):
        unpack(make(*members), tmp_path)


@pytest.mark.parametrize("cut", [lambda data: data[:700], lambda data: b"nonsense" * 100])
def test_damage_is_named(tmp_path: Path, cut: Callable[[bytes], bytes]) -> None:
    data = make(("a", FILE, "x" * 1000)).getvalue()
    with pytest.raises(TrialError, match="damaged"):
        unpack(io.BytesIO(cut(data)), tmp_path)
