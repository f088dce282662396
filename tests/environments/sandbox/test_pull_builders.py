"""Images that buildah made: pulled roots are what umoci unpacks, file by file."""

import json
import os
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from proctor.environments.sandbox.roots.images import ImageStore
from proctor.environments.sandbox.syscalls import mount
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
from tests.environments.sandboxes import place_for_overlays
from tests.task.trees import write

needs_buildah = pytest.mark.skipif(shutil.which("buildah") is None, reason="needs buildah")
pytestmark = [needs_programs, needs_buildah]
CAPABLE = "security.capability"
HIDES_ALL = ".wh..wh..opq"
# How buildah stores layers decides how a layer says that a directory was made again: one whiteout
# for each entry of the old one, or one that hides them all.
WHITEOUTS = {
    "vfs": {"data/whole/.wh.a", "data/whole/.wh.b", "data/nest/in/.wh.b", "data/nest/.wh.in"},
    "overlay": {f"data/{name}/{HIDES_ALL}" for name in ("whole", "nest/in", "nest")},
}


@dataclass(frozen=True)
class Builder:
    """buildah, with a storage of its own."""

    place: Path
    driver: str

    def run(self, *words: object) -> str:
        storage = ("--root", self.place / "root", "--runroot", self.place / "run")
        argv = ["buildah", *map(str, storage), "--storage-driver", self.driver, *map(str, words)]
        done = subprocess.run(argv, check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def start(self, base: str) -> tuple[str, Path]:
        """Start a container; return its name and its root."""
        container = self.run("from", "--pull-never", base)
        return container, Path(self.run("mount", container))

    def build(self, tree: Path, tag: str) -> None:
        """Build a Dockerfile, a layer for each instruction."""
        self.run("bud", "--isolation", "chroot", "--layers", "-q", "-t", tag, tree)

    def save(self, tag: str, place: Path) -> "Built":
        """Write an image as an OCI layout, and unpack it with umoci."""
        layout = place / "layout"
        # skopeo keeps the compression of layers that have one.
        self.run("push", "-q", "--disable-compression", tag, f"oci:{layout}:1")
        return Built(layout, unpack_with_umoci(layout, "1", place / "bundle"))


@contextmanager
def builder_on(driver: str, *, in_memory: bool = False) -> Iterator[Builder]:
    """Open a builder whose storage has this driver; nothing is left of it."""
    with place_for_overlays() as place:
        # What is mounted below the place is unmounted in the end.
        inner = place / "builder"
        inner.mkdir()
        if in_memory:
            mount("tmpfs", str(inner), "tmpfs")
        yield Builder(inner, driver)


@dataclass(frozen=True)
class Built:
    """An image of several layers, and what umoci unpacks of it."""

    layout: Path
    theirs: Path

    def find_whiteouts(self) -> set[str]:
        """The paths of the whiteouts of all layers."""
        blobs = self.layout / "blobs" / "sha256"
        (listed,) = json.loads((self.layout / "index.json").read_text())["manifests"]
        found = set()
        for layer in json.loads((blobs / listed["digest"][7:]).read_text())["layers"]:
            with tarfile.open(blobs / layer["digest"][7:]) as tar:
                found |= {name for name in tar.getnames() if "/.wh." in name}
        return found


@dataclass(frozen=True)
class Site:
    """A registry with an index for each driver of buildah, and the images that are in them."""

    host: str
    built: dict[str, Built]


def make_first(root: Path) -> None:
    """What a first layer has."""
    make_rootfs(root)
    names = ("keep", "gone", "whole/a", "whole/b", "swap/x", "nest/a", "nest/in/a", "nest/in/b")
    write(root / "data", {name: name for name in names})
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
    shutil.rmtree(root / "data" / "nest" / "in")
    write(root / "data", {"whole/new": "new", "nest/in/a": "again", "deep/er/f": "f"})
    shutil.rmtree(root / "data" / "swap")
    (root / "data" / "swap").symlink_to("whole")
    (root / "data" / "other-name").hardlink_to(root / "data" / "noted")
    (root / "data" / "deep").chmod(0o2770)
    os.chown(root / "data" / "deep", 70, 71)


def build(builder: Builder, tree: Path) -> None:
    """Make the image `tool`, by commits and by a Dockerfile, and an index `both`."""
    for base, tag, edit in (("scratch", "first", make_first), ("first", "second", change)):
        container, root = builder.start(base)
        edit(root)
        builder.run("commit", "-q", container, tag)
    again = "rm -r /data/deep /data/nest && mkdir /data/nest && touch /data/nest/last"
    write(tree, {"Dockerfile": f"FROM second\nRUN {again}\nCOPY --chown=5:6 f /data/\n", "f": "f"})
    builder.build(tree, "tool")
    container, _ = builder.start("second")
    builder.run("config", "--arch", OTHER, container)
    builder.run("commit", "-q", container, "other")
    builder.run("manifest", "create", "both", "tool", "other")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    place = tmp_path_factory.mktemp("built")
    built = {}
    with real_registry(place / "registry") as host:
        for driver in WHITEOUTS:
            with builder_on(driver) as builder:
                build(builder, place / driver / "tree")
                built[driver] = builder.save("tool", place / driver)
                builder.run(
                    *("manifest", "push", "-q", "--all", "--tls-verify=false"),
                    *("both", f"docker://{host}/{driver}:1"),
                )
        yield Site(host, built)


def find_packings(host: str, name: str) -> set[str]:
    """The media types of the layers of an image."""
    accepted = {"Accept": MANIFEST}
    url = f"http://{host}/v2/{name}/manifests/1"
    layers = httpx.get(url, headers=accepted, trust_env=False).json()["layers"]
    return {layer["mediaType"].rpartition(".")[2] for layer in layers}


@pytest.mark.parametrize("driver", WHITEOUTS)
@pytest.mark.parametrize("packing", ["gzip", "zstd"])
def test_the_root_that_buildah_made_is_what_umoci_unpacks(
    site: Site, tmp_path: Path, packing: str, driver: str
) -> None:
    store, built = ImageStore(tmp_path / "cache"), site.built[driver]
    assert built.find_whiteouts() >= WHITEOUTS[driver] | {"data/.wh.gone", "data/.wh.deep"}
    # Its own registry: skopeo does not compress again what a registry has already.
    with real_registry(tmp_path / "registry") as host:
        packed = ("--dest-compress", "--dest-compress-format", packing)
        reference = push(built.layout, "1", host, "tool:1", *packed)
        assert find_packings(host, "tool") == {f"tar+{packing}"}
        image = pull(store, reference, tmp_path)
    assert len(image.layers) >= 3
    with mounted(store, image, tmp_path / "merged") as ours:
        found = facts_of(ours)
        assert found == facts_of(built.theirs)
        # What the comparison is about is there.
        assert os.getxattr(ours / "data" / "capable", CAPABLE) == CAPABILITY
        assert (ours / "bin" / "cat").stat().st_mode & 0o7777 == 0o4755
        names = sorted(str(path.relative_to(ours / "data")) for path in (ours / "data").rglob("*"))
        assert names == [
            *("capable", "f", "keep", "link", "nest", "nest/last", "noted", "other-name", "same"),
            *("swap", "whole", "whole/new"),
        ]
        assert found["hard links"]


@pytest.mark.parametrize("driver", WHITEOUTS)
def test_an_index_of_buildah_has_an_image_for_each_platform(
    site: Site, tmp_path: Path, driver: str
) -> None:
    store = ImageStore(tmp_path / "cache")
    reference = f"{site.host}/{driver}:1"
    ours = pull(store, reference, tmp_path)
    other = pull(store, reference, tmp_path, platform=f"linux/{OTHER}", name="other")
    assert ours.image_id != other.image_id
    with mounted(store, ours, tmp_path / "merged") as root:
        assert facts_of(root) == facts_of(site.built[driver].theirs)
    with mounted(store, other, tmp_path / "merged-other") as root:
        assert (root / "data" / "deep" / "er" / "f").is_file()
        assert [path.name for path in (root / "data" / "nest" / "in").iterdir()] == ["a"]
