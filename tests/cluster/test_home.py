"""The directory of a node: what killed workers left goes, and what is used stays."""

import io
import os
from pathlib import Path

import pytest

from proctor.cluster import home as home_module
from proctor.cluster.archive import pack
from proctor.cluster.home import NodeHome, sweep
from proctor.digest import sha256_hex


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of this machine as a node."""
    monkeypatch.setenv("PROCTOR_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "cluster"


def make_old(*places: Path) -> None:
    """As if they were last used long ago."""
    for place in places:
        os.utime(place, (0, 0))


def test_what_a_killed_worker_left_is_removed_once_its_driver_had_time_to_fetch_it(
    root: Path,
) -> None:
    home = NodeHome()
    old, new = root / "trials" / "old", root / "trials" / "new"
    for place in (old, new):
        (place / "t__abc1234" / "agent").mkdir(parents=True)
    with home.open_trial("running") as running:
        make_old(old, running)
        assert sweep(dry_run=True).removed == [old]
        assert old.exists()
        swept = sweep()
        assert (swept.removed, swept.waiting, swept.kept) == ([old], [new], [])
        assert sorted(root.glob("trials/*")) == [new, running]
    assert sorted(root.glob("trials/*")) == [new]


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
