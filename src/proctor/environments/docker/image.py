"""The image of a task: found, pulled or built, once a job however many trials ask for it.

    docker_image      as in harbor, unless a build is forced and there is a Dockerfile
    a Dockerfile      built once for what lies beside it, under a tag that says what that was
    neither           refused: there is nothing to run in

A tag may be moved while a job runs: every container is started from the Id that the tag had first.
"""

import asyncio
import json
import logging
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from proctor.digest import sha256_file, sha256_hex
from proctor.environments.docker.engine import lock_of, name_choice
from proctor.environments.docker.program import (
    end_call,
    explain,
    run_docker,
    start_docker,
)
from proctor.environments.sandbox.locks import locked_soon
from proctor.errors import DockerError, EngineError, ImageError
from proctor.sentence import reason_of
from proctor.trial.unchanged import SeenTrees, find_looks, now_ns

CONTEXT = "proctor.context"
"""Label of an image that was built here: the digest of what it was built from."""
_KEPT_LINES = 30
"""Of what a failed build said, in the error."""
_KEPT_BYTES = 1 << 20
"""Of what any build said, in the trial's log."""
_PIECE = 1 << 16
_STEP = re.compile(r"^ ---> ([0-9a-f]{12})$", re.MULTILINE)
"""How the older builder tells of a step's image."""
_UNFIT = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True, slots=True)
class Image:
    """An image that the engine has."""

    id: str
    """`sha256:…`; what containers are started from."""
    pin: str
    """Its name with the registry's digest, or with its Id where no registry knows it."""
    env: Mapping[str, str]
    workdir: str
    user: str
    """Who runs what names nobody; empty: root."""
    has_volumes: bool
    """Some of its directories are volumes, which lie outside of a container's own files."""


_KNOWN: dict[tuple[str, ...], Image] = {}
"""Images that were asked for, by engine and by what asked."""


_CONTEXTS: dict[Path, tuple[SeenTrees, str]] = {}
"""Directories that images were built from, as they looked, and their digests."""


async def prepare_image(
    environment_dir: Path,
    docker_image: str | None,
    name: str,
    logger: logging.Logger,
    *,
    force: bool,
) -> Image:
    """The image for a task, ready in the engine.

    Raises:
        ImageError: there is none, or it cannot be had.
        RuntimeError: its Dockerfile could not be built; the last lines of what was said.
        DockerError: the engine failed.
    """
    dockerfile = environment_dir / "Dockerfile"
    is_built = dockerfile.is_file() and (docker_image is None or force)
    if not is_built and docker_image is None:
        raise ImageError(
            f"{environment_dir}: neither a Dockerfile nor docker_image in task.toml; the docker "
            "environment needs one of them"
        )
    if is_built:
        digest = await asyncio.to_thread(_recall_context, environment_dir)
        return await _prepare_built(environment_dir, digest, name, logger, force=force)
    return await _prepare_named(str(docker_image), logger)


async def _prepare_named(name: str, logger: logging.Logger) -> Image:
    key = (name_choice(), "named", name)
    async with locked_soon(lock_of(name)):
        if key not in _KNOWN:
            if (image := await find_image(name)) is None:
                logger.info("pulling %s", name)
                await _pull(name)
                image = await find_image(name)
            if image is None:
                raise ImageError(f"docker_image {name}: it was pulled, and is not there")
            _KNOWN[key] = image
    return _KNOWN[key]


async def _pull(name: str) -> None:
    try:
        await run_docker("pull", "--quiet", name, patience_sec=None)
    except EngineError:
        raise
    except DockerError as error:
        raise ImageError(
            f"docker_image {name}: not in the engine, and it cannot be pulled: {error}"
        ) from error


async def _prepare_built(
    directory: Path, digest: str, name: str, logger: logging.Logger, *, force: bool
) -> Image:
    tag = f"proctor-{_UNFIT.sub('-', name.lower()).strip('-') or 'task'}:{digest[:16]}"
    key = (name_choice(), "built", tag, digest)
    async with locked_soon(lock_of(tag)):
        if key not in _KNOWN:
            image = None if force else await find_image(tag, context=digest)
            if image is None:
                await _build(directory, tag, digest, logger, force=force)
                image = await find_image(tag)
            if image is None:
                raise ImageError(
                    f"{directory}: it was built as {tag}, which the engine does not have; a "
                    "builder that keeps images to itself is left by `docker buildx use default`"
                )
            _KNOWN[key] = image
    return _KNOWN[key]


