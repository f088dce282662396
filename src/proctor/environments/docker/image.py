"""Finds, pulls or builds the image of a task, once per job even for many trials.

    docker_image      as in harbor, unless a build is forced and there is a Dockerfile
    a Dockerfile      built once per content of its directory, under a tag with the digest of it
    neither           refused

A tag may move while a job runs, so every container is started from the Id that the tag had first.
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

import msgspec

from proctor.digest import sha256_file, sha256_hex
from proctor.environments.docker.model_port import HOST
from proctor.environments.docker.program import (
    end_call,
    explain,
    lock_of,
    name_choice,
    run_docker,
    start_docker,
)
from proctor.environments.image_config import ImageCheck
from proctor.environments.sandbox.locks import locked_soon
from proctor.errors import DockerError, EngineError, ImageError
from proctor.sentence import reason_of, without_escapes
from proctor.task.environment import Healthcheck
from proctor.trial.unchanged import SeenTrees, now_ns, take_fingerprint

CONTEXT = "proctor.context"
"""Label of an image that proctor built: the digest of the build context."""
# Lines of a failed build's output in the error.
_KEPT_LINES = 30
# Bytes of a build's output in the trial's log.
_KEPT_BYTES = 1 << 20
_PIECE = 1 << 16
# How the classic builder reports the image of a step.
_STEP = re.compile(r"^ ---> ([0-9a-f]{12})$", re.MULTILINE)
_UNFIT = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True, slots=True)
class Image:
    """An image that the engine has."""

    id: str
    """`sha256:…`, from which containers are started."""
    pin: str
    """Name with the registry's digest, or with the Id if it is from no registry."""
    env: Mapping[str, str]
    workdir: str
    user: str
    """Default user of commands; empty: root."""
    has_volumes: bool
    """Whether some of its directories are volumes, which are not in a container's layers."""
    entrypoint: tuple[str, ...] = ()
    healthcheck: Healthcheck | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Build:
    """A Dockerfile to build."""

    directory: Path
    digest: str
    """Digest of the directory."""
    network: str | None
    """Network of the job's containers; its RUN commands use it if it is the host's."""
    force: bool
    """Whether to build anew, without cached layers."""


# Prepared images, by engine and name or build context.
_KNOWN: dict[tuple[str, ...], Image] = {}


# Metadata of build contexts, and their digests.
_CONTEXTS: dict[Path, tuple[SeenTrees, str]] = {}


async def prepare_image(
    environment_dir: Path,
    docker_image: str | None,
    name: str,
    logger: logging.Logger,
    *,
    force: bool,
    network: str | None = None,
) -> Image:
    """Prepare the image of a task in the engine; `network` is the one that a build uses.

    Raises:
        ImageError: the task has none, or it cannot be pulled.
        RuntimeError: its Dockerfile could not be built; the message has the last lines of output.
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
        build = _Build(directory=environment_dir, digest=digest, network=network, force=force)
        return await _prepare_built(build, name, logger)
    return await _prepare_named(str(docker_image), logger)


async def _prepare_named(name: str, logger: logging.Logger) -> Image:
    key = (name_choice(), "named", name)
    async with locked_soon(lock_of(name)):
        if key not in _KNOWN:
            if (image := await find_image(name)) is None:
                logger.info("pulling %s", name)
                try:
                    await run_docker("pull", "--quiet", name, patience_sec=None)
                except EngineError:
                    raise
                except DockerError as error:
                    raise ImageError(
                        f"docker_image {name}: not in the engine, and cannot be pulled: {error}"
                    ) from error
                image = await find_image(name)
            if image is None:
                raise ImageError(f"docker_image {name}: was pulled, but is not in the engine")
            _KNOWN[key] = image
    return _KNOWN[key]


async def _prepare_built(build: _Build, name: str, logger: logging.Logger) -> Image:
    digest = build.digest
    tag = f"proctor-{_UNFIT.sub('-', name.lower()).strip('-') or 'task'}:{digest[:16]}"
    key = (name_choice(), "built", tag, digest)
    async with locked_soon(lock_of(tag)):
        if key not in _KNOWN:
            image = None if build.force else await find_image(tag, context=digest)
            if image is None:
                await _build(build, tag, logger)
                image = await find_image(tag)
            if image is None:
                raise ImageError(
                    f"{build.directory}: was built as {tag}, but the engine does not have it; if "
                    "the builder does not load images, run `docker buildx use default`"
                )
            _KNOWN[key] = image
    return _KNOWN[key]


async def _build(build: _Build, tag: str, logger: logging.Logger) -> None:
    words = ["build", "--force-rm", "--tag", tag, "--label", f"{CONTEXT}={build.digest}"]
    words += ["--no-cache"] if build.force else []
    # BuildKit knows no other network of the engine by its name.
    words += ["--network", HOST] if build.network == HOST else []
    said = bytearray()
    process = await start_docker(
        [*words, str(build.directory)],
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
        logger.info("docker build of %s:\n%s", tag, text)
    if code != 0:
        made = _STEP.findall(text)
        if made:
            found = await run_docker("image", "inspect", made[-1], is_checked=False)
            if found.code == 0 and not json.loads(found.out)[0].get("RepoTags"):
                await run_docker("rmi", made[-1], is_checked=False)
        raise _failure_of(build.directory, without_escapes(text))


def _failure_of(directory: Path, said: str) -> Exception:
    """Return harbor's exception for a failed build; errors of the engine keep their own."""
    error = explain("build", said)
    lines = [line for line in said.splitlines() if line.strip()]
    if isinstance(error, EngineError) or "no space left" in str(error):
        return error
    *before, last = lines[-_KEPT_LINES:] or ["no output"]
    output = "\n".join(before)
    return RuntimeError(f"{directory / 'Dockerfile'}: docker build failed: {last}\n{output}")


