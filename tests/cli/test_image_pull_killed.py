"""`proctor image pull` that is interrupted, killed, run twice at once, or out of space."""

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from proctor.digest import sha256_hex
from tests.cli.programs import Proctor, Ran, command_line, environment, run_child
from tests.environments.sandbox.registries import (
    Request,
    SmallRegistry,
    needs_programs,
    push,
    real_registry,
    small_registry,
)
from tests.environments.sandbox.saved import Member, Saved, as_directory, layer, layout_files
from tests.environments.sandbox.trees import entry

pytestmark = [pytest.mark.sandbox, needs_programs]
N_FILES = 8_000
LARGE = 6_000_000


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The host of a registry with two images, one with a large layer, and one with many files."""
    place = tmp_path_factory.mktemp("site")
    # Half of it is left when it is compressed.
    files: dict[str, list[Member]] = {
        "large": [("usr/large", os.urandom(LARGE // 2).hex())],
        "many": [entry(f"usr/{number % 100}/{number}") for number in range(N_FILES)],
    }
    with real_registry(place / "registry") as host:
        for name, members in files.items():
            (place / name).mkdir()
            layers = (layer(("bin/x", "x")), layer(*members))
            as_directory(place / name, layout_files(Saved(layers, "gzip", tags=("1",))))
            push(place / name, "1", host, f"{name}:1")
        yield host


class Slow:
    """A proxy that stops in the middle of large layers until it may go on."""

    def __init__(self, proxy: SmallRegistry, host: str) -> None:
        self.proxy = proxy
        self.host = host
        self.is_there = threading.Event()
        self.may_go_on = threading.Event()

    def answer(self, request: Request) -> None:
        kept = {name: value for name, value in request.headers.items() if name != "Host"}
        with httpx.Client(trust_env=False) as client:
            found = client.get(f"http://{self.host}{request.path}", headers=kept)
        request.send_response(found.status_code)
        for name in ("Content-Type", "Content-Range", "Docker-Content-Digest"):
            if name in found.headers:
                request.send_header(name, found.headers[name])
        request.send_header("Content-Length", str(len(found.content)))
        request.end_headers()
        half = len(found.content) // 2 if len(found.content) > LARGE // 4 else 0
        request.wfile.write(found.content[:half])
        request.wfile.flush()
        if half:
            self.is_there.set()
            self.may_go_on.wait()
        request.wfile.write(found.content[half:])


@pytest.fixture
def slow(real: str) -> Iterator[Slow]:
    with small_registry() as proxy:
        found = Slow(proxy, real)
        proxy.answer = found.answer  # type: ignore[method-assign]
        try:
            yield found
        finally:
            found.may_go_on.set()


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PROCTOR_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path / "cache"


@contextmanager
def started(*arguments: object) -> Iterator["subprocess.Popen[str]"]:
    """A command that runs meanwhile."""
    with subprocess.Popen(
        command_line(*arguments),
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as child:
        try:
            yield child
        finally:
            child.kill()


def end(child: "subprocess.Popen[str]", how: signal.Signals | None = None) -> Ran:
    if how is not None:
        child.send_signal(how)
    out, err = child.communicate(timeout=60)
    return Ran(child.returncode, out, err)


def wait_for(is_so: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < until
        os.sched_yield()


def left_in(cache: Path) -> set[str]:
    """What is in the store, without empty directories and what has arrived so far."""
    store = cache / "images"
    kept = {path.parent.name for path in store.glob("*/*") if path.parent.name != "downloads"}
    return kept | {path.name for path in store.glob("incoming-*")}


def check_pulls(reference: str, proctor: Proctor) -> None:
    """Pull without hindrance, and check that the store has the image and nothing else."""
    ran = proctor("image", "pull", reference)
    assert ran.code == 0, ran.err
    assert proctor("image", "list").out.count(reference) == 1
    assert left_in(Path(os.environ["PROCTOR_CACHE"])) == {"names", "sha256", "layers"}
    assert list((Path(os.environ["PROCTOR_CACHE"]) / "images" / "downloads").iterdir()) == []


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_download_that_is_ended_leaves_what_arrived_for_the_next_pull(
    slow: Slow, cache: Path, proctor: Proctor, how: signal.Signals
) -> None:
    reference = f"{slow.proxy.host}/large:1"
    with started("image", "pull", reference) as child:
        assert slow.is_there.wait(60)
        began = time.monotonic()
        ran = end(child, how)
        # The connection is still open and silent: its time limit is not waited for.
        assert time.monotonic() - began < 20
    if how == signal.SIGINT:
        assert (ran.code, ran.out) == (130, "")
        assert ran.err.splitlines()[-1] == "proctor: interrupted"
    assert proctor("image", "list").out.startswith("no images")
    slow.may_go_on.set()
    slow.proxy.seen.clear()
    check_pulls(reference, proctor)
    if how == signal.SIGINT:
        assert any("Range" in headers for _, headers in slow.proxy.seen)


@pytest.mark.parametrize("sent", ["nothing", "headers", "half", "later"])
def test_an_interrupted_pull_does_not_wait_for_a_silent_registry(cache: Path, sent: str) -> None:
    one = layer(("usr/x", os.urandom(100_000).hex()))
    asked, may_end = threading.Event(), threading.Event()

    def fall_silent(request: Request) -> None:
        asked.set()
        if sent == "later":
            request.say(503, Retry_After="10")
            return
        if sent != "nothing":
            request.send_response(200)
            request.send_header("Content-Length", str(len(one)))
            request.end_headers()
            request.wfile.write(one[: len(one) // 2 if sent == "half" else 0])
        may_end.wait(60)

    with small_registry() as registry:
        reference = registry.put("tool", Saved((one,)))
        registry.answers[registry.blob_path("tool", one)] = fall_silent
        try:
            with started("image", "pull", reference) as child:
                assert asked.wait(60)
                time.sleep(0.3)
                began = time.monotonic()
                ran = end(child, signal.SIGINT)
                took = time.monotonic() - began
        finally:
            may_end.set()
    assert (ran.code, ran.out) == (130, "")
    assert ran.err.splitlines()[-1] == "proctor: interrupted"
    # About a second; more on a busy machine, but not the ten or thirty of a time limit.
    assert took < 6


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_an_unpacking_that_is_ended_leaves_no_image(
    real: str, cache: Path, proctor: Proctor, how: signal.Signals
) -> None:
    reference = f"{real}/many:1"
    with started("image", "pull", reference) as child:
        wait_for(lambda: any(cache.glob("images/incoming-*/*/files/usr/*")))
        ran = end(child, how)
    assert ran.code == (130 if how == signal.SIGINT else -how)
    assert proctor("image", "list").out.startswith("no images")
    check_pulls(reference, proctor)


def test_parts_of_a_pull_that_nobody_repeats_go_after_a_week(
    real: str, cache: Path, proctor: Proctor
) -> None:
    downloads = cache / "images" / "downloads"
    downloads.mkdir(parents=True, mode=0o700)
    for name, days in (("old", 8), ("young", 6)):
        part = downloads / f"{sha256_hex(name.encode())}.part"
        part.write_text(name)
        os.utime(part, (0, time.time() - days * 24 * 3600))
    assert proctor("image", "pull", f"{real}/large:1").code == 0
    assert [path.read_text() for path in downloads.iterdir()] == ["young"]


def test_two_pulls_of_one_image_download_it_once(slow: Slow, cache: Path, proctor: Proctor) -> None:
    reference = f"{slow.proxy.host}/large:1"
    with started("image", "pull", reference, "--json") as first:
        assert slow.is_there.wait(60)
        with started("image", "pull", reference, "--json") as second:
            # It has asked for the manifest, and waits for the store.
            wait_for(lambda: sum("/manifests/" in path for path, _ in slow.proxy.seen) == 2)
            slow.may_go_on.set()
            ran = [end(first), end(second)]
    assert [one.code for one in ran] == [0, 0], ran
    assert sorted(json.loads(one.out)["n_layers_downloaded"] for one in ran) == [0, 2]
    check_pulls(reference, proctor)


@pytest.mark.parametrize(
    ("name", "room", "said"),
    [
        ("large", "size=1m", "of free space, and the layers to download are 3"),
        ("large", "size=8m", "the free space on the disk of the images"),
        ("many", "size=64m,nr_inodes=1000", "No space left on device; free some space, or set"),
    ],
)
def test_a_full_disk_is_a_sentence_and_leaves_nothing(
    real: str, tmp_path: Path, name: str, room: str, said: str
) -> None:
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"mode=0755,{room}", "none", small], check=True)
    try:
        ran = run_child("image", "pull", f"{real}/{name}:1", env={"PROCTOR_CACHE": str(small)})
        assert (ran.code, ran.out) == (2, "")
        (line,) = ran.err.splitlines()
        assert said in line
        assert "PROCTOR_CACHE to another directory" in line
        assert left_in(small) == set()
        assert list((small / "images" / "downloads").iterdir()) == []
    finally:
        subprocess.run(["umount", small], check=True)
