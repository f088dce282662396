"""The directory of a node: what killed workers left goes, and what is used stays."""

import errno
import io
import os
from pathlib import Path

import pytest

from proctor.cluster import home as home_module
from proctor.cluster import worker
from proctor.cluster.archive import pack, unpack
from proctor.cluster.home import NodeHome, sweep
from proctor.digest import sha256_hex
from proctor.environments.sandbox.delete import delete_tree


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of this machine as a node."""
    monkeypatch.setenv("PROCTOR_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "cluster"


def make_old(*places: Path) -> None:
    """As if they were last used long ago."""
    for place in places:
        os.utime(place, (0, 0))


def leave(root: Path, key: str) -> Path:
    """As a killed worker leaves the directory of a trial that ran for hours."""
    place = root / "trials" / key
    (place / "t__abc1234" / "agent").mkdir(parents=True)
    (place / "t__abc1234" / "agent" / "log.txt").write_text("words\n" * 100)
    make_old(place)
    return place


def test_what_a_killed_worker_left_is_removed_once_its_driver_had_time_to_fetch_it(
    root: Path,
) -> None:
    home = NodeHome()
    left = leave(root, "killed")
    with home.open_trial("running") as running:
        for _ in range(2):
            assert (sweep(dry_run=True).waiting, list(left.glob("left"))) == ([left], [])
        for _ in range(2):
            swept = sweep()
            assert (swept.removed, swept.waiting, swept.kept) == ([], [left], [])
        make_old(left / "left", running)
        assert sweep(dry_run=True).removed == [left]
        assert left.exists()
        swept = sweep()
        assert (swept.removed, swept.waiting, swept.kept) == ([left], [], [])
        assert sorted(root.glob("trials/*")) == [running]
    assert sorted(root.glob("trials/*")) == []


def test_what_is_being_fetched_is_not_removed(root: Path) -> None:
    place = leave(root, "killed")
    (place / "left").touch()
    make_old(place / "left")
    with NodeHome().claim_left("killed") as left:
        assert left == place / "t__abc1234"
        swept = sweep()
        assert (swept.removed, swept.waiting, swept.kept) == ([], [], [])
    assert sweep().removed == [place]
    with NodeHome().claim_left("killed") as left:
        assert left is None


def test_what_a_killed_worker_left_is_removed_only_if_it_is_returned(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "_reap", lambda _: ())
    NodeHome()
    place = leave(root, "killed")
    with monkeypatch.context() as patch:
        patch.setattr(worker, "LARGEST_LEFT", 500)
        assert worker.collect_left("killed", "") is None
    assert (place / "t__abc1234" / "agent" / "log.txt").exists()
    archive = worker.collect_left("killed", "")
    assert archive is not None
    unpack(io.BytesIO(archive), root)
    assert (root / "agent" / "log.txt").read_text() == "words\n" * 100
    assert not place.exists()
    assert worker.collect_left("killed", "") is None


def test_what_cannot_be_removed_keeps_its_name_and_keeps_nothing_else(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    NodeHome()
    locked, stubborn, last = (leave(root, key) for key in ("a", "b", "c"))
    # As if it could not be opened.
    (locked / "lock").mkdir()
    partial = root / "trees" / f"{home_module._INCOMING}{'0' * 64}.gone"
    partial.mkdir()
    for place in (locked, stubborn, last):
        (place / "left").touch()
        make_old(place / "left")

    def delete(place: Path) -> None:
        if place != last:
            raise PermissionError(errno.EACCES, "Permission denied", str(place))
        delete_tree(place)

    monkeypatch.setattr(home_module, "delete_tree", delete)
    swept = sweep()
    assert swept.removed == [last]
    assert [sentence.partition(": ")[0] for sentence in swept.kept] == [
        *(str(locked / "lock"), str(stubborn), str(partial))
    ]
    assert (sorted(root.glob("trials/*")), partial.exists()) == ([locked, stubborn], True)


def test_trees_of_the_same_content_have_each_their_name(root: Path, tmp_path: Path) -> None:
    (tmp_path / "task").mkdir()
    (tmp_path / "task" / "instruction.md").write_text("Do it.\n")
    archive = io.BytesIO()
    pack(tmp_path / "task", archive)
    digest, fetched = sha256_hex(archive.getvalue()), []
    for name in ("one", "other", "one"):
        tree = NodeHome().find_tree(
            digest, name, lambda file: fetched.append(file.write(archive.getvalue()))
        )
        assert tree == root / "trees" / digest / name
        assert (tree / "instruction.md").read_text() == "Do it.\n"
    assert len(fetched) == 2


def test_a_tree_that_no_trial_used_for_a_month_is_removed_and_fetched_again(
    root: Path, tmp_path: Path
) -> None:
    (tmp_path / "task").mkdir()
    (tmp_path / "task" / "instruction.md").write_text("Do it.\n")
    archive = io.BytesIO()
    pack(tmp_path / "task", archive)
    digest, fetched = sha256_hex(archive.getvalue()), []

    def find() -> Path:
        return NodeHome().find_tree(
            digest, "t", lambda file: fetched.append(file.write(archive.getvalue()))
        )

    assert (find() / "instruction.md").read_text() == "Do it.\n"
    partial = root / "trees" / f"{home_module._INCOMING}{digest}.killed"
    partial.mkdir()
    assert sweep().removed == [partial]
    make_old(root / "trees" / digest)
    # Used again, and no longer old.
    find()
    assert (sweep().removed, len(fetched)) == ([], 1)
    make_old(root / "trees" / digest)
    assert sweep().removed == [root / "trees" / digest]
    find()
    assert len(fetched) == 2


def test_a_machine_without_a_cluster_gets_no_directory(root: Path) -> None:
    assert sweep() == home_module.Swept()
    assert not root.exists()
