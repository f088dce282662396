"""`proctor image`: root file systems for the sandbox."""

import json
import re
from pathlib import Path

import pytest

from tests.cli.programs import Proctor, run_unprivileged
from tests.environments.sandbox.built import put_layer
from tests.environments.sandbox.saved import Saved, as_tar, docker_files
from tests.task.trees import write


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PROCTOR_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return write(tmp_path / "tree", {"usr/bin/tool": "tool"})


def test_an_image_is_imported_listed_and_removed(proctor: Proctor, tree: Path) -> None:
    ran = proctor("image", "import", "debian:12", tree)
    assert (ran.code, ran.err) == (0, "")
    first, pin = ran.out.splitlines()
    assert first == "debian:12: imported, 3 entries, 4 B"
    assert pin.startswith("  debian:12@sha256:")
    heading, row, total = proctor("image", "list").out.splitlines()
    assert heading.split() == ["name", "digest", "size", "from", "last", "used"]
    assert row.startswith("debian:12  sha256:")
    assert row.split()[4] == "imported"
    assert total.endswith("on the disk; 0 B count towards PROCTOR_STORE_LIMIT, 50.0 GB")
    removed = proctor("image", "prune", "debian:12").out
    assert re.fullmatch(r"debian:12: removed, [1-9][0-9.]* kB freed\n", removed)
    assert proctor("image", "list").out.startswith("no images; `proctor image pull REF` or")


def test_the_same_again_says_so(proctor: Proctor, tree: Path) -> None:
    proctor("image", "import", "mine", tree)
    ran = proctor("image", "import", "mine", tree)
    assert ran.code == 0
    assert ran.out.startswith("mine:latest: nothing to do, the same image has this name already\n")


def test_facts_are_printed_as_json(proctor: Proctor, tree: Path) -> None:
    options = ("-e", "A=b=c", "--workdir", "/app", "--user", "ada", "--json")
    made = json.loads(proctor("image", "import", "mine", tree, *options).out)
    assert made["is_new"] is True
    image = made["image"]
    assert (image["env"], image["workdir"], image["user"]) == ({"A": "b=c"}, "/app", "ada")
    assert image["pin"] == f"mine:latest@{image['digest']}"
    listed = json.loads(proctor("image", "list", "--json").out)
    (one,) = listed["images"]
    assert one.items() >= {**image, "is_used": False, "is_kept": True}.items()
    assert (listed["layers"], listed["n_bytes_counted"], listed["limit"]) == ([], 0, 50 * 10**9)
    removed = json.loads(proctor("image", "prune", "mine", "--json").out)
    assert removed == {"removed_images": [image], "n_bytes_freed": listed["n_bytes"]}


def test_an_image_out_of_docker_is_imported_with_its_id(proctor: Proctor, tmp_path: Path) -> None:
    saved = Saved(run={"User": "ada", "WorkingDir": "/app", "Cmd": ["sh"]}, tags=("tool:1",))
    source = as_tar(tmp_path / "saved", docker_files(saved))
    ran = proctor("image", "import", "tool:1", source)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines()[2:] == [
        f"  image id {saved.image_id}",
        '  its Cmd is not run: ["sh"]',
    ]
    (image,) = json.loads(proctor("image", "list", "--json").out)["images"]
    assert (image["image_id"], image["source"]) == (saved.image_id, "docker-save")
    assert (image["user"], image["workdir"]) == ("ada", "/app")


def test_another_image_takes_a_name_only_with_replace(proctor: Proctor, tree: Path) -> None:
    proctor("image", "import", "mine", tree)
    write(tree, {"usr/more": "m"})
    ran = proctor("image", "import", "mine", tree)
    assert (ran.code, ran.out) == (2, "")
    assert "pass --replace to replace it" in ran.err
    assert proctor("image", "import", "mine", tree, "--replace").code == 0


def test_layers_are_listed_and_pruned(proctor: Proctor, cache: Path) -> None:
    assert proctor("image", "prune").out.splitlines() == [
        "0 images and 0 layers removed, 0 B freed",
        "0 images and 0 layers left, 0 B; 0 in use",
    ]
    put_layer(cache / "layers", "ab" * 32, 100_000)
    out = proctor("image", "list").out.splitlines()
    assert out[1].startswith("1 layer of Dockerfiles, 1")
    assert out[2].split() == ["layer", "base", "size", "last", "used"]
    assert out[3].startswith("abababababab  debian:12  1")
    (layer,) = json.loads(proctor("image", "list", "--json").out)["layers"]
    assert (layer["key"], layer["steps"], layer["is_used"]) == ("ab" * 32, ["RUN true"], False)
    assert proctor("image", "prune", "--limit", "1GB").out.startswith(
        "0 images and 0 layers removed"
    )
    pruned = json.loads(proctor("image", "prune", "--all", "--json").out)
    assert pruned == {
        "removed": [layer],
        "removed_images": [],
        "n_bytes_freed": layer["size"],
        "images": [],
        "layers": [],
    }


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("import", "a b", "."), "not a name of an image"),
        (("import", "x", "absent"), "absent: does not exist"),
        (("import", "x", ".", "-e", "novalue"), "--env 'novalue'; expected KEY=VALUE"),
        (("import", "x", ".", "--workdir", "app"), "expected an absolute path"),
        (("prune", "--limit", "much"), "'much': expected a size such as 20GB, 500MB or 0"),
        (("prune", "--all", "--limit", "1"), "--all cannot be combined with --limit"),
        (("prune", "x"), "x:latest: no image of that name; the image store is empty"),
    ],
)
def test_bad_input_is_a_sentence(proctor: Proctor, arguments: tuple[str, ...], said: str) -> None:
    ran = proctor("image", *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err


def test_a_cache_that_everybody_can_write_to_is_refused(proctor: Proctor, cache: Path) -> None:
    cache.mkdir()
    cache.chmod(0o1777)
    ran = proctor("image", "list")
    assert (ran.code, ran.out) == (2, "")
    assert "cache: world-writable, and files in the cache are executed; set" in ran.err


@pytest.mark.parametrize("command", ["list", "prune", "list x"])
def test_a_cache_that_may_not_be_read_is_a_sentence(
    proctor: Proctor, cache: Path, command: str
) -> None:
    (cache / "layers").mkdir(parents=True)
    cache.chmod(0)
    ran = run_unprivileged(proctor, "image", *command.split())
    cache.chmod(0o700)
    assert (ran.code, ran.out, len(ran.err.splitlines())) == (2, "", 1)
    assert "Permission denied" in ran.err
