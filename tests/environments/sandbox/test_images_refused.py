"""What is not taken in as a root file system: each with a sentence, and nothing left behind."""

import errno
import os
import tarfile
from pathlib import Path

import pytest

from proctor.environments.sandbox.roots.images import ImageStore
from proctor.errors import ImageError
from tests.environments.sandbox.rootfs import pack
from tests.environments.sandbox.trees import archive, entry, make_tree, take
from tests.task.trees import write
from tests.unprivileged import unprivileged


@pytest.fixture
def store(tmp_path: Path) -> ImageStore:
    return ImageStore(tmp_path / "cache")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return make_tree(tmp_path / "tree")


def refusal(store: ImageStore, source: Path, name: str = "mine") -> str:
    with pytest.raises(ImageError) as caught:
        take(store, source, name)
    assert store.list_images() == []
    assert not list(source.parent.glob("cache/images/incoming-*"))
    return str(caught.value)


@pytest.mark.parametrize(
    ("member", "said"),
    [
        (entry("../out"), "../out: leads out of the root file system with `..`; refused"),
        (entry("usr/../../out"), "leads out of the root file system"),
        (entry("x", tarfile.LNKTYPE, "../../etc/passwd"), "leads out of the root file system"),
        (
            entry("x", tarfile.LNKTYPE, "nothing"),
            "x: a hard link to nothing, which is not an earlier",
        ),
        (entry("usr"), "usr: is both a directory and a file"),
    ],
)
def test_nothing_is_put_outside(
    store: ImageStore, tmp_path: Path, member: tarfile.TarInfo, said: str
) -> None:
    assert said in refusal(store, archive(tmp_path / "x.tar", member))


def test_nothing_is_put_through_a_link(store: ImageStore, tmp_path: Path) -> None:
    members = (entry("door", tarfile.SYMTYPE, str(tmp_path)), entry("door/planted"))
    said = refusal(store, archive(tmp_path / "x.tar", *members))
    assert "door/planted: is below door, which is a link" in said
    assert not (tmp_path / "planted").exists()


def test_a_file_replaces_a_link_and_is_not_written_through_it(
    store: ImageStore, tmp_path: Path
) -> None:
    victim = tmp_path / "victim"
    victim.write_text("safe")
    members = (entry("x", tarfile.SYMTYPE, str(victim)), entry("x", size=3))
    made = store.rootfs(take(store, archive(tmp_path / "x.tar", *members)))
    assert victim.read_text() == "safe"
    assert (made / "x").read_bytes() == bytes(3)


def test_an_absolute_path_is_one_inside(store: ImageStore, tmp_path: Path) -> None:
    made = store.rootfs(take(store, archive(tmp_path / "x.tar", entry("/usr/x"))))
    assert (made / "usr/x").is_file()


@pytest.mark.parametrize("packing", ["", "gz", "xz", "bz2"])
@pytest.mark.parametrize("part", [0.5, 0.97])
def test_an_archive_that_is_cut_short_is_refused(
    store: ImageStore, tree: Path, tmp_path: Path, packing: str, part: float
) -> None:
    (tree / "big").write_bytes(os.urandom(100_000))
    source = pack(tree, tmp_path / "x.tar", f"w:{packing}")
    source.write_bytes(source.read_bytes()[: int(source.stat().st_size * part)])
    assert "cut short" in refusal(store, source)


@pytest.mark.parametrize("packing", ["gz", "xz", "bz2"])
def test_an_archive_that_is_damaged_is_refused(
    store: ImageStore, tree: Path, tmp_path: Path, packing: str
) -> None:
    (tree / "big").write_bytes(os.urandom(100_000))
    source = pack(tree, tmp_path / "x.tar", f"w:{packing}")
    data = bytearray(source.read_bytes())
    data[len(data) // 2 : len(data) // 2 + 64] = bytes(64)
    source.write_bytes(data)
    assert "damaged" in refusal(store, source)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty; expected a tar of a root file system, as `docker export` writes it"),
        (b"hello", "not a tar archive; expected a tar of a root file system"),
        (b"\x28\xb5\x2f\xfd....", "damaged"),
        (bytes(10240), "is empty; expected a root file system"),
    ],
)
def test_what_is_no_archive_is_refused(
    store: ImageStore, tmp_path: Path, content: bytes, said: str
) -> None:
    source = tmp_path / "x.tar"
    source.write_bytes(content)
    assert said in refusal(store, source)


def test_what_is_no_root_file_system_is_refused(store: ImageStore, tmp_path: Path) -> None:
    inside = write(tmp_path / "outer", {"root/usr/bin/x": "x"})
    assert "neither bin nor usr at its top, but root; if it is in" in refusal(store, inside)


def test_what_is_not_there_is_said(store: ImageStore, tmp_path: Path) -> None:
    assert "does not exist; expected a tar archive or a directory" in refusal(
        store, tmp_path / "no"
    )


def test_a_pipe_is_not_waited_for(store: ImageStore, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert "neither a file nor a directory" in refusal(store, tmp_path / "pipe")


def test_a_directory_that_holds_the_store_is_refused(store: ImageStore, tmp_path: Path) -> None:
    write(tmp_path, {"usr/x": "x"})
    assert "contains the image store itself" in refusal(store, tmp_path)


def test_a_file_that_may_not_be_read_is_named(everybodys: Path) -> None:
    tree = write(everybodys / "tree", {"usr/secret": "s"})
    (tree / "usr/secret").chmod(0o600)
    if os.geteuid() != 0:
        (tree / "usr/secret").chmod(0)
    with unprivileged(), pytest.raises(ImageError, match="usr/secret: cannot be read: Permission"):
        take(ImageStore(everybodys / "cache"), tree)


def test_a_store_that_cannot_be_written_is_named(everybodys: Path) -> None:
    tree = write(everybodys / "tree", {"usr/x": "x"})
    (everybodys / "cache").mkdir(mode=0o555)
    with (
        unprivileged(),
        pytest.raises(ImageError, match="cache/images: cannot be created: Permission"),
    ):
        take(ImageStore(everybodys / "cache"), tree)


def test_a_full_disk_is_a_sentence_and_leaves_nothing(
    store: ImageStore, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full for whoever writes; nothing of ours is replaced but the system's answer."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fchmod", full)
    said = refusal(store, tree)
    assert "the image cannot be written there: No space left on device; free some space, or" in said


@pytest.mark.parametrize("name", ["host", "scratch"])
def test_names_with_a_meaning_are_not_given_away(store: ImageStore, tree: Path, name: str) -> None:
    assert "is reserved" in refusal(store, tree, name)
