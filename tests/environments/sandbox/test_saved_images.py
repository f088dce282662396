"""Images out of Docker and of OCI layouts: layers on one another, and what the image says."""

import json
import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from backports import zstd

from proctor.environments.sandbox.roots.image import Image
from proctor.environments.sandbox.roots.images import ImageStore, Known
from proctor.harbor.configs import EnvironmentConfig
from proctor.task.environment import Healthcheck
from tests.environments.orders import order_of
from tests.environments.sandbox.rootfs import make_rootfs, pack
from tests.environments.sandbox.saved import (
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
from tests.environments.sandbox.trees import NOW, entry, make_tree, take
from tests.environments.sandboxes import running, said
from tests.unprivileged import unprivileged

FORMS = {"docker": docker_files, "layout": layout_files, "both": both_files}
HOME = (directory("usr"), directory("d"), ("d/a", "a"), ("d/b", "b"), ("d/sub/c", "c"))


@pytest.fixture
def store(tmp_path: Path) -> ImageStore:
    return ImageStore(tmp_path / "cache")


@pytest.fixture
def put(store: ImageStore, tmp_path: Path) -> Callable[..., Path]:
    """Imports layers; where they are then."""

    def put_layers(*layers: bytes) -> Path:
        source = as_tar(tmp_path / "x.tar", docker_files(Saved(layers)))
        return store.rootfs(take(store, source))

    return put_layers


def below(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*")}


@pytest.mark.parametrize("packing", ["", "gzip", "zstd"])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("place", ["tar", "directory"])
def test_an_image_comes_with_its_layers_and_its_id(
    store: ImageStore, tmp_path: Path, form: str, packing: str, place: str
) -> None:
    saved = Saved((layer(("usr/x", "old"), ("usr/y", "y")), layer(("usr/x", "new"))), packing)
    files = FORMS[form](saved)
    source = tmp_path / "source"
    image = take(store, (as_tar if place == "tar" else as_directory)(source, files))
    root = store.rootfs(image)
    assert ((root / "usr/x").read_text(), (root / "usr/y").read_text()) == ("new", "y")
    assert image.image_id == saved.image_id
    assert image.source == ("oci-layout" if form == "layout" else "docker-save")


@pytest.mark.parametrize("mode", ["w:gz", "w:xz", "w:bz2"])
def test_a_saved_archive_may_be_packed_itself(store: ImageStore, tmp_path: Path, mode: str) -> None:
    saved = Saved()
    assert take(store, as_tar(tmp_path / "x", docker_files(saved), mode)).image_id == saved.image_id


def test_the_digest_is_that_of_the_same_tree_taken_as_a_tar(
    store: ImageStore, tmp_path: Path
) -> None:
    plain = pack(make_tree(tmp_path / "tree"), tmp_path / "x.tar")
    flat = take(store, plain, "flat")
    saved = as_tar(tmp_path / "s.tar", docker_files(Saved((plain.read_bytes(),))))
    layered = take(store, saved, "layered")
    assert layered.digest == flat.digest
    assert (flat.image_id, flat.source) == (None, "tar")


def test_a_root_file_system_by_zstd_is_taken(store: ImageStore, tmp_path: Path) -> None:
    plain = pack(make_tree(tmp_path / "tree"), tmp_path / "x.tar")
    packed = tmp_path / "x.zst"
    packed.write_bytes(zstd.compress(plain.read_bytes()))
    assert take(store, packed, "one").digest == take(store, plain, "two").digest


def test_a_root_file_system_with_a_manifest_at_its_top_is_one(
    store: ImageStore, tmp_path: Path
) -> None:
    files = {"manifest.json": b"[]", "oci-layout": b"", "index.json": b"", "usr/x": b"x"}
    assert take(store, as_tar(tmp_path / "x.tar", files)).source == "tar"
    assert take(store, as_directory(tmp_path / "x", files), "other").source == "directory"


# Layers


def test_a_whiteout_takes_away_what_is_below(put: Callable[..., Path]) -> None:
    root = put(layer(*HOME), layer(("d/.wh.a", ""), ("d/.wh.sub", ""), (".wh.nothing", "")))
    assert below(root) == {"usr", "d", "d/b"}


@pytest.mark.parametrize("is_first", [True, False])
def test_an_opaque_directory_keeps_only_what_its_own_layer_has(
    put: Callable[..., Path], is_first: bool
) -> None:
    own = [("d/new", "n"), ("d/sub/own", "o")]
    mark = ("d/.wh..wh..opq", "")
    root = put(layer(*HOME), layer(*([mark, *own] if is_first else [*own, mark])))
    assert below(root) == {"usr", "d", "d/new", "d/sub", "d/sub/own"}


def test_a_whiteout_does_not_touch_its_own_layer(put: Callable[..., Path]) -> None:
    root = put(layer(*HOME), layer(("d/sub/own", "o"), ("d/.wh.sub", "")))
    assert below(root) == {"usr", "d", "d/a", "d/b", "d/sub", "d/sub/own"}


def test_a_removed_directory_comes_back_as_another_layer_has_it(put: Callable[..., Path]) -> None:
    root = put(layer(*HOME), layer((".wh.d", "")), layer(("d/z", "z")))
    assert below(root) == {"usr", "d", "d/z"}


def test_a_hard_link_reaches_into_a_lower_layer(put: Callable[..., Path]) -> None:
    root = put(layer(*HOME), layer(hard("same", "d/a")), layer(("d/a", "later")))
    assert (root / "same").read_text() == "a"
    assert (root / "d/a").read_text() == "later"


def test_hard_links_of_one_layer_are_one_file(put: Callable[..., Path]) -> None:
    root = put(layer(*HOME, hard("d/same", "d/a")))
    assert (root / "d/same").samefile(root / "d/a")


def test_kinds_replace_one_another_across_layers(put: Callable[..., Path]) -> None:
    first = layer(*HOME, ("file", "f"), link("door", "/etc"))
    root = put(first, layer(("d", "now a file"), directory("file"), directory("door")))
    assert (root / "d").read_text() == "now a file"
    assert (root / "file").is_dir()
    assert (root / "door").is_dir()
    assert not (root / "door").is_symlink()


def test_modes_and_owners_are_those_of_the_last_layer(put: Callable[..., Path]) -> None:
    first = layer(directory("usr", mode=0o700), entry("usr/tool", mode=0o644, uid=5))
    second = layer(directory("usr", mode=0o751), entry("usr/tool", mode=0o4755, uid=7, gid=8))
    root = put(first, second)
    assert (root / "usr").stat().st_mode & 0o7777 == 0o751
    status = (root / "usr/tool").stat()
    assert status.st_mode & 0o7777 == 0o4755
    if os.geteuid() == 0:
        assert (status.st_uid, status.st_gid) == (7, 8)


def test_an_ordinary_user_takes_layers_of_others(everybodys: Path) -> None:
    lower = layer(directory("usr", mode=0o500, uid=7), entry("usr/tool", mode=0o400, uid=7))
    source = as_tar(everybodys / "x.tar", docker_files(Saved((lower, layer(("usr/.wh.tool", ""))))))
    with unprivileged():
        theirs = ImageStore(everybodys / "cache")
        root = theirs.rootfs(take(theirs, source))
        assert below(root) == {"usr"}
        assert (root / "usr").stat().st_uid == os.geteuid()


@pytest.mark.parametrize("to", ["usr/lib", "/usr/lib", "../usr/lib", "other"])
def test_below_a_link_to_a_directory_inside_things_are_put_there(
    put: Callable[..., Path], to: str
) -> None:
    first = layer(("usr/lib/a", "a"), link("other", "usr/lib"), link("lib", to))
    root = put(first, layer(("lib/b", "b"), ("lib/.wh.a", "")))
    assert (root / "lib").is_symlink()
    assert below(root / "usr/lib") == {"b"}


# What the image says


def say(store: ImageStore, tmp_path: Path, known: Known, **run: object) -> Image:
    source = as_tar(tmp_path / "x.tar", layout_files(Saved(run=run)))
    return store.import_image("mine", source, known, now=NOW).image


def test_variables_directory_and_user_come_with_it(store: ImageStore, tmp_path: Path) -> None:
    more = {"Entrypoint": ["/init"], "Cmd": ["a", "b"]}
    env = ["PATH=/x:/y", "A=b=c"]
    image = say(store, tmp_path, Known({}), Env=env, WorkingDir="/app", User="7:8", **more)
    assert image.env == {"PATH": "/x:/y", "A": "b=c"}
    assert (image.workdir, image.user) == ("/app", "7:8")
    assert image.entrypoint == ("/init",)
    assert image.notes == ('its Cmd is not run: ["a", "b"]',)
    assert store.find("mine") == image


@pytest.mark.parametrize(
    ("given", "command"),
    [
        ({"Test": ["CMD", "a b", "c"]}, "'a b' c"),
        ({"Test": ["CMD-SHELL", "a; b"]}, "/bin/bash -ec 'a; b'"),
        ({"Test": ["NONE"]}, None),
        ({}, None),
    ],
)
def test_its_healthcheck_comes_with_it(
    store: ImageStore, tmp_path: Path, given: dict[str, object], command: str | None
) -> None:
    check = {**given, "Interval": 1_500_000_000, "Timeout": 200_000_000, "Retries": -1}
    run = {"Healthcheck": check, "Shell": ["/bin/bash", "-ec"]}
    image = say(store, tmp_path, Known({}), **run)
    assert store.find("mine") == image
    found = image.healthcheck.to_task() if image.healthcheck else None
    expected = Healthcheck(
        command=command or "", interval_sec=1.5, timeout_sec=1, start_interval_sec=5, retries=3
    )
    assert found == (expected if command else None)


def test_what_is_told_goes_before_what_it_says(store: ImageStore, tmp_path: Path) -> None:
    known = Known({"A": "mine"}, "/srv", "ada")
    image = say(store, tmp_path, known, Env=["A=b", "C=d"], WorkingDir="/app", User="bob")
    assert image.env == {"A": "mine", "C": "d"}
    assert (image.workdir, image.user) == ("/srv", "ada")


def test_nothing_said_is_root_at_the_top(store: ImageStore, tmp_path: Path) -> None:
    image = say(store, tmp_path, Known({}), Env=None, User="")
    assert (image.env, image.workdir, image.user, image.notes) == ({}, "/", "root", ())


async def test_commands_run_in_an_image_out_of_docker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROCTOR_CACHE", str(tmp_path / "cache"))
    base = pack(make_rootfs(tmp_path / "tree"), tmp_path / "base.tar").read_bytes()
    run = {"Env": ["GREETING=hello"], "WorkingDir": "/srv/app", "Cmd": ["false"]}
    upper = layer(directory("srv/app"), ("srv/app/words", "there"))
    source = as_tar(tmp_path / "x.tar", both_files(Saved((base, upper), "gzip", run)))
    take(ImageStore(), source)
    config = EnvironmentConfig(kwargs={"base": "mine"})
    async with running(order_of(tmp_path, config=config)) as sandbox:
        assert (await said(sandbox, "echo $GREETING; pwd; cat words")) == "hello\n/srv/app\nthere"


# Several


@pytest.mark.parametrize("files", FORMS.values())
def test_of_several_images_the_name_chooses(
    store: ImageStore, tmp_path: Path, files: Callable[..., dict[str, bytes]]
) -> None:
    one = Saved((layer(("usr/x", "1")),), tags=("one:1",))
    two = Saved((layer(("usr/x", "2")),), tags=("docker.io/library/two:latest",))
    source = as_tar(tmp_path / "x.tar", files(one, two))
    assert take(store, source, "two").image_id == two.image_id
    assert take(store, source, "one:1").image_id == one.image_id


@pytest.mark.parametrize("nested", [True, False])
def test_of_several_platforms_the_one_of_this_machine_is_taken(
    store: ImageStore, tmp_path: Path, nested: bool
) -> None:
    mine, other = Saved(), Saved(architecture="vax")
    files = layout_files(other, mine, nested=nested)
    assert take(store, as_tar(tmp_path / "x.tar", files)).image_id == mine.image_id


def test_an_attestation_is_no_image(store: ImageStore, tmp_path: Path) -> None:
    mine = Saved()
    files = layout_files(mine, Saved(run={"User": "x"}))
    index = json.loads(files["index.json"])
    index["manifests"][1]["annotations"] = {"vnd.docker.reference.type": "attestation-manifest"}
    files["index.json"] = json.dumps(index).encode()
    assert take(store, as_tar(tmp_path / "x.tar", files)).image_id == mine.image_id


def test_a_layer_that_docker_wrote_as_a_link_to_another_is_found(
    store: ImageStore, tmp_path: Path
) -> None:
    saved = Saved()
    files = docker_files(saved)
    (name,) = (name for name in files if name.endswith("layer.tar"))
    manifest = json.loads(files["manifest.json"])
    manifest[0]["Layers"] = ["again/layer.tar"]
    files["manifest.json"] = json.dumps(manifest).encode()
    source = as_tar(tmp_path / "x.tar", files)
    with tarfile.open(source, "a") as tar:
        tar.addfile(link("again/layer.tar", f"../{name}"))
    assert take(store, source).image_id == saved.image_id
