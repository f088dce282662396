"""Copies of what is public of the host, kept from run to run."""

import os
from pathlib import Path

import pytest

from proctor.environments.sandbox.roots.host_base import (
    fingerprint,
    load_copy,
    load_host_base,
    reap_copies,
)
from tests.task.trees import write


@pytest.fixture
def host(tmp_path: Path) -> Path:
    files = {"etc/passwd": "root:x:0:0::/root:/bin/sh\n", "etc/shadow": "s", "usr/bin/true": ""}
    return write(tmp_path / "host", files)


def layer_of(tmp_path: Path, host: Path, run: str) -> Path:
    """The copy that a run uses."""
    (tmp_path / run).mkdir(exist_ok=True)
    _, (layer,) = load_host_base(tmp_path / run, host, tmp_path / "cache").parts[0]
    return Path(layer)


def test_the_next_run_has_the_same_copy(tmp_path: Path, host: Path) -> None:
    first, second = (layer_of(tmp_path, host, run) for run in ("one", "two"))
    assert first == second
    assert sorted(path.name for path in (first / "etc").iterdir()) == [
        "hostname",
        "hosts",
        "mtab",
        "passwd",
    ]
    assert (tmp_path / "cache").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("change", ["content", "mode", "name", "resolver"])
def test_a_change_of_the_host_makes_another(tmp_path: Path, host: Path, change: str) -> None:
    (host / "etc/resolv.conf").symlink_to("../run/resolv.conf")
    write(host, {"run/resolv.conf": "nameserver 192.0.2.1\n"})
    first = layer_of(tmp_path, host, "one")
    match change:
        case "content":
            before = (host / "etc/passwd").stat()
            (host / "etc/passwd").write_text("toor:x:0:0::/root:/bin/sh\n")
            os.utime(host / "etc/passwd", ns=(before.st_atime_ns, before.st_mtime_ns))
        case "mode":
            (host / "etc/passwd").chmod(0o600)
        case "name":
            (host / "etc/passwd").rename(host / "etc/other")
        case _:
            (host / "run/resolv.conf").write_text("nameserver 192.0.2.2\n")
    second = layer_of(tmp_path, host, "two")
    assert first != second
    assert (second / "etc/passwd").exists() == (change in ("content", "resolver"))


def test_a_secret_that_changes_changes_nothing(tmp_path: Path) -> None:
    write(tmp_path, {"etc/shadow": "1", "etc/passwd": "x"})
    before = fingerprint(tmp_path / "etc", lambda path: path == "shadow")
    (tmp_path / "etc/shadow").write_text("2")
    assert fingerprint(tmp_path / "etc", lambda path: path == "shadow") == before


def test_a_cache_that_cannot_be_made_is_done_without(tmp_path: Path, host: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    assert layer_of(tmp_path, host, "one").parent == tmp_path / "one"


def test_a_copy_that_failed_is_none_and_is_reaped(tmp_path: Path) -> None:
    def fail(directory: Path) -> None:
        (directory / "half").touch()
        raise OSError(28, "No space left on device", str(directory))

    with pytest.raises(OSError, match="No space"):
        load_copy(tmp_path, "key", fail)
    assert not (tmp_path / "key").exists()
    assert [path.name[:9] for path in reap_copies(tmp_path, dry_run=True)] == ["building-"]
    reap_copies(tmp_path)
    assert list(tmp_path.glob("building-*")) == []


def test_copies_in_use_and_the_newest_are_kept(tmp_path: Path) -> None:
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
    used = load_copy(tmp_path, "used", lambda directory: None)
    newest = tmp_path / "newest"
    newest.mkdir()
    # The kernel's clock ticks every few milliseconds.
    while newest.stat().st_ctime_ns <= used.stat().st_ctime_ns:
        newest.chmod(0o755)
    reaped = {path.name for path in reap_copies(tmp_path)}
    assert reaped == {"old", "new"}
    assert used.is_dir()
    assert newest.is_dir()
    assert not (tmp_path / "old").exists()
