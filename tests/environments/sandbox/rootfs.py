"""A small root file system made of this machine's own programs."""

import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from proctor.environments.sandbox.delete import delete_tree

PROGRAMS = ("sh", "cat", "ls", "id", "env", "mkdir", "touch", "rm", "chown", "stat", "sleep", "cp")
USERS = "root:x:0:0:root:/root:/bin/sh\nada:x:1000:1000::/home/ada:/bin/sh\n"
GROUPS = "root:x:0:\nada:x:1000:\n"


def make_rootfs(root: Path, programs: Sequence[str] = PROGRAMS) -> Path:
    """A directory with a shell, some tools, the libraries they need, and a user called ada."""
    (root / "bin").mkdir(parents=True)
    for program in programs:
        found = shutil.which(program)
        assert found is not None, f"this machine has no {program}"
        shutil.copy2(Path(found).resolve(), root / "bin" / program)
        for library in libraries_of(found):
            to = root / str(library).lstrip("/")
            to.parent.mkdir(parents=True, exist_ok=True)
            if not to.exists():
                shutil.copy2(library.resolve(), to)
    (root / "etc").mkdir()
    (root / "etc" / "passwd").write_text(USERS)
    (root / "etc" / "group").write_text(GROUPS)
    (root / "tmp").mkdir(mode=0o1777)
    (root / "tmp").chmod(0o1777)
    return root


def make_debian(root: Path, *options: str) -> Path:
    """A small Debian 12, installed and configured by debootstrap from its default mirror."""
    words = ["debootstrap", "--variant=minbase", *options, "bookworm", str(root)]
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    assert done.returncode == 0, f"{done.stdout[-2000:]}{done.stderr}"
    return root


def libraries_of(program: str) -> list[Path]:
    """What the dynamic linker would load for a program."""
    listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=False).stdout
    words = [word for line in listed.splitlines() for word in line.split()]
    return [Path(word) for word in words if word.startswith("/")]


def pack(directory: Path, archive: Path, mode: str = "w") -> Path:
    """A tar of what is in a directory."""
    with tarfile.open(archive, mode) as tar:  # type: ignore[call-overload]
        tar.add(directory, arcname=".")
    return archive


@contextmanager
def open_directory() -> Iterator[Path]:
    """A directory that everybody can reach and write to; pytest's own lie below one of root's."""
    directory = Path(tempfile.mkdtemp())
    directory.chmod(0o777)
    try:
        yield directory
    finally:
        delete_tree(directory)
