"""The store of imported root file systems."""

import os
import stat
import tarfile
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from proctor.environments.sandbox.locks import locked
from proctor.environments.sandbox.roots import images
from proctor.environments.sandbox.roots.image import Image, normalise_name
from proctor.environments.sandbox.roots.images import ImageStore, Known
from proctor.errors import ImageError
from tests.environments.sandbox.rootfs import pack
from tests.environments.sandbox.trees import NOTHING, NOW, archive, entry, make_tree, take
from tests.task.trees import write
from tests.unprivileged import unprivileged


@pytest.fixture
def store(tmp_path: Path) -> ImageStore:
    return ImageStore(tmp_path / "cache")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return make_tree(tmp_path / "tree")


# What is kept


def check_same(made: Path, tree: Path) -> None:
    assert stat.S_IMODE((made / "usr/bin/tool").stat().st_mode) == 0o4755
    assert (made / "usr/bin/same").stat().st_ino == (made / "usr/bin/tool").stat().st_ino
    assert os.readlink(made / "bin") == "usr/bin"  # noqa: PTH115 - the text as it is
    assert os.readlink(made / "away") == "/etc/passwd"  # noqa: PTH115 - the text as it is
    assert stat.S_IMODE((made / "closed").stat().st_mode) == 0o500
    assert (made / "closed/in").stat().st_mode == (tree / "closed/in").stat().st_mode
    assert (made / "etc/hosts").stat().st_mtime_ns == (tree / "etc/hosts").stat().st_mtime_ns


def test_a_directory_is_taken_as_it_is(store: ImageStore, tree: Path) -> None:
    image = take(store, tree)
    check_same(store.rootfs(image), tree)
    assert (image.name, image.source, image.n_entries) == ("mine:latest", "directory", 10)
    assert image.size == 4 + 4 + 1 + 1
    assert image.pin == f"mine:latest@sha256:{image.digest}"


@pytest.mark.parametrize("packing", ["", "gz", "xz", "bz2"])
def test_an_archive_is_the_same_image_however_it_is_packed(
    store: ImageStore, tree: Path, tmp_path: Path, packing: str
) -> None:
    image = take(store, pack(tree, tmp_path / "x.tar", f"w:{packing}"))
    made = store.rootfs(image)
    assert image.digest == take(store, tree, "other").digest
    assert image.source == "tar"
    assert (made / "usr/bin/same").stat().st_ino == (made / "usr/bin/tool").stat().st_ino


def test_the_store_is_closed_to_others(store: ImageStore, tree: Path, tmp_path: Path) -> None:
    take(store, tree)
    assert stat.S_IMODE((tmp_path / "cache/images").stat().st_mode) == 0o700


@pytest.mark.parametrize(
    "change",
    [
        lambda root: (root / "etc/hosts").write_text("other"),
        lambda root: (root / "etc/hosts").chmod(0o600),
        lambda root: (root / "etc/hosts").rename(root / "etc/moved"),
        lambda root: (root / "etc/empty").mkdir(),
        lambda root: ((root / "bin").unlink(), (root / "bin").symlink_to("./usr/bin")),
        pytest.param(
            lambda root: os.chown(root / "etc/hosts", 5, 6),
            marks=pytest.mark.skipif(os.geteuid() != 0, reason="root alone can give files away"),
        ),
    ],
)
def test_the_digest_sees_every_change(
    store: ImageStore, tree: Path, change: Callable[[Path], object]
) -> None:
    before = take(store, tree).digest
    change(tree)
    assert take(store, tree, "other").digest != before


def test_the_digest_sees_no_times(store: ImageStore, tree: Path) -> None:
    before = take(store, tree).digest
    os.utime(tree / "etc/hosts", (1, 1))
    assert take(store, tree, "other").digest == before


def test_devices_and_pipes_are_left_out_with_a_note(
    store: ImageStore, tree: Path, tmp_path: Path
) -> None:
    os.mkfifo(tree / "pipe")
    assert take(store, tree).notes == ("devices and pipes left out: 1 entry",)
    null = entry("dev/null", tarfile.CHRTYPE, devmajor=1, devminor=3)
    image = take(store, archive(tmp_path / "x.tar", null), "other")
    assert image.notes == ("devices and pipes left out: 1 entry",)
    assert not (store.rootfs(image) / "dev").exists()


def test_names_that_are_no_text_are_kept(store: ImageStore, tree: Path) -> None:
    (tree / os.fsdecode(b"caf\xe9")).touch()
    assert (store.rootfs(take(store, tree)) / os.fsdecode(b"caf\xe9")).exists()


def test_what_docker_knows_can_be_told(store: ImageStore, tree: Path) -> None:
    known = Known({"PATH": "/x"}, "/app", "ada")
    store.import_image("mine", tree, known, now=NOW)
    found = store.find("mine")
    assert found is not None
    assert (found.env, found.workdir, found.user) == ({"PATH": "/x"}, "/app", "ada")


def test_an_ordinary_user_takes_a_directory(everybodys: Path) -> None:
    """All of it is theirs, who are root inside: the digest is the one that root's would have."""
    with unprivileged():
        tree = make_tree(everybodys / "tree")
        (tree / "closed/in").chmod(0o400)
        theirs = ImageStore(everybodys / "cache")
        image = take(theirs, tree)
        made = theirs.rootfs(image)
        assert (made / "usr/bin/tool").stat().st_uid == os.geteuid()
        assert stat.S_IMODE((made / "usr/bin/tool").stat().st_mode) == 0o4755
        assert stat.S_IMODE((made / "closed").stat().st_mode) == 0o500
        again = theirs.import_image("mine", tree, NOTHING, now=NOW)
        assert not again.is_new
    same = make_tree(everybodys / "roots")
    (same / "closed/in").chmod(0o400)
    assert take(ImageStore(everybodys / "other"), same).digest == image.digest