async def _build(
    directory: Path, tag: str, digest: str, logger: logging.Logger, *, force: bool
) -> None:
    words = ["build", "--force-rm", "--tag", tag, "--label", f"{CONTEXT}={digest}"]
    words += ["--no-cache"] if force else []
    said = bytearray()
    process = await start_docker(
        [*words, str(directory)],
        stderr=asyncio.subprocess.STDOUT,
        env={"BUILDKIT_PROGRESS": "plain"},
    )
    try:
        while process.stdout and (data := await process.stdout.read(_PIECE)):
            said += data
            del said[:-_KEPT_BYTES]
        code = await process.wait()
    finally:
        await end_call(process)
        text = said.decode(errors="replace")
        logger.info("docker build of %s said:\n%s", tag, text)
    if code != 0:
        await _remove_half(text)
        raise _failure_of(directory, text)


async def _remove_half(said: str) -> None:
    """Remove what a build that failed has made so far; what has a name is somebody's."""
    made = _STEP.findall(said)
    if not made:
        return
    told = await run_docker("image", "inspect", made[-1], is_checked=False)
    if told.code == 0 and not json.loads(told.out)[0].get("RepoTags"):
        await run_docker("rmi", made[-1], is_checked=False)


def _failure_of(directory: Path, said: str) -> Exception:
    """Harbor's type for a build that failed; an engine that is gone or full is another thing."""
    error = explain("build", said)
    lines = [line for line in said.splitlines() if line.strip()]
    if isinstance(error, EngineError) or "no space left" in str(error):
        return error
    *before, last = lines[-_KEPT_LINES:] or ["it said nothing"]
    told = "\n".join(before)
    return RuntimeError(f"{directory / 'Dockerfile'}: docker build failed: {last}\n{told}")


async def find_image(name: str, *, context: str | None = None) -> Image | None:
    """An image that the engine has; with `context`, only one that was built from that.

    Raises:
        DockerError: the engine failed.
    """
    told = await run_docker("image", "inspect", name, is_checked=False)
    if told.code != 0:
        return None
    image = parse_image(name, json.loads(told.out)[0])
    labels = json.loads(told.out)[0]["Config"].get("Labels") or {}
    return None if context not in (None, labels.get(CONTEXT)) else image


def parse_image(name: str, facts: Mapping[str, object]) -> Image:
    """An image as `docker image inspect` tells of it; `name` is what it was asked for by."""
    config = facts.get("Config")
    config = config if isinstance(config, dict) else {}
    pairs = [str(pair).partition("=") for pair in config.get("Env") or ()]
    return Image(
        id=str(facts["Id"]),
        pin=_pin_of(name, facts),
        env={key: value for key, _, value in pairs},
        workdir=str(config.get("WorkingDir") or "/"),
        user=str(config.get("User") or ""),
        has_volumes=bool(config.get("Volumes")),
    )


def _pin_of(name: str, facts: Mapping[str, object]) -> str:
    """The name with the digest that its registry gave, if one did; else with the Id."""
    repository = _repository_of(name)
    digests = facts.get("RepoDigests")
    known = [str(each) for each in digests] if isinstance(digests, list) else []
    own = [each for each in known if each.partition("@")[0] in (repository, f"docker.io/{name}")]
    if own or known:
        return (own or known)[0]
    return f"{repository}@{facts['Id']}"


def _repository_of(name: str) -> str:
    """A name without tag and digest; a colon before a slash is a registry's port."""
    name = name.partition("@")[0]
    head, colon, tag = name.rpartition(":")
    return head if colon and "/" not in tag else name


def _recall_context(directory: Path) -> str:
    """As hash_context, without reading files again that look as they did."""
    if directory not in _CONTEXTS or not _CONTEXTS[directory][0].look_alike([directory]):
        began, looks, seen = now_ns(), find_looks([directory]), SeenTrees()
        digest = hash_context(directory)
        seen.accept(looks, began)
        _CONTEXTS[directory] = seen, digest
    return _CONTEXTS[directory][1]


def hash_context(directory: Path) -> str:
    """A digest of everything that a build may see: paths, modes, bytes, links.

    Raises:
        ImageError: something of it cannot be read.
    """
    lines = []
    try:
        for top, folders, files in os.walk(directory):
            folders.sort()
            for name in (*folders, *files):
                path = Path(top, name)
                lines.append(f"{path.relative_to(directory)}\0{_describe(path)}")
    except OSError as error:
        raise ImageError(f"{error.filename}: cannot be read: {reason_of(error)}") from error
    return sha256_hex("\n".join(sorted(lines)).encode(errors="surrogateescape"))


def _describe(path: Path) -> str:
    status = path.lstat()
    mode = f"{stat.S_IMODE(status.st_mode):o}"
    if stat.S_ISLNK(status.st_mode):
        return f"link\0{os.readlink(path)}"  # noqa: PTH115 - the text as it is
    if stat.S_ISREG(status.st_mode):
        return f"{mode}\0{sha256_file(path)}"
    return f"{mode}\0{stat.S_IFMT(status.st_mode):o}"
