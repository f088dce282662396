"""Builds a Dockerfile with buildah or docker, and puts the result into the image store.

For what the sandbox does not build. The program pulls images itself, by its own configuration, and
runs commands with its own isolation. The result is an imported image under a name of its own, with
a key of the program and of all files of the environment directory: it is built once.
"""

import asyncio
import os
import shutil
import signal
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from proctor.digest import sha256_file, sha256_hex
from proctor.environments.sandbox.roots.context import Context
from proctor.environments.sandbox.roots.image import Image
from proctor.environments.sandbox.roots.images import ImageStore, Known
from proctor.environments.sandbox.roots.instructions import Copy
from proctor.environments.sandbox.roots.layers import LayerStore, discard, layers_directory
from proctor.environments.sandbox.roots.prune import prune_store, store_limit
from proctor.environments.sandbox.roots.steps import BuildLog, cut_output, run_in_thread
from proctor.errors import ImageError

BUILDERS = ("auto", "sandbox", "buildah", "docker")
"""Values of --builder; auto is the sandbox, and for what it does not build an installed program."""
PROGRAMS = ("buildah", "docker")
"""The one that auto prefers first."""


@dataclass(frozen=True, slots=True)
class RootOptions:
    """What a job chooses for the root file systems of its sandboxes."""

    base: str
    """The host, or the name of an image."""
    builder: str = BUILDERS[0]
    """What builds Dockerfiles: one of BUILDERS."""


_FORMAT = 1
_EVERYTHING = Copy(
    line=0,
    text="",
    sources=(".",),
    inline=(),
    target="/",
    is_directory=True,
    is_add=False,
    chown=None,
    chmod=None,
)


def check_builder(builder: str, environ: Mapping[str, str] = os.environ) -> None:
    """Check that the program of a builder is installed.

    Raises:
        ImageError: it is not.
    """
    if builder in PROGRAMS and shutil.which(builder, path=environ.get("PATH")) is None:
        raise ImageError(f"--builder {builder}: the program {builder} is not installed")


def find_program(environ: Mapping[str, str] = os.environ) -> str | None:
    """Return the installed program that `auto` builds with, if there is one."""
    found = (each for each in PROGRAMS if shutil.which(each, path=environ.get("PATH")))
    return next(found, None)


async def build_with(
    program: str, environment_dir: Path, scratch: Path, *, force: bool
) -> tuple[Image, tuple[str, ...]]:
    """Build a Dockerfile with a program, or find the result in the image store; and notes."""
    check_builder(program)
    root, notes = layers_directory(scratch)
    layers, images = LayerStore(root), ImageStore()
    key = await run_in_thread(lambda: _key(program, environment_dir))
    name = f"{program}-built:{key[:32]}"
    found = None if force else _find(images, name)
    if found is None:
        limit = store_limit()
        async with layers.locked(key):
            is_wanted = layers.is_wanted_again(key, force=force)
            found = None if is_wanted else _find(images, name)
            if found is None:
                log = BuildLog(layers.log(key))
                found = await _build(program, environment_dir, name, log, force=force)
                layers.mark_made(key)
                with suppress(ImageError):
                    await run_in_thread(lambda: prune_store(images, layers, limit))
    return found, notes


def _find(images: ImageStore, name: str) -> Image | None:
    """Find an image, and keep it until this process ends."""
    image = images.find(name)
    return image if image is not None and images.hold(image) else None


def _key(program: str, environment_dir: Path) -> str:
    files = Context(environment_dir).select(_EVERYTHING).digest
    dockerfile = sha256_file(environment_dir / "Dockerfile")
    return sha256_hex(msgspec.json.encode((_FORMAT, program, dockerfile, files)))


async def _build(
    program: str, environment_dir: Path, name: str, log: BuildLog, *, force: bool
) -> Image:
    place = Path(tempfile.mkdtemp(prefix="building-", dir=log.path.parent))
    archive = place / "image.tar"
    try:
        for words in _list_commands(program, environment_dir, name, archive, force=force):
            await _run(words, log)
        known = Known({}, builder=program)
        imported = await run_in_thread(
            lambda: ImageStore().import_image(
                name, archive, known, now=datetime.now(UTC), replace=True
            )
        )
    finally:
        discard(place)
    return imported.image


def _list_commands(
    program: str, environment_dir: Path, name: str, archive: Path, *, force: bool
) -> list[list[str]]:
    """Return the commands that build an image and save it."""
    what = ["--file", str(environment_dir / "Dockerfile"), "--tag", name, str(environment_dir)]
    fresh = ["--no-cache"] if force else []
    if program == "docker":
        return [
            ["docker", "build", *fresh, *what],
            ["docker", "save", "--output", str(archive), name],
        ]
    # buildah needs a runtime such as runc, except for this isolation.
    has_runtime = any(map(shutil.which, ("crun", "runc"))) or "BUILDAH_ISOLATION" in os.environ
    isolation = [] if has_runtime else ["--isolation", "chroot"]
    # Docker's format, because that of OCI has no HEALTHCHECK.
    how = ["--format", "docker", *isolation, *(fresh or ["--layers"])]
    return [
        ["buildah", "build", *how, *what],
        ["buildah", "push", "--quiet", "--format", "v2s2", name, f"docker-archive:{archive}"],
    ]


async def _run(words: Sequence[str], log: BuildLog) -> None:
    """Run a program whose output goes to the log; it is dead when this returns."""
    log.write(f"$ {' '.join(words)}\n".encode())
    with log.path.open("ab") as file:
        process = await asyncio.create_subprocess_exec(
            *words,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,
        )
        try:
            code = await process.wait()
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
    if code != 0:
        output = cut_output(log.path.read_bytes())
        error = RuntimeError(f"Build failed: {' '.join(words[:2])}\n{output}")
        error.add_note(f"{words[0]} ended with exit code {code}; its output is in {log.path}")
        raise error