# Names


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("debian", "debian:latest"),
        ("debian:12", "debian:12"),
        ("docker.io/library/debian:12", "debian:12"),
        ("registry.example.org/org/name:tag", "registry.example.org/org/name:tag"),
        ("localhost:5000/x", "localhost:5000/x:latest"),
        (f"a@sha256:{'0' * 64}", f"a@sha256:{'0' * 64}"),
    ],
)
def test_a_name_is_what_docker_means_by_it(name: str, meant: str) -> None:
    assert normalise_name(name) == meant


@pytest.mark.parametrize(
    "name", ["", "a b", "../x", "/x", "x/", "a//b", "x:", "a:b:c", "a..b", "é", "-x", "x" * 256]
)
def test_what_is_no_name_is_refused(name: str) -> None:
    with pytest.raises(ImageError, match="not a name of an image; expected one such as debian:12"):
        normalise_name(name)


def test_the_same_again_is_nothing_to_do(store: ImageStore, tree: Path) -> None:
    first = store.import_image("mine", tree, NOTHING, now=NOW)
    later = datetime(2027, 1, 1, tzinfo=UTC)
    second = store.import_image("mine", tree, NOTHING, now=later)
    assert (first.is_new, second.is_new) == (True, False)
    assert second.image == first.image


def test_a_name_is_taken_from_another_image_only_when_asked(store: ImageStore, tree: Path) -> None:
    old = take(store, tree)
    (tree / "etc/hosts").write_text("other")
    with pytest.raises(ImageError, match=r"another image has this name .* pass --replace"):
        take(store, tree)
    assert store.find("mine") == old
    new = take(store, tree, replace=True)
    assert store.find("mine") == new
    assert store.rootfs(old).is_dir()


def test_an_image_of_another_machine_is_the_same_one_here(
    store: ImageStore, tree: Path, tmp_path: Path
) -> None:
    image = take(store, tree)
    sent = pack(store.rootfs(image), tmp_path / "sent.tar", "w:")
    there = ImageStore(tmp_path / "there")
    there.receive(image, sent)
    there.receive(image, sent)
    assert there.find("mine") == image
    assert stat.S_IMODE((there.rootfs(image) / "usr/bin/tool").stat().st_mode) == 0o4755


def test_an_image_that_arrives_changed_is_refused(
    store: ImageStore, tree: Path, tmp_path: Path
) -> None:
    image = take(store, tree)
    (tree / "etc/hosts").write_text("other")
    there = ImageStore(tmp_path / "there")
    with pytest.raises(ImageError, match="what arrived is sha256:"):
        there.receive(image, pack(tree, tmp_path / "sent.tar", "w:"))
    take(there, tree)
    with pytest.raises(ImageError, match="another image has this name"):
        there.receive(image, pack(store.rootfs(image), tmp_path / "good.tar", "w:"))


def test_an_image_goes_with_its_last_name(store: ImageStore, tree: Path, tmp_path: Path) -> None:
    image = take(store, tree)
    take(store, tree, "other")
    home = tmp_path / "cache/images/sha256" / image.digest
    store.remove("mine")
    assert home.is_dir()
    assert [left.name for left in store.list_images()] == ["other:latest"]
    store.remove("other")
    assert not home.exists()


def test_what_is_used_is_not_removed(store: ImageStore, tree: Path) -> None:
    store.rootfs(take(store, tree))
    with pytest.raises(ImageError, match="a run uses it; remove it when that has ended"):
        store.remove("mine")


def test_what_is_not_there_cannot_be_removed(store: ImageStore, tree: Path) -> None:
    with pytest.raises(
        ImageError, match="x:latest: no image of that name; the image store is empty"
    ):
        store.remove("x")
    take(store, tree)
    with pytest.raises(ImageError, match="no image of that name; there are mine:latest"):
        store.remove("x")


def test_an_image_whose_files_are_gone_is_said_to_be(store: ImageStore, tree: Path) -> None:
    image = take(store, tree)
    missing = Image(**{**{f: getattr(image, f) for f in image.__struct_fields__}, "digest": "0"})
    with pytest.raises(
        ImageError, match="the files of mine:latest no longer exist; import it again"
    ):
        store.rootfs(missing)


# Interruptions


def test_an_import_that_is_stopped_leaves_nothing(
    store: ImageStore, tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(images, "write_atomic", stop)
        with pytest.raises(KeyboardInterrupt):
            take(store, tree)
    assert store.list_images() == []
    assert not list((tmp_path / "cache/images").glob("incoming-*"))
    assert take(store, tree).name == "mine:latest"


def test_what_a_killed_import_left_is_removed_by_the_next(
    store: ImageStore, tree: Path, tmp_path: Path
) -> None:
    left = tmp_path / "cache/images/incoming-dead"
    write(left, {"rootfs/x": "x"})
    take(store, tree)
    assert not left.exists()


def test_two_imports_at_once_are_one_image(store: ImageStore, tree: Path) -> None:
    made: list[bool] = []

    def run() -> None:
        made.append(store.import_image("mine", tree, NOTHING, now=NOW).is_new)

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(made) == [False, False, True]


def test_what_killed_imports_left_is_reaped(store: ImageStore, tree: Path, tmp_path: Path) -> None:
    assert store.reap() == []
    take(store, tree)
    left = tmp_path / "cache/images/incoming-dead"
    write(left, {"rootfs/x": "x"})
    with locked(tmp_path / "cache/images/lock"):
        assert store.reap() == []
    assert store.reap(dry_run=True) == [left]
    assert store.reap() == [left]
    assert not left.exists()
    assert store.find("mine") is not None
