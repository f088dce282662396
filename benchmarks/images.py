"""Images of a registry on this machine, beside skopeo and umoci.

image-pull      layers downloaded and checked, beside `skopeo copy` to a directory
image-unpack    layers unpacked from an OCI layout's blobs, beside `umoci unpack`
image-start     a sandbox on ten layers, beside one on a single layer with the same files
"""

import asyncio
import io
import json
import os
import random
import shutil
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.bench import Bench, BenchmarkError, figure, run_module
from benchmarks.row import Row, share_of, times_faster
from benchmarks.sandbox_start import start_one
from proctor.environments.sandbox.roots.image_tar import most_unpacked
from proctor.environments.sandbox.roots.images import ImageStore
from proctor.environments.sandbox.roots.pull import PullOptions, pull_image
from proctor.environments.sandbox.roots.registry.blobs import Blob, Downloads, Meter
from proctor.environments.sandbox.roots.registry.client import Patience, RegistryClient
from proctor.environments.sandbox.roots.registry.configuration import Configuration, parse_reference
from proctor.environments.sandbox.roots.unpacking import Unpacker, UnpackOrder
from tests.environments.sandbox.registries import PROGRAMS, real_registry
from tests.environments.sandbox.rootfs import make_rootfs
from tests.environments.sandbox.saved import Saved, as_directory, layout_files

_LAYERS = 5
_FILES = 1_800
"""Files of a layer."""
_SIZE = 100_000
"""Bytes of a file; they compress to little more than half."""
_MOST_MEGABYTES = 100.0
_STARTS = 20
_TAG = "bench"


def _check_programs() -> None:
    if missing := [program for program in PROGRAMS if shutil.which(program) is None]:
        raise BenchmarkError(f"not installed: {', '.join(missing)}")
    if os.geteuid() != 0:
        raise BenchmarkError("only root has images unpacked as they are")


def pull_rows(bench: Bench, *, layers: int = _LAYERS, files: int = _FILES) -> Iterator[Row]:
    """The time of a pull, and its memory."""
    _check_programs()
    layout = _load_layout(bench, layers, files)
    with (
        tempfile.TemporaryDirectory(dir=bench.data) as top,
        real_registry(Path(top) / "registry") as host,
    ):
        reference = f"{host}/bench:1"
        copy = ["skopeo", "copy", "--quiet", "--insecure-policy"]
        _run([*copy, "--dest-tls-verify=false", f"oci:{layout}:{_TAG}", f"docker://{reference}"])
        place = Path(top)
        blobs = _find_blobs(layout)

        def theirs() -> float:
            target = place / "theirs"
            words = [*copy, "--src-tls-verify=false", f"docker://{reference}", f"dir:{target}"]
            return _timed(words, target)

        figures = bench.least(lambda: _download(reference, blobs, place / "ours"), theirs)
        yield times_faster("image-pull", figures, "skopeo copy to a directory", at_least=0.7)
        answer = run_module("ours_pull", reference, str(place / "cache"))
        figures = (figure(answer, "megabytes"), _MOST_MEGABYTES)
        yield share_of("image-pull-memory", figures, "100 MB", at_most=1, unit="MB")


def unpack_rows(bench: Bench, *, layers: int = _LAYERS, files: int = _FILES) -> Iterator[Row]:
    """All layers, one on top of the other."""
    _check_programs()
    layout = _load_layout(bench, layers, files)
    with tempfile.TemporaryDirectory(dir=bench.data) as top:
        bundle = Path(top) / "bundle"
        words = ["umoci", "unpack", "--image", f"{layout}:{_TAG}", str(bundle)]
        figures = bench.least(
            lambda: _unpack(layout, Path(top) / "ours"),
            lambda: _timed(words, bundle),
            rounds=3,
        )
        yield times_faster("image-unpack", figures, "umoci unpack", at_least=0.7)


def _run(words: list[str]) -> None:
    subprocess.run(words, check=True, capture_output=True)


def _timed(words: list[str], target: Path) -> float:
    start = time.perf_counter()
    subprocess.run(words, check=True, capture_output=True)
    seconds = time.perf_counter() - start
    shutil.rmtree(target)
    return seconds


