"""Images of this machine's own programs, with this Python and some of its packages.

Agents of the tests run in them, in sandboxes and containers: real clients of model providers, with
the versions that requirements.lock pins. An image is made once, and kept in build/ for later runs.
"""

import fcntl
import hashlib
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement

from tests.conftest import ROOT
from tests.environments.sandbox.rootfs import PROGRAMS, libraries_of, make_rootfs, pack

AT = "/opt/python"
"""Where an image has it."""
PROGRAM = f"{AT}/bin/python3"
CLIENTS = ("openai", "anthropic")
# litellm imports mcp, which it names only in an extra.
MINI = ("mini-swe-agent", "mcp")

_PROGRAMS = (
    *("bash", "chmod", "date", "dd", "false", "find", "grep", "head", "ln", "mv", "nohup"),
    *("readlink", "seq", "setsid", "sha256sum", "tail", "tar", "timeout", "true", "wc", "yes"),
)
_UNUSED = {
    *("test", "tests", "idlelib", "ensurepip", "tkinter", "turtledemo", "lib2to3", "pydoc_data"),
    *("site-packages", "dist-packages", "__pycache__"),
}
# Only the benchmarks of mini-swe-agent import datasets; with it come pyarrow and pandas.
_LEFT_OUT = {"datasets"}
# The linker itself, and the C library that belongs to it, are the image's own.
_SYSTEM = re.compile(r"ld-linux|libc\.so")


def find_image(name: str, packages: Sequence[str]) -> Path:
    """The archive of an image with these packages; made if there is none yet."""
    versions = sorted(f"{each.name}=={each.version}" for each in find_closure(packages))
    made_of = "\n".join([sys.version, Path(__file__).read_text(), *versions])
    digest = hashlib.sha256(made_of.encode()).hexdigest()[:16]
    archive = ROOT / "build" / "images" / f"{name}-{digest}.tar"
    archive.parent.mkdir(parents=True, exist_ok=True)
    with archive.with_suffix(".lock").open("w") as lock, tempfile.TemporaryDirectory() as place:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not archive.exists():
            root = make_rootfs(Path(place) / "root", (*PROGRAMS, *_PROGRAMS))
            make_tree(root / AT.lstrip("/"), packages)
            pack(root, archive.with_suffix(".part"))
            archive.with_suffix(".part").rename(archive)
    return archive


def make_tree(to: Path, packages: Sequence[str]) -> None:
    """Fill a directory that an image has at AT."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    lib = to / "lib" / version
    shutil.copytree(sysconfig.get_path("stdlib"), lib, ignore=_ignore, symlinks=False)
    (to / "bin").mkdir()
    program = Path(sys.executable).resolve()
    shutil.copy2(program, to / "bin" / "python-real")
    site = lib / "site-packages"
    for package in find_closure(packages):
        _copy_package(package, site)
    _copy_libraries(to, program)
    # Libraries are found by this variable and not by paths of the machine that built Python.
    script = f'#!/bin/sh\nLD_LIBRARY_PATH={AT}/lib exec {AT}/bin/python-real "$@"\n'
    (to / "bin" / "python3").write_text(script)
    (to / "bin" / "python3").chmod(0o755)
    # With digests of the sources, not their times: layers of images may change these.
    compiling = ["-m", "compileall", "-qq", "-j", "2", "--invalidation-mode", "unchecked-hash"]
    subprocess.run([sys.executable, *compiling, str(lib)], check=False)


def find_closure(names: Iterable[str]) -> Iterator[Distribution]:
    """Packages and what they need here, each once."""
    todo, seen = [*names], set(_LEFT_OUT)
    while todo:
        name = re.sub(r"[-_.]+", "-", todo.pop()).lower()
        if name in seen:
            continue
        seen.add(name)
        try:
            found = distribution(name)
        except PackageNotFoundError:
            continue
        yield found
        for text in found.requires or ():
            need = Requirement(text)
            if need.marker is None or need.marker.evaluate({"extra": ""}):
                todo.append(need.name)


def _copy_package(package: Distribution, site: Path) -> None:
    for file in package.files or ():
        if ".." in file.parts or "__pycache__" in file.parts:
            continue
        to = site / file
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(str(file.locate()), to)


def _copy_libraries(to: Path, program: Path) -> None:
    needing = [program, *to.rglob("*.so")]
    for library in {each for path in needing for each in libraries_of(str(path))}:
        if not _SYSTEM.search(library.name) and not (to / "lib" / library.name).exists():
            shutil.copy2(library.resolve(), to / "lib" / library.name)


def _ignore(_: str, names: list[str]) -> set[str]:
    return {name for name in names if name in _UNUSED or name.startswith(("config-", "_tkinter"))}
