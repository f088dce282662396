"""Saved images that are not taken in: each with a sentence, and nothing left behind."""

import json
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from proctor.digest import sha256_hex
from proctor.environments.sandbox.roots.images import ImageStore
from proctor.errors import ImageError
from tests.environments.sandbox.saved import (
    ARCHITECTURE,
    Member,
    Saved,
    as_directory,
    as_tar,
    both_files,
    directory,
    docker_files,
    hard,
    layer,
    layout_files,
    link,
)
from tests.environments.sandbox.trees import entry, take

type Files = dict[str, bytes]
FORMS = [docker_files, layout_files, both_files]


@pytest.fixture
def refusal(tmp_path: Path) -> Callable[[Files], str]:
    store = ImageStore(tmp_path / "cache")

    def refuse(files: Files) -> str:
        shutil.rmtree(tmp_path / "x", ignore_errors=True)
        text = ""
        for source in (
            as_tar(tmp_path / "x.tar", files),
            as_tar(tmp_path / "x.tgz", files, "w:gz"),
            as_directory(tmp_path / "x", files),
        ):
            with pytest.raises(ImageError) as caught:
                take(store, source)
            text = str(caught.value)
            assert text.startswith(f"{source}: ")
            assert store.list_images() == []
            assert not list(tmp_path.glob("cache/images/incoming-*"))
        return text

    return refuse


def layers_of(files: Files, saved: Saved) -> list[str]:
    return [name for name, data in files.items() if data in saved.packed]


# Digests


@pytest.mark.parametrize("files", FORMS)
@pytest.mark.parametrize("packing", ["", "gzip"])
def test_an_altered_layer_is_refused(
    refusal: Callable[[Files], str], files: Callable[..., Files], packing: str
) -> None:
    saved = Saved(packing=packing)
    made = files(saved)
    other = Saved((layer(("usr/x", "y")),), packing)
    (name,) = layers_of(made, saved)
    made[name] = other.packed[0]
    assert "its SHA-256 is" in (text := refusal(made)) or "bytes; expected" in text


@pytest.mark.parametrize("files", FORMS)
def test_an_altered_configuration_is_refused(
    refusal: Callable[[Files], str], files: Callable[..., Files]
) -> None:
    saved = Saved()
    made = files(saved)
    (name,) = (name for name, data in made.items() if data == saved.config)
    made[name] += b" "
    assert f"{name}: its SHA-256 is {sha256_hex(made[name])}; expected" in refusal(made)


@pytest.mark.parametrize("nested", [True, False])
def test_an_altered_manifest_or_index_is_refused(
    refusal: Callable[[Files], str], nested: bool
) -> None:
    made = layout_files(Saved(), nested=nested)
    (named,) = json.loads(made["index.json"])["manifests"]
    made[f"blobs/sha256/{named['digest'][7:]}"] += b" "
    assert "it was altered or damaged" in refusal(made)


def test_a_layer_that_unpacks_to_something_else_is_refused(
    refusal: Callable[[Files], str],
) -> None:
    """The blob is what its descriptor says, and the configuration says something else."""
    saved, other = Saved(packing="gzip"), Saved((layer(("usr/x", "y")),), "gzip")
    made = both_files(saved)
    manifest = json.loads(made["manifest.json"])
    manifest[0]["Layers"] = [f"blobs/sha256/{sha256_hex(other.packed[0])}"]
    made["manifest.json"] = json.dumps(manifest).encode()
    made |= {manifest[0]["Layers"][0]: other.packed[0]}
    expected = sha256_hex(saved.layers[0])
    assert f"its SHA-256 is {sha256_hex(other.layers[0])}; expected {expected}" in refusal(made)


@pytest.mark.parametrize("files", FORMS)
def test_whatever_blob_is_missing_is_named(
    refusal: Callable[[Files], str], files: Callable[..., Files]
) -> None:
    made = files(Saved())
    needed = [name for name in made if "/" in name]
    if files is both_files:
        needed = json.loads(made["manifest.json"])[0]["Layers"]
    for name in needed:
        text = refusal({other: data for other, data in made.items() if other != name})
        assert name in text
        assert "is missing" in text


@pytest.mark.parametrize("packing", ["gzip", "zstd"])
def test_a_layer_that_is_cut_short_is_refused(
    refusal: Callable[[Files], str], packing: str
) -> None:
    saved = Saved(packing=packing)
    made = docker_files(saved)
    (name,) = layers_of(made, saved)
    made[name] = made[name][:-12]
    assert f"layer {name}: " in refusal(made)


# Hostile layers


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ((("../out", "x"),), "../out: leads out of the root file system with `..`; refused"),
        ((("usr/../../.wh.x", ""),), "leads out of the root file system"),
        ((hard("x", "../../etc/passwd"),), "leads out of the root file system"),
        ((hard("x", "nothing"),), "x: a hard link to nothing, which is not an earlier"),
        ((("usr/.wh...", ""),), "usr/.wh...: a whiteout without a name; refused"),
        ((("usr/.wh.", ""),), "a whiteout without"),
        ((("d", "x"), directory("d")), "d: is both a file and a directory"),
        (((f"{'d/' * 600}x", ""),), "is more than 500 directories deep"),
        ((link("loop", "loop"), ("loop/x", "")), "loop/x: is below loop, which is a link"),
    ],
)
def test_nothing_leads_out(
    refusal: Callable[[Files], str], members: tuple[Member, ...], said: str
) -> None:
    saved = Saved((layer(("usr/x", "x")), layer(*members)))
    assert said in refusal(docker_files(saved))


