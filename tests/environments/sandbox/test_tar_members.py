"""Untrusted archives are unpacked in limited memory, however large their headers are."""

import gzip
import os
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from proctor.environments.sandbox.roots import saved_files
from proctor.environments.sandbox.roots import tree as trees
from proctor.environments.sandbox.roots.images import ImageStore
from proctor.errors import ImageError
from tests.environments.sandbox.saved import Saved, as_tar, docker_files, hard, layer, link
from tests.environments.sandbox.trees import archive, entry, take

USERS = "SCHILY.xattr.user."

BEGIN = """
import os, sys

def peak():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) >> 10

blob, target = sys.argv[1:]
"""
LAYER = """
from pathlib import Path
from proctor.digest import sha256_hex
from proctor.environments.sandbox.roots.layer_tree import LayerTree
from proctor.environments.sandbox.roots.saved_files import Layer, put_layer
from proctor.environments.sandbox.roots.image_tar import Budget
from proctor.errors import ImageError

tree = LayerTree(Path(target), [], namespace="user", n_ids=1)
before = peak()
try:
    with open(blob, "rb") as file:
        layer = Layer(name="x", digest=None, size=None, diff_id="")
        put_layer(file, layer, tree, Budget(Path(target)))
except ImageError as error:
    print(error, file=sys.stderr)
print(peak() - before)
"""
WORKER = """
import gzip
from proctor.environments.sandbox.archive import BrokenArchiveError
from proctor.environments.sandbox.tar_ops import OPERATIONS

read, write = os.pipe()
if os.fork() == 0:
    os.close(read)
    with gzip.open(blob) as source, os.fdopen(write, "wb") as sink:
        try:
            while data := source.read(1 << 16):
                sink.write(data)
        except BrokenPipeError:
            os._exit(0)
    os._exit(0)
os.close(write)
before = peak()
request = {"target": target, "owner": None, "mode": None, "owns_target": False}
try:
    OPERATIONS["unpack_tar"](request, [read])
except BrokenArchiveError as error:
    print(error, file=sys.stderr)
print(peak() - before)
"""


def member(
    name: str, kind: bytes = tarfile.REGTYPE, headers: dict[str, str] | None = None
) -> bytes:
    """The headers of one member of the user who runs the tests."""
    made = entry(name, kind, "to", uid=os.getuid(), gid=os.getgid())
    made.pax_headers = headers or {}
    return made.tobuf(tarfile.PAX_FORMAT)


def for_all(headers: dict[str, str]) -> bytes:
    return tarfile.TarInfo.create_pax_global_header(headers)


def malformed(n_records: int) -> bytes:
    """A header whose records overlap: each name has all that follows."""
    body = b"2 " * n_records + b"="
    head = entry("x", tarfile.XHDTYPE, size=len(body)).tobuf(tarfile.USTAR_FORMAT)
    return head + body + bytes(-len(body) % 512)


BIG = "x" * ((1 << 20) - 100)
N_MEMBERS = 130


def repeat(make: Callable[[int], bytes]) -> Iterator[bytes]:
    return (make(number) for number in range(N_MEMBERS))


def with_header(number: int, name: str, kind: bytes = tarfile.REGTYPE) -> bytes:
    return member(f"f{number}", kind, {name: BIG})


HOSTILE: dict[str, Callable[[], Iterator[bytes]]] = {
    "comments": lambda: repeat(lambda n: with_header(n, "comment")),
    "attributes of files": lambda: repeat(lambda n: with_header(n, f"{USERS}a")),
    "attributes of links": lambda: repeat(lambda n: with_header(n, f"{USERS}a", tarfile.SYMTYPE)),
    "attributes of directories": lambda: repeat(
        lambda n: with_header(n, f"{USERS}a", tarfile.DIRTYPE)
    ),
    "kinds of attributes": lambda: repeat(
        lambda n: member(f"f{n}", headers={f"SCHILY.xattr.{n}{BIG}": ""})
    ),
    "headers for all": lambda: repeat(lambda n: for_all({f"{n}": BIG}) + member(f"f{n}")),
    "one long header": lambda: iter([member("f", headers={"comment": BIG * N_MEMBERS})]),
    "small records": lambda: iter(
        [member("f", headers={f"{n:x}": "" for n in range(90_000)}), member("g")]
    ),
    "malformed records": lambda: iter([malformed(100_000), member("f")]),
}
REFUSED = {
    "attributes of directories": "attributes of directories take more than 64 MiB; refused",
    "headers for all": "has too large headers for all its members; refused",
    "one long header": "the headers of a member have more than 1,048,576 bytes; refused",
    "malformed records": "damaged, or not a tar archive",
}


