"""Images that buildah made: pulled roots are what umoci unpacks, file by file."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from proctor.environments.sandbox.roots.images import ImageStore
from tests.environments.sandbox.registries import needs_programs, push, real_registry
from tests.environments.sandbox.rootfs import make_rootfs
from tests.environments.sandbox.saved import MANIFEST
from tests.environments.sandbox.test_pull_registry import (
    CAPABILITY,
    OTHER,
    facts_of,
    mounted,
    pull,
    unpack_with_umoci,
)
from tests.task.trees import write

pytestmark = [
    needs_programs,
    pytest.mark.skipif(shutil.which("buildah") is None, reason="needs buildah"),
]
CAPABLE = "security.capability"


@dataclass(frozen=True)
class Builder:
    """buildah, with a storage of its own."""

    place: Path

    def run(self, *words: object) -> str:
        storage = ("--root", self.place / "root", "--runroot", self.place / "run")
        argv = ["buildah", *map(str, storage), "--storage-driver", "vfs", *map(str, words)]
        done = subprocess.run(argv, check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()


@dataclass(frozen=True)
class Site:
    """A registry with an image of several layers, and what umoci unpacks of it."""

    host: str
    layout: Path
    theirs: Path


def make_first(root: Path) -> None:
    """What a first layer has."""
    make_rootfs(root)
    write(root / "data", {name: name for name in ("keep", "gone", "whole/a", "whole/b", "swap/x")})
    (root / "data" / "same").hardlink_to(root / "data" / "keep")
    (root / "data" / "link").symlink_to("keep")
    os.chown(root / "data" / "keep", 1000, 1001)
    os.lchown(root / "data" / "link", 12, 13)
    write(root / "data", {"capable": "x", "noted": "x"})
    os.setxattr(root / "data" / "capable", CAPABLE, CAPABILITY)
    os.setxattr(root / "data" / "noted", "user.note", b"words")
    (root / "bin" / "cat").chmod(0o4755)


def change(root: Path) -> None:
    """What a second layer changes: removed, replaced and added entries."""
    (root / "data" / "gone").unlink()
    shutil.rmtree(root / "data" / "whole")
    write(root / "data", {"whole/new": "new", "deep/er/f": "f"})
    shutil.rmtree(root / "data" / "swap")
    (root / "data" / "swap").symlink_to("whole")
    (root / "data" / "other-name").hardlink_to(root / "data" / "noted")
    (root / "data" / "deep").chmod(0o2770)
    os.chown(root / "data" / "deep", 70, 71)


def build(builder: Builder, tree: Path) -> None:
    """Make the image `tool`, by commits and by a Dockerfile, and an index `both`."""
    for base, tag, edit in (("scratch", "first", make_first), ("first", "second", change)):
        container = builder.run("from", "--pull-never", base)
        edit(Path(builder.run("mount", container)))
        builder.run("commit", "-q", container, tag)
    write(tree, {"Dockerfile": "FROM second\nRUN rm -r /data/deep\nCOPY --chown=5:6 f /data/\n"})
    write(tree, {"f": "f"})
    builder.run("bud", "--isolation", "chroot", "--layers", "-q", "-t", "tool", tree)
    container = builder.run("from", "--pull-never", "second")
    builder.run("config", "--arch", OTHER, container)
    builder.run("commit", "-q", container, "other")
    builder.run("manifest", "create", "both", "tool", "other")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    place = tmp_path_factory.mktemp("built")
    builder = Builder(place)
    build(builder, place / "tree")
    layout = place / "layout"
    # skopeo keeps the compression of layers that have one.
    builder.run("push", "-q", "--disable-compression", "tool", f"oci:{layout}:1")
    theirs = unpack_with_umoci(layout, "1", place / "bundle")
    with real_registry(place / "registry") as host:
        builder.run(
            *("manifest", "push", "-q", "--all", "--tls-verify=false"),
            *("both", f"docker://{host}/both:1"),
        )
        yield Site(host, layout, theirs)


def find_packings(host: str, name: str) -> set[str]:
    """The media types of the layers of an image."""
    accepted = {"Accept": MANIFEST}
    url = f"http://{host}/v2/{name}/manifests/1"
    layers = httpx.get(url, headers=accepted, trust_env=False).json()["layers"]
    return {layer["mediaType"].rpartition(".")[2] for layer in layers}


@pytest.mark.parametrize("packing", ["gzip", "zstd"])
def test_the_root_that_buildah_made_is_what_umoci_unpacks(
    site: Site, tmp_path: Path, packing: str
) -> None:
    store = ImageStore(tmp_path / "cache")
    # Its own registry: skopeo does not compress again what a registry has already.
    with real_registry(tmp_path / "registry") as host:
        packed = ("--dest-compress", "--dest-compress-format", packing)
        reference = push(site.layout, "1", host, "tool:1", *packed)
        assert find_packings(host, "tool") == {f"tar+{packing}"}
        image = pull(store, reference, tmp_path)
    assert len(image.layers) >= 3
    with mounted(store, image, tmp_path / "merged") as ours:
        found = facts_of(ours)
        assert found == facts_of(site.theirs)
        # What the comparison is about is there.
        assert os.getxattr(ours / "data" / "capable", CAPABLE) == CAPABILITY
        assert (ours / "bin" / "cat").stat().st_mode & 0o7777 == 0o4755
        assert sorted(path.name for path in (ours / "data").iterdir()) == [
            *("capable", "f", "keep", "link", "noted", "other-name", "same", "swap", "whole")
        ]
        assert found["hard links"]


def test_an_index_of_buildah_has_an_image_for_each_platform(site: Site, tmp_path: Path) -> None:
    store = ImageStore(tmp_path / "cache")
    reference = f"{site.host}/both:1"
    ours = pull(store, reference, tmp_path)
    other = pull(store, reference, tmp_path, platform=f"linux/{OTHER}", name="other")
    assert ours.image_id != other.image_id
    with mounted(store, ours, tmp_path / "merged") as root:
        assert facts_of(root) == facts_of(site.theirs)
    with mounted(store, other, tmp_path / "merged-other") as root:
        assert (root / "data" / "deep" / "er" / "f").is_file()