@pytest.mark.parametrize("name", ["door/planted", "door/.wh.victim", "door/.wh..wh..opq"])
def test_nothing_outside_is_written_or_removed_through_a_link(tmp_path: Path, name: str) -> None:
    victim = tmp_path / "outside" / "victim"
    victim.parent.mkdir()
    victim.write_text("safe")
    for to in (str(victim.parent), "../" * 40 + str(victim.parent)[1:]):
        saved = Saved((layer(directory("usr"), link("door", to)), layer((name, ""))))
        source = as_tar(tmp_path / "x.tar", docker_files(saved))
        if name.endswith("planted"):
            with pytest.raises(ImageError, match="door/planted: is below door, which is a link"):
                take(ImageStore(tmp_path / "cache"), source)
        else:
            take(ImageStore(tmp_path / "cache"), source, replace=True)
        assert [path.name for path in victim.parent.iterdir()] == ["victim"]


def test_devices_are_left_out(tmp_path: Path) -> None:
    saved = Saved((layer(directory("usr"), entry("dev/null", tarfile.CHRTYPE, devmajor=1)),))
    store = ImageStore(tmp_path / "cache")
    image = take(store, as_tar(tmp_path / "x.tar", docker_files(saved)))
    assert image.notes == ("devices and pipes left out: 1 entry",)
    assert not (store.rootfs(image) / "dev").exists()


@pytest.mark.parametrize("packing", ["gzip", "zstd"])
def test_a_bomb_ends_where_the_disk_would(
    refusal: Callable[[Files], str], monkeypatch: pytest.MonkeyPatch, packing: str
) -> None:
    """The disk is small for whoever asks; nothing of ours is replaced but the system's answer."""
    monkeypatch.setattr(
        shutil, "disk_usage", lambda _: SimpleNamespace(total=20 << 20, free=2 << 20)
    )
    saved = Saved((layer(directory("usr"), entry("big", size=1 << 22)),), packing)
    assert "unpacks to more than 1.0 MB" in refusal(layout_files(saved))


def test_headers_without_end_are_refused(refusal: Callable[[Files], str]) -> None:
    long = entry("x")
    long.pax_headers = {"comment": "x" * (1 << 25)}
    saved = Saved((layer(directory("usr"), long),), "gzip")
    assert "the headers of a member have more than" in refusal(docker_files(saved))


def test_countless_descriptors_are_refused(refusal: Callable[[Files], str]) -> None:
    files = layout_files(Saved())
    image = json.loads(files["index.json"])["manifests"][0]
    files["index.json"] = json.dumps({"manifests": [image] * 1001}).encode()
    assert "names more than 1,000 images and indexes; refused" in refusal(files)


def test_countless_descriptors_of_inner_indexes_are_refused(
    refusal: Callable[[Files], str],
) -> None:
    """A small outer index, which refers to the same inner one again and again."""
    files = layout_files(Saved(), nested=True)
    inner = json.loads(files["index.json"])["manifests"][0]
    image = json.loads(files[f"blobs/sha256/{inner['digest'][7:]}"])["manifests"][0]
    data = json.dumps({"manifests": [image] * 100}).encode()
    files[f"blobs/sha256/{sha256_hex(data)}"] = data
    outer = {"mediaType": inner["mediaType"], "digest": f"sha256:{sha256_hex(data)}"}
    files["index.json"] = json.dumps({"manifests": [outer] * 100}).encode()
    assert "names more than 1,000 images and indexes; refused" in refusal(files)


def test_a_thousand_descriptors_are_none_too_many(tmp_path: Path) -> None:
    files = layout_files(Saved())
    image = json.loads(files["index.json"])["manifests"][0]
    files["index.json"] = json.dumps({"manifests": [image] * 1000}).encode()
    assert take(ImageStore(tmp_path / "cache"), as_directory(tmp_path / "x", files)).name


# Documents


@pytest.mark.parametrize("files", [docker_files, layout_files, both_files])
def test_an_image_for_another_machine_is_refused(
    refusal: Callable[[Files], str], files: Callable[..., Files]
) -> None:
    text = refusal(files(Saved(architecture="vax")))
    assert "for linux/vax; expected linux/" in text
    assert f"--platform linux/{ARCHITECTURE}" in text


@pytest.mark.parametrize("files", FORMS)
def test_several_images_of_other_names_are_listed(
    refusal: Callable[[Files], str], files: Callable[..., Files]
) -> None:
    images = (Saved(tags=("a:1",)), Saved((layer(("usr/y", "y")),), tags=("b:2",)))
    text = refusal(files(*images))
    assert "contains 2 images, and none or several are called mine:latest: a:1; b:2;" in text


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"manifest.json": b"{"}, "manifest.json: not a valid document of an image"),
        ({"manifest.json": b"[]"}, "index.json: is missing; expected an OCI image layout"),
        ({"manifest.json": b'[{"Config": "../x", "Layers": []}]'}, "leads out of the archive"),
        ({"manifest.json": b'[{"Config": "/x", "Layers": []}]'}, "leads out of the archive"),
        ({"manifest.json": b'[{"Config": "x", "Layers": []}]'}, "configuration x is missing"),
        ({"oci-layout": b"{}", "index.json": b"{}"}, "index.json: names no image"),
        (
            {"oci-layout": b"{}", "index.json": b'{"manifests": [{"digest": "sha256:../x"}]}'},
            "expected sha256: and 64 digits in hex",
        ),
        (docker_files(Saved(())), "has 0 layers, but its configuration names 0"),
        (docker_files(Saved((layer(("x", "x")),))), "not a root file system: neither bin nor usr"),
        (docker_files(Saved(run={"User": "a b"})), "its User is 'a b'; expected the name"),
        (docker_files(Saved(run={"Env": ["A=\0"]})), "its Env has a zero byte"),
    ],
)
def test_documents_that_are_none_are_refused(
    refusal: Callable[[Files], str], files: Files, said: str
) -> None:
    assert said in refusal(files)