async def find_image(name: str, *, context: str | None = None) -> Image | None:
    """Find an image in the engine; with `context`, only one built from that context."""
    found = await run_docker("image", "inspect", name, is_checked=False)
    if found.code != 0:
        return None
    image = parse_image(name, json.loads(found.out)[0])
    labels = json.loads(found.out)[0]["Config"].get("Labels") or {}
    return None if context not in (None, labels.get(CONTEXT)) else image


def parse_image(name: str, facts: Mapping[str, object]) -> Image:
    """Parse the output of `docker image inspect`; `name` is the name it was inspected by."""
    config = facts.get("Config")
    config = config if isinstance(config, dict) else {}
    pairs = [str(pair).partition("=") for pair in config.get("Env") or ()]
    if not config.get("Healthcheck"):
        check_of = None
    else:
        check = msgspec.convert(config["Healthcheck"], ImageCheck)
        check_of = check.to_task(config["Shell"]) if config.get("Shell") else check.to_task()
    return Image(
        id=str(facts["Id"]),
        pin=_pin_of(name, facts),
        env={key: value for key, _, value in pairs},
        workdir=str(config.get("WorkingDir") or "/"),
        user=str(config.get("User") or ""),
        has_volumes=bool(config.get("Volumes")),
        entrypoint=tuple(map(str, config.get("Entrypoint") or ())),
        healthcheck=check_of,
    )


def _pin_of(name: str, facts: Mapping[str, object]) -> str:
    """Return the name with its registry's digest, or else with the Id."""
    repository = _repository_of(name)
    digests = facts.get("RepoDigests")
    known = [str(each) for each in digests] if isinstance(digests, list) else []
    own = [each for each in known if each.partition("@")[0] in (repository, f"docker.io/{name}")]
    if own or known:
        return (own or known)[0]
    return f"{repository}@{facts['Id']}"


def _repository_of(name: str) -> str:
    """Return a name without tag and digest; a colon before a slash is a registry's port."""
    name = name.partition("@")[0]
    head, colon, tag = name.rpartition(":")
    return head if colon and "/" not in tag else name


def _recall_context(directory: Path) -> str:
    """Return hash_context of a directory, cached while the metadata of its files is the same."""
    if directory not in _CONTEXTS or not _CONTEXTS[directory][0].is_unchanged([directory]):
        began, fingerprint, seen = now_ns(), take_fingerprint([directory]), SeenTrees()
        digest = hash_context(directory)
        seen.accept(fingerprint, began)
        _CONTEXTS[directory] = seen, digest
    return _CONTEXTS[directory][1]


def hash_context(directory: Path) -> str:
    """Return a digest of everything that a build can see: paths, modes, bytes, symlinks.

    Raises:
        ImageError: a file cannot be read.
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
