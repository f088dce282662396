"""The limit of the image store, as people meet it: `image prune`, and runs that pull again."""

import json
from pathlib import Path
from typing import Any

import pytest

from proctor.environments.sandbox.roots.images import ImageStore
from tests.cli.programs import Proctor, Ran, run_child
from tests.cli.test_run import make_task
from tests.environments.sandbox.built import put_layer
from tests.environments.sandbox.registries import SmallRegistry
from tests.environments.sandbox.saved import Saved, layer
from tests.task.trees import write

pytestmark = [pytest.mark.sandbox, pytest.mark.usefixtures("empty_cache")]


def publish(registry: SmallRegistry, bottom: bytes, name: str) -> str:
    return registry.put(name, Saved((bottom, layer(("srv/words", name))), "gzip"))


def write_task(directory: Path, reference: str, words: str) -> None:
    task = make_task(directory)
    text = (task / "task.toml").read_text()
    (task / "task.toml").write_text(f'{text}\n[environment]\ndocker_image = "{reference}"\n')
    (task / "tests" / "test.sh").write_text(
        f'test "$(cat /srv/words)" = {words} && reward=1 || reward=0\n'
        "echo $reward > /logs/verifier/reward.txt\n",
        encoding="utf-8",
    )


def run_job(tmp_path: Path, dataset: str, name: str, limit: str) -> Ran:
    jobs = ("-o", tmp_path / "jobs", "--job-name", name, "-q", "--no-ledger")
    words = ("run", "-p", tmp_path / dataset, "-a", "nop", *jobs)
    return run_child(*words, env={"PROCTOR_STORE_LIMIT": limit})


def rewards_of(tmp_path: Path, name: str) -> list[Any]:
    results = (tmp_path / "jobs" / name).glob("*/result.json")
    return [json.loads(path.read_text())["verifier_result"]["rewards"] for path in results]


def test_a_run_keeps_all_that_it_needs_and_the_next_one_pulls_again_what_was_removed(
    registry: SmallRegistry, bottom: bytes, tmp_path: Path
) -> None:
    references = [publish(registry, bottom, name) for name in ("one", "two")]
    for name, reference in zip(("one", "two"), references, strict=True):
        write_task(tmp_path / "set" / name, reference, name)
    write_task(tmp_path / "other" / "three", publish(registry, bottom, "three"), "three")
    # Nothing fits, and yet both images are there until the job has ended.
    ran = run_job(tmp_path, "set", "first", "0")
    assert (ran.code, rewards_of(tmp_path, "first")) == (0, [{"reward": 1.0}] * 2), ran
    assert [image.name for image in ImageStore().list_images()] == references
    ran = run_job(tmp_path, "other", "second", "0")
    assert (ran.code, rewards_of(tmp_path, "second")) == (0, [{"reward": 1.0}]), ran
    assert [image.name.rpartition("/")[2] for image in ImageStore().list_images()] == ["three:1"]
    ran = run_job(tmp_path, "set", "third", "0")
    assert (ran.code, rewards_of(tmp_path, "third")) == (0, [{"reward": 1.0}] * 2), ran
    assert [image.name for image in ImageStore().list_images()] == references


def test_prune_removes_images_and_layers_and_says_how_much_was_freed(
    proctor: Proctor, registry: SmallRegistry, bottom: bytes, tmp_path: Path, empty_cache: Path
) -> None:
    one, two = (publish(registry, bottom, name) for name in ("one", "two"))
    proctor("image", "import", "mine", write(tmp_path / "tree", {"usr/x": "x"}))
    proctor("image", "pull", one)
    proctor("image", "pull", two)
    put_layer(empty_cache / "layers", "ab" * 32, 100_000)
    listed = json.loads(proctor("image", "list", "--json").out)
    assert [image["origin"] for image in listed["images"]] == ["pulled", "pulled", "imported"]
    assert listed["n_bytes"] > listed["n_bytes_counted"] > 4_000_000
    # One image frees nothing but its own small layer: the other layer is shared.
    removed = json.loads(proctor("image", "prune", one, "--json").out)
    assert 0 < removed["n_bytes_freed"] < 50_000
    ran = proctor("image", "prune", "--all")
    lines = ran.out.splitlines()
    assert lines[0].startswith("1 image and 1 layer removed, 4.")
    assert lines[1] == f"  {two}"
    assert lines[2].startswith("1 image and 0 layers left, ")
    assert lines[2].endswith("; 0 in use")
    (kept,) = json.loads(proctor("image", "prune", "--all", "--json").out)["images"]
    assert (kept["names"], kept["is_kept"]) == (["mine:latest"], True)


def test_a_pull_says_what_it_removed(
    proctor: Proctor, registry: SmallRegistry, bottom: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = (publish(registry, bottom, name) for name in ("one", "two"))
    proctor("image", "pull", one)
    monkeypatch.setenv("PROCTOR_STORE_LIMIT", "1MB")
    last = proctor("image", "pull", two).out.splitlines()[-1]
    assert last.startswith("  to stay within PROCTOR_STORE_LIMIT: 1 image and 0 layers removed, ")
    pulled = json.loads(proctor("image", "pull", one, "--json").out)
    assert [image["names"] for image in pulled["removed_images"]] == [[two]]
    assert pulled["n_bytes_freed"] > 0