def _download(reference: str, blobs: list[Blob], target: Path) -> float:
    """Seconds of downloading all layers, from the first connection on."""
    target.mkdir()
    (endpoint,) = Configuration({}).find_endpoints(parse_reference(reference))
    start = time.perf_counter()
    meter = Meter(sum(blob.size for blob in blobs), lambda _done, _total: None)
    with (
        RegistryClient(endpoint, {}, Patience()) as client,
        Downloads(client, target, meter) as downloads,
    ):
        for arriving in downloads.start(blobs).values():
            arriving.result()
    seconds = time.perf_counter() - start
    shutil.rmtree(target)
    return seconds


def _unpack(layout: Path, target: Path) -> float:
    """Seconds of unpacking all layers on top of each other."""
    image = _load_image(layout)
    start = time.perf_counter()
    lowers: list[str] = []
    with Unpacker() as unpacker:
        for number, (blob, diff_id) in enumerate(image):
            place = target / str(number)
            place.mkdir(parents=True)
            most = most_unpacked(blob.stat().st_size)
            below = tuple(reversed(lowers))
            unpacker.unpack(UnpackOrder(str(blob), str(place), below, blob.name, diff_id, most))
            lowers.append(str(place))
    seconds = time.perf_counter() - start
    shutil.rmtree(target)
    return seconds


def image_start_rows(bench: Bench, *, starts: int = _STARTS) -> Iterator[Row]:
    """A sandbox on ten layers, beside one on one."""
    _check_programs()
    with tempfile.TemporaryDirectory(dir=bench.data) as top:
        place = Path(top)
        root = make_rootfs(place / "root")
        bottom = io.BytesIO()
        with tarfile.open(fileobj=bottom, mode="w") as tar:
            tar.add(root, arcname=".")
        more = [_make_layer(number, 3, 1000) for number in range(9)]
        os.environ["PROCTOR_CACHE"] = str(place / "cache")
        images = {"one": (bottom.getvalue(),), "ten": (bottom.getvalue(), *more)}
        with real_registry(place / "registry") as host:
            for name, layers in images.items():
                layout = as_directory(place / name, layout_files(Saved(layers, tags=(_TAG,))))
                words = ["skopeo", "copy", "--quiet", "--insecure-policy"]
                target = f"docker://{host}/{name}:1"
                _run([*words, "--dest-tls-verify=false", f"oci:{layout}:{_TAG}", target])
                options = PullOptions(env={}, now=datetime.now(UTC), name=name)
                pull_image(ImageStore(), f"{host}/{name}:1", options)

        def start(base: str) -> float:
            return min(asyncio.run(start_one(place / "scratch", n, base)) for n in range(starts))

        (place / "scratch").mkdir()
        figures = bench.least(lambda: start("ten"), lambda: start("one"))
        yield share_of("image-start-10", figures, "one layer", at_most=1.3)


def _load_layout(bench: Bench, layers: int, files: int) -> Path:
    """An OCI layout with an image of several layers."""

    def fill(directory: Path) -> None:
        made = tuple(_make_layer(number, files, _SIZE) for number in range(layers))
        as_directory(directory / "layout", layout_files(Saved(made, "gzip", tags=(_TAG,))))

    return bench.kept(f"images-1-{layers}x{files}", fill) / "layout"


def _make_layer(number: int, files: int, size: int) -> bytes:
    draw = random.Random(number)
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        for n in range(files):
            member = tarfile.TarInfo(f"usr/share/{number}/{n % 40}/{n}")
            content = draw.randbytes(size // 2).hex().encode()
            member.size, member.mode = len(content), 0o644
            tar.addfile(member, io.BytesIO(content))
    return made.getvalue()


def _read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def _load_image(layout: Path) -> list[tuple[Path, str]]:
    """The blobs of an image's layers, with the digests of their contents."""
    blobs = layout / "blobs" / "sha256"
    manifest = _read(blobs / _read(layout / "index.json")["manifests"][0]["digest"][7:])
    config = _read(blobs / manifest["config"]["digest"][7:])
    diff_ids = [one[7:] for one in config["rootfs"]["diff_ids"]]
    paths = [blobs / one["digest"][7:] for one in manifest["layers"]]
    return list(zip(paths, diff_ids, strict=True))


def _find_blobs(layout: Path) -> list[Blob]:
    return [Blob(path.name, path.stat().st_size) for path, _ in _load_image(layout)]
