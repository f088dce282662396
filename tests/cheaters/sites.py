"""Where the pack runs; in Docker by an engine of its own, on a small disk, with an image for it."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from proctor.environments.sandbox.delete import delete_tree
from proctor.environments.sandbox.syscalls import mount, unmount
from tests.cheaters.runs import SANDBOX, SANDBOX_USER, Site
from tests.environments.docker.engine import IMAGES, find_obstacle, started
from tests.environments.sandbox.rootfs import PROGRAMS, libraries_of, make_debian, make_rootfs, pack

DOCKER = Site(
    "docker",
    "docker",
    # An engine on a busy machine may fail to start a container; that is no cheater's doing.
    words=("-e", "docker", "--max-retries", "1", "--retry-include", "DockerError"),
    has_own_disk=True,
)
SANDBOX_IMPORTED = Site("sandbox-imported", "sandbox, root, imported base")
SITES = (SANDBOX, SANDBOX_IMPORTED, SANDBOX_USER, DOCKER)
"""All, in the order of the table."""
_PYTHON = Path("/usr/bin/python3")
"""The system's own: its library lies beside it."""
_MORE = (
    *("bash", "base64", "chmod", "chroot", "cmp", "dd", "find", "getent", "grep", "gzip", "head"),
    *(
        "ln",
        "mkfifo",
        "mknod",
        "mount",
        "mv",
        "nsenter",
        "readlink",
        "rmdir",
        "seq",
        "setsid",
        "tar",
    ),
    *("tail", "timeout", "tr", "true", "truncate", "umount", "unshare", "wc", "xargs", "sha256sum"),
)
_DISK_MIB = 512
_PACKAGES = (
    *("python3", "python3-pip", "gcc", "libc6-dev", "git", "sqlite3", "curl", "perl", "make"),
    *("procps", "util-linux"),
)
"""What cheats and their tests use of a Debian."""


@contextmanager
def opened(site: Site) -> Iterator[Site]:
    """A site that is ready to run the pack."""
    if site == DOCKER:
        with docker_site() as ready:
            yield ready
    elif site == SANDBOX_IMPORTED:
        with tempfile.TemporaryDirectory() as place:
            packages = f"--include={','.join(_PACKAGES)}"
            yield replace(site, base=make_debian(Path(place, "base"), packages))
    else:
        yield site


def find_obstacle_to(site: Site) -> str | None:
    """Why the pack cannot be run there on this machine; None where it can."""
    if site == DOCKER:
        return find_obstacle()
    if site == SANDBOX_IMPORTED and shutil.which("debootstrap") is None:
        return "debootstrap is not installed"
    if os.geteuid() != 0:
        return "only root can give the sandboxes a small disk of their own"
    return None


@contextmanager
def docker_site() -> Iterator[Site]:
    """Docker, with an engine that runs."""
    top = Path(tempfile.mkdtemp())
    disk = top / "disk"
    disk.mkdir()
    mount("tmpfs", str(disk), "tmpfs", options=f"size={_DISK_MIB}m,mode=700")
    try:
        with started(data=disk / "data") as engine:
            engine.docker("import", _make_image(top), IMAGES[0])
            yield replace(DOCKER, variables={"DOCKER_HOST": engine.host})
            assert engine.containers() == []
    finally:
        unmount(str(disk))
        delete_tree(top)


def _make_image(top: Path) -> Path:
    """A tar of an image with plain tools and a Python."""
    root = make_rootfs(top / "root", (*PROGRAMS, *_MORE))
    for place in ("usr/bin", "usr/local/bin", "usr/local/sbin", "root", "opt", "var/tmp", "app"):
        (root / place).mkdir(parents=True, exist_ok=True)
    python = _PYTHON.resolve()
    shutil.copy2(python, root / "usr" / "bin" / python.name)
    (root / "usr" / "bin" / "python3").symlink_to(python.name)
    modules = Path("/usr/lib", python.name)
    extensions = modules.glob("lib-dynload/_ctypes.*.so")
    for program in (python, *extensions):
        for library in libraries_of(str(program)):
            if not (to := root / str(library).lstrip("/")).exists():
                to.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(library.resolve(), to)
    left_out = shutil.ignore_patterns("__pycache__", "test", "idlelib", "lib2to3", "*-packages")
    shutil.copytree(modules, root / str(modules).lstrip("/"), ignore=left_out, symlinks=True)
    return pack(root, top / "image.tar")
