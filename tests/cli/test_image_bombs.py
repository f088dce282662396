"""Layers of few bytes that unpack to very many: refused in time, and nothing is left."""

import gzip
import os
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import NamedTuple

import pytest
from backports import zstd

from tests.cli.programs import command_line, environment
from tests.environments.sandbox.registries import SmallRegistry
from tests.environments.sandbox.saved import Saved, layer
from tests.environments.sandbox.trees import entry

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")
pytestmark = pytest.mark.sandbox
MIB = 1 << 20
GIB = 1 << 30
# Small archives that are one when they are put together: gzip and zstd allow that.
PACK: dict[str, Callable[[bytes], bytes]] = {
    "gzip": lambda data: gzip.compress(data, mtime=0),
    "zstd": lambda data: zstd.compress(data),
}
MEASURE = """
import resource, subprocess, sys
code = subprocess.call(sys.argv[2:])
with open(sys.argv[1], "w") as file:
    file.write(str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss))
sys.exit(code)
"""
# A proctor that pulls has about 60 MB.
MOST_MEMORY = 150 * MIB
MOST_SECONDS = 40


@dataclass
class Bomb(Saved):
    """An image with one layer, whose digest nobody gets to see."""

    blob: bytes = b""

    @property
    def packed(self) -> list[bytes]:
        return [self.blob]


class Ended(NamedTuple):
    """How a command ended, with the memory of its largest process."""

    code: int
    out: str
    err: str
    memory: int
    seconds: float


def header(name: str, size: int) -> bytes:
    return entry(name, size=size).tobuf(tarfile.GNU_FORMAT)


def one_file(pack: Callable[[bytes], bytes], size: int) -> bytes:
    return pack(header("usr/zeros", size)) + b"".join(repeat(pack(bytes(64 * MIB)), size >> 26))


def many_files(pack: Callable[[bytes], bytes], size: int) -> bytes:
    zeros = pack(bytes(MIB))
    return b"".join(pack(header(f"usr/{n}", MIB)) + zeros for n in range(size >> 20))


def after_the_end(pack: Callable[[bytes], bytes], size: int) -> bytes:
    return pack(layer(("usr/x", "x"))) + b"".join(repeat(pack(bytes(64 * MIB)), size >> 26))


SHAPES = {"one file": one_file, "many files": many_files, "after the end": after_the_end}


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 64 MiB."""
    place = tmp_path / "disk"
    place.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=64m,mode=0700", "none", str(place)]
    subprocess.run(words, check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


def pull(reference: str, cache: Path, home: Path) -> Ended:
    """Pull as a child of a small process: this one is large, and children begin as copies of it."""
    began = time.monotonic()
    ran = subprocess.run(
        [sys.executable, "-c", MEASURE, home / "memory", *command_line("image", "pull", reference)],
        env=environment(PROCTOR_CACHE=str(cache), HOME=str(home)),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    memory = int((home / "memory").read_text()) << 10
    return Ended(ran.returncode, ran.stdout, ran.stderr, memory, time.monotonic() - began)


def check_refused(ended: Ended, said: str, cache: Path) -> None:
    assert (ended.code, ended.out) == (2, ""), ended
    (line,) = ended.err.splitlines()
    assert said in line
    assert ended.memory < MOST_MEMORY
    assert ended.seconds < MOST_SECONDS
    left = [path.name for path in cache.rglob("*") if not path.is_dir()]
    assert left == ["lock"]
    assert [path.name for path in (cache / "images" / "layers").iterdir()] == []
    assert [path.name for path in (cache / "images").glob("incoming-*")] == []


@as_root
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("packing", PACK)
def test_a_bomb_is_refused_by_the_space_on_the_disk(
    registry: SmallRegistry, disk: Path, tmp_path: Path, packing: str, shape: Callable[..., bytes]
) -> None:
    blob = shape(PACK[packing], 20 * GIB)
    assert len(blob) < 30 * MIB
    reference = registry.put("bomb", Bomb(blob=blob))
    ended = pull(reference, disk / "cache", tmp_path)
    check_refused(ended, f"{reference}: layer sha256:", disk / "cache")
    assert "unpacks to more than" in ended.err


def test_a_large_disk_is_not_filled_by_a_few_kilobytes(
    registry: SmallRegistry, tmp_path: Path
) -> None:
    blob = one_file(PACK["zstd"], 17 * GIB)
    assert len(blob) < 2 * MIB
    ended = pull(registry.put("bomb", Bomb(blob=blob)), tmp_path / "cache", tmp_path)
    check_refused(ended, "refused as a decompression bomb", tmp_path / "cache")


@pytest.mark.parametrize("packing", PACK)
def test_zeros_after_the_end_are_not_read_for_ever(
    registry: SmallRegistry, tmp_path: Path, packing: str
) -> None:
    blob = after_the_end(PACK[packing], 20 * GIB)
    ended = pull(registry.put("bomb", Bomb(blob=blob)), tmp_path / "cache", tmp_path)
    check_refused(ended, "has more than 67,108,864 bytes after its last member", tmp_path / "cache")


def test_a_frame_that_asks_for_much_memory_is_refused(
    registry: SmallRegistry, tmp_path: Path
) -> None:
    # A window of 2 GiB, and blocks of four bytes that stand for 128 KiB of zeros.
    window, block = bytes([21 << 3]), (131072 << 3 | 1 << 1).to_bytes(3, "little") + b"\0"
    blob = b"\x28\xb5\x2f\xfd\0" + window + block * 300_000
    ended = pull(registry.put("bomb", Bomb(blob=blob)), tmp_path / "cache", tmp_path)
    check_refused(ended, "layer sha256:", tmp_path / "cache")


@pytest.mark.parametrize("packing", PACK)
def test_an_honest_layer_of_zeros_is_pulled(
    registry: SmallRegistry, tmp_path: Path, packing: str
) -> None:
    """As of a database that was made in advance: no program compresses anything better."""
    database = layer(("usr/x", "x"), entry("usr/database", size=64 * MIB))
    image = Saved((database,), packing)
    assert len(image.packed[0]) * 1000 < 1.1 * len(database)
    ended = pull(registry.put("database", image), tmp_path / "cache", tmp_path)
    assert ended.code == 0, ended
    (found,) = (tmp_path / "cache" / "images" / "layers").glob("*/files/usr/database")
    assert found.stat().st_size == 64 * MIB
