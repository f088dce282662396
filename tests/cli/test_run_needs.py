"""The table of a dry run: what tasks need, and whether they can be run here."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from proctor.environments.sandbox.roots.images import ImageStore
from tests.cli.programs import Proctor, run_child
from tests.cli.test_run import Run
from tests.cli.test_run import run as run  # a fixture
from tests.environments.sandbox.registries import free_port, needs_programs, push, real_registry
from tests.environments.sandbox.rootfs import make_rootfs, pack
from tests.environments.sandbox.saved import Saved, as_directory, layer, layout_files
from tests.job.small_tasks import write_task

IMAGE = "registry.example.org/organisation/adaptive-rejection-sampler:20251031"
pytestmark = pytest.mark.sandbox
LONG = "a-task-with-quite-a-long-name"


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    place = tmp_path / "tasks"
    named = f'[environment]\ndocker_image = "{IMAGE}"\nmemory_mb = 2048\nstorage_mb = 10240\n'
    name = '[task]\nname = "organisation/{}"\n'
    write_task(place / LONG, f"{name.format(LONG)}{named}[agent]\ntimeout_sec = 900.0\n")
    for gpu in ("gpu-one", "gpu-two"):
        write_task(place / gpu, f"{name.format(gpu)}[environment]\ngpus = 1\n")
    return place


@pytest.mark.parametrize("columns", [80, 200])
def test_the_table_is_readable_on_narrow_and_wide_terminals(
    run: Run, tasks: Path, columns: int
) -> None:
    ran = run("-p", tasks, "-a", "nop", "-e", "sandbox", "--dry-run", COLUMNS=str(columns))
    assert ran.code == 3, ran.err
    assert max(map(len, ran.out.splitlines()[3:-4])) <= columns
    rows = [" ".join(line.split()) for line in ran.out.splitlines()]
    needs = "public 2.0 GB 10.2 GB 25m 00s 0 yes"
    if columns == 200:
        assert "task image download network memory storage time GPUs runs here" in rows
        assert f"{LONG} {IMAGE} 0 B {needs}" in rows
        assert "gpu-one debian:12 0 B public no limit no limit no limit 1 no" in rows
    else:
        assert "task network memory storage time GPUs runs here" in rows
        assert any(row.startswith(LONG[:20]) and row.endswith(needs) for row in rows)
        assert "task image download" in rows
        assert "gpu-one debian:12 0 B" in rows
    assert "cannot be run here: 2 tasks: gpus = 1: the sandbox has no graphics processors" in rows
    assert rows[-1] == (
        f"note: not in the image store, and would not be pulled: {IMAGE}, debian:12; the base is "
        "used instead"
    )


def test_the_same_as_json(run: Run, tasks: Path) -> None:
    ran = run("-p", tasks, "-a", "nop", "-e", "sandbox", "--dry-run", "--json")
    assert ran.code == 3
    document = json.loads(ran.out)
    first, second = document["tasks"][:2]
    assert first == {
        "task": f"organisation/{LONG}",
        "images": [IMAGE],
        "is_built": False,
        "download_bytes": 0,
        "network": "public",
        "cpus": None,
        "memory_mb": 2048,
        "storage_mb": 10240,
        "gpus": 0,
        "agent_sec": 900.0,
        "verifier_sec": 600.0,
        "runnable": True,
        "why": None,
    }
    assert (second["runnable"], second["gpus"]) == (False, 1)
    assert second["why"] == "gpus = 1: the sandbox has no graphics processors"


# Sizes to download


class Site:
    """A registry with images that share a layer, and tasks that name them."""

    def __init__(self, place: Path, host: str) -> None:
        self.place = place
        self.host = host
        bottom = pack(make_rootfs(place / "root"), place / "root.tar").read_bytes()
        self.one = self.push("one", bottom, layer(("srv/words", "one")))
        self.two = self.push("two", bottom, layer(("srv/words", "two" * 1000)))
        self.tool = self.push("tool", layer(("uv", "u" * 5000)))

    def push(self, name: str, *layers: bytes) -> str:
        layout = self.place / name
        layout.mkdir()
        saved = Saved(layers, "gzip", tags=("1",))
        as_directory(layout, layout_files(saved))
        return push(layout, "1", self.host, f"org/{name}:1")

    def write_tasks(self, place: Path) -> Path:
        for name, text in {
            "both": f"FROM {self.one}\nCOPY --from={self.tool} /uv /uv\n",
            "one": f"FROM {self.one}\n",
            "two": "FROM elsewhere.invalid/x:1\n",
        }.items():
            image = f'[environment]\ndocker_image = "{self.two}"\n' if name == "two" else ""
            task = write_task(place / name, image)
            (task / "environment" / "Dockerfile").write_text(text)
        return place


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    place = tmp_path_factory.mktemp("site")
    with real_registry(place / "registry") as host:
        yield Site(place, host)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ImageStore:
    monkeypatch.setenv("PROCTOR_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("PROCTOR_BASE", raising=False)
    return ImageStore()


def dry_run(run: Run, tasks: Path, *more: object) -> Any:
    ran = run("-p", tasks, "-a", "nop", "-e", "sandbox", "--dry-run", "--json", *more)
    assert ran.code == 0, ran
    return json.loads(ran.out)


def sizes_of(document: Any) -> dict[str, int | None]:
    return {one["task"]: one["download_bytes"] for one in document["tasks"]}


def downloaded(proctor: Proctor, reference: str) -> int:
    ran = proctor("image", "pull", reference, "--json")
    n_bytes = json.loads(ran.out)["n_bytes_downloaded"]
    assert isinstance(n_bytes, int)
    return n_bytes


@needs_programs
def test_the_sizes_are_what_the_pulls_download(
    run: Run, proctor: Proctor, site: Site, store: ImageStore, tmp_path: Path
) -> None:
    tasks = site.write_tasks(tmp_path / "tasks")
    document = dry_run(run, tasks)
    assert document["notes"] == []
    assert store.list_images() == []
    assert list(tmp_path.glob("cache/images/**/*")) == []
    text = run("-p", tasks, "-a", "nop", "-e", "sandbox", "--dry-run").out
    assert " unknown" not in text
    one, two, tool = (downloaded(proctor, name) for name in (site.one, site.two, site.tool))
    # The second image was pulled when its lower layer was there.
    sizes = sizes_of(document)
    assert (sizes["one"], sizes["both"]) == (one, one + tool)
    assert document["download_bytes"] == one + two + tool
    assert f"to download: {(one + two + tool) / 1e6:.1f} MB in all; layers that" in text
    again = dry_run(run, tasks)
    assert (sizes_of(again), again["download_bytes"]) == (dict.fromkeys(sizes, 0), 0)


@needs_programs
def test_layers_in_the_store_are_not_downloaded_again(
    run: Run, proctor: Proctor, site: Site, store: ImageStore, tmp_path: Path
) -> None:
    tasks = site.write_tasks(tmp_path / "tasks")
    whole = sizes_of(dry_run(run, tasks))["two"]
    downloaded(proctor, site.one)
    rest = sizes_of(dry_run(run, tasks))["two"]
    assert whole is not None
    assert rest is not None
    assert 0 < rest < whole
    assert downloaded(proctor, site.two) == rest


def test_without_an_answer_sizes_are_unknown_and_it_is_said_once(
    run: Run, store: ImageStore, tmp_path: Path
) -> None:
    host = f"127.0.0.1:{free_port()}"
    for number in range(20):
        named = f'[environment]\ndocker_image = "{host}/tool{number}:1"\n'
        write_task(tmp_path / "tasks" / f"task{number}", named)
    document = dry_run(run, tmp_path / "tasks")
    assert set(sizes_of(document).values()) == {None}
    assert document["download_bytes"] is None
    (note,) = document["notes"]
    assert note.startswith(f"the size to download is unknown: {host}: cannot be reached: ")
    assert note.count(host) == 1


@needs_programs
def test_offline_asks_nobody(run: Run, site: Site, store: ImageStore, tmp_path: Path) -> None:
    document = dry_run(run, site.write_tasks(tmp_path / "tasks"), "--offline")
    assert set(sizes_of(document).values()) == {None}
    assert document["notes"] == [
        "the size to download is unknown with --offline, and these images have to be there: "
        f"{site.one}, {site.tool}, {site.two}"
    ]


@needs_programs
def test_a_given_base_and_other_programs_are_said(
    run: Run, site: Site, store: ImageStore, tmp_path: Path
) -> None:
    tasks = site.write_tasks(tmp_path / "tasks")
    based = dry_run(run, tasks, "--base", "host")
    assert (set(sizes_of(based).values()), based["download_bytes"]) == ({0}, 0)
    assert based["notes"] == [
        f"not in the image store, and would not be pulled: {site.one}, {site.tool}, {site.two}; "
        "the base is used instead"
    ]
    built = dry_run(run, tasks, "--builder", "buildah")
    sizes = sizes_of(built)
    assert (sizes["one"], sizes["both"], built["download_bytes"]) == (None, None, None)
    assert sizes["two"]
    assert built["notes"] == [
        "the size to download is unknown: buildah pulls the images of Dockerfiles itself"
    ]
    # Without --builder, only what the sandbox does not build.
    with (tasks / "one" / "environment" / "Dockerfile").open("a") as file:
        file.write("ONBUILD RUN true\n")
    sizes, chosen = sizes_of(auto := dry_run(run, tasks)), auto["notes"]
    assert (sizes["one"], chosen) == (None, built["notes"])
    assert sizes["both"]
    assert sizes["two"]


@needs_programs
def test_a_job_that_was_begun_asks_for_the_digest_that_it_was_begun_on(
    proctor: Proctor, site: Site, store: ImageStore, tmp_path: Path
) -> None:
    reference = site.push("moving", layer(("bin/x", "x"), ("usr/first", "first")))
    named = f'[environment]\ndocker_image = "{reference}"\n'
    write_task(tmp_path / "tasks" / "one", named)
    # In a process that ends: images in use are not removed.
    jobs = ("-o", tmp_path / "jobs", "--job-name", "one", "-q", "--no-ledger")
    run_child("run", "-p", tmp_path / "tasks", "-a", "nop", *jobs)
    image = store.find(reference)
    assert image is not None
    assert proctor("image", "prune", reference).code == 0
    again = ("resume", tmp_path / "jobs" / "one", "--dry-run", "--json", "--also", "RuntimeError")
    (task,) = json.loads(proctor(*again).out)["tasks"]
    moved = site.place / "moved"
    moved.mkdir()
    as_directory(moved, layout_files(Saved((layer(("usr/x", "x" * 9999)),), tags=("1",))))
    push(moved, "1", site.host, "org/moving:1")
    (then,) = json.loads(proctor(*again).out)["tasks"]
    assert task["download_bytes"] == then["download_bytes"] > 0