def peak_of(tmp_path: Path, name: str, code: str) -> tuple[int, str]:
    """Unpack an archive; return the memory that it took, in MiB, and the refusal."""
    (tmp_path / "target").mkdir()
    with gzip.open(tmp_path / "blob", "wb", 1) as blob:
        for data in (*HOSTILE[name](), bytes(1024)):
            blob.write(data)
    run = [sys.executable, "-c", BEGIN + code, str(tmp_path / "blob"), str(tmp_path / "target")]
    done = subprocess.run(run, capture_output=True, text=True, check=True)
    return int(done.stdout), done.stderr


@pytest.mark.parametrize("name", HOSTILE)
def test_a_layer_takes_a_limited_memory(tmp_path: Path, name: str) -> None:
    n_mib, refusal = peak_of(tmp_path, name, LAYER)
    assert n_mib < 90
    # Those that are not refused have another digest than the test says.
    assert f"layer x: {REFUSED.get(name, 'its SHA-256 is ')}" in refusal


@pytest.mark.parametrize("name", ["comments", "headers for all", "malformed records"])
def test_an_archive_in_a_sandbox_takes_a_limited_memory(tmp_path: Path, name: str) -> None:
    assert peak_of(tmp_path, name, WORKER)[0] < 90


@pytest.mark.parametrize("name", ["x" * 200, "link"], ids=["names", "targets"])
def test_names_and_targets_are_limited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(trees, "_MOST_NAMES", 1 << 19)
    members = [link(f"{name}/{n}", "to/" * 1000 if name == "link" else "to") for n in range(2000)]
    with pytest.raises(ImageError, match="targets of symlinks take more than"):
        take(ImageStore(tmp_path / "store"), archive(tmp_path / "a.tar", *members))


def test_headers_that_follow_each_other_without_end_are_refused(tmp_path: Path) -> None:
    head = entry("x", tarfile.XHDTYPE).tobuf(tarfile.USTAR_FORMAT)
    (tmp_path / "a.tar").write_bytes(head * 2000 + member("usr") + bytes(1024))
    with pytest.raises(ImageError, match="cut short or damaged"):
        take(ImageStore(tmp_path / "store"), tmp_path / "a.tar")


def test_the_files_of_a_saved_image_are_limited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = docker_files(Saved())
    take(ImageStore(tmp_path / "store"), as_tar(tmp_path / "good.tar", saved), "good")
    monkeypatch.setattr(saved_files, "_MOST_KEPT", 1 << 16)
    many = {**saved, **{f"more/{n}": b"" for n in range(100)}}
    with pytest.raises(ImageError, match="too many files, or too long names, for an image"):
        take(ImageStore(tmp_path / "store"), as_tar(tmp_path / "many.tar", many), "many")


def test_hard_links_lead_to_members_that_the_archive_forgot(tmp_path: Path) -> None:
    layers = layer(
        ("usr/a", "words"), *(link(f"usr/l{n}", "a") for n in range(9)), hard("b", "usr/a")
    )
    files = docker_files(Saved(layers=(layers,)))
    store = ImageStore(tmp_path / "store")
    root = store.rootfs(take(store, as_tar(tmp_path / "a.tar", files)))
    assert (root / "b").read_text() == "words"
    assert (root / "b").stat().st_nlink == 2
