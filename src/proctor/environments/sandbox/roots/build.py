"""Builds the root file system of a task from its image, base and Dockerfile.

    docker_image is in the store    that image, as in harbor, unless a build is forced
    there is a Dockerfile           what it builds, on the images that it names
    neither                         the base

The base is used instead of an image of FROM that is not in the store.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from proctor.environments.sandbox.roots.bases import Base, Bases, load_dockerfile, load_host
from proctor.environments.sandbox.roots.builders import (
    BUILDERS,
    PROGRAMS,
    RootOptions,
    build_with,
    find_program,
)
from proctor.environments.sandbox.roots.dockerfile import NOTHING, Dockerfile, Stage
from proctor.environments.sandbox.roots.host_base import is_loaded
from proctor.environments.sandbox.roots.instructions import DEFAULT_PATH, find_unbuilt
from proctor.environments.sandbox.roots.layers import Parts
from proctor.environments.sandbox.roots.saved_image import this_platform
from proctor.environments.sandbox.roots.stages import Builder
from proctor.environments.sandbox.roots.steps import Spawn, run_in_thread
from proctor.errors import ImageError, UnsupportedError
from proctor.harbor.configs import HOST_BASE
from proctor.task.environment import Healthcheck
from proctor.trial.finding import Finding, FindingCode

_PHASE = "setup"


@dataclass(frozen=True, slots=True)
class Root:
    """A root file system, to be mounted below an upper directory."""

    parts: Parts
    """(target, layers on the host, topmost first) of each overlay; the first is `/`."""
    env: Mapping[str, str]
    """Variables of every command."""
    workdir: str
    user: str
    pin: str
    """Names of the images that its files are from, each with its digest, or of the host."""
    findings: tuple[Finding, ...] = ()
    upload_environment: bool = False
    """Whether to copy the task's environment directory to the working directory, as harbor does
    for a task with an image but no Dockerfile."""
    healthcheck: Healthcheck | None = None
    """A check that has to succeed before the environment is used."""
    entrypoint: tuple[str, ...] = ()
    """See Start."""
    notes: tuple[str, ...] = ()
    """Messages about instructions that have no effect here."""


async def build_root(
    environment_dir: Path,
    docker_image: str | None,
    options: RootOptions,
    *,
    scratch: Path,
    spawn: Spawn,
    force: bool = False,
) -> Root:
    """Build the root file system of a task; `scratch` is a directory of this run."""
    path = environment_dir / "docker-compose.yaml"
    if path.exists():
        raise UnsupportedError(
            f"{path}: the sandbox does not support Docker Compose; use an environment that does, "
            "with --environment-import-path"
        )
    if options.base == HOST_BASE and not is_loaded(scratch):
        # Copying the host's files takes time, so do it in a thread. Errors are ignored here,
        # because they matter only if the host is needed below.
        with suppress(ImageError):
            await run_in_thread(lambda: load_host(scratch))
    bases = Bases(options.base, scratch)
    image = bases.find(docker_image) if docker_image else None
    is_built = (environment_dir / "Dockerfile").is_file() and (image is None or force)
    if is_built and options.builder in PROGRAMS:
        made, notes = await build_with(options.builder, environment_dir, scratch, force=force)
        return replace(_rooted(bases.of_image(made), upload=False), notes=notes)
    dockerfile = load_dockerfile(environment_dir)
    if is_built and dockerfile and options.builder == BUILDERS[0]:
        why = find_unbuilt(dockerfile)
        if why and (program := find_program()):
            made, notes = await build_with(program, environment_dir, scratch, force=force)
            note = f"built with {program}, because in the sandbox {why}"
            return replace(_rooted(bases.of_image(made), upload=False), notes=(*notes, note))
    if image is not None and not (force and dockerfile):
        return _rooted(bases.of_image(image), upload=_is_uploaded(environment_dir, dockerfile))
    if dockerfile is None:
        if docker_image is None:
            return _rooted(bases.of_base(), upload=False)
        finding = _substituted(f"task.toml names {docker_image}", bases)
        return _rooted(bases.of_base(), (finding,), upload=_is_uploaded(environment_dir, None))
    findings = _findings_of(dockerfile, docker_image if image is None else None, bases)
    hints = tuple(finding.message for finding in findings)
    builder = Builder(dockerfile, bases, environment_dir, spawn, hints)
    built = await builder.build(scratch, force=force)
    start = built.base.start
    return Root(
        parts=built.base.parts,
        env=start.env,
        workdir=start.workdir,
        user=start.user,
        healthcheck=start.healthcheck,
        entrypoint=start.entrypoint,
        pin=", ".join(built.pins),
        findings=(*built.findings, *findings),
        notes=(*built.notes, *_platform_notes(dockerfile)),
    )


def _is_uploaded(environment_dir: Path, dockerfile: Dockerfile | None) -> bool:
    return dockerfile is None and environment_dir.is_dir() and any(environment_dir.iterdir())


def _rooted(base_root: Base, findings: tuple[Finding, ...] = (), *, upload: bool) -> Root:
    start = base_root.start
    env = {"PATH": DEFAULT_PATH, **start.env}
    return Root(
        parts=base_root.parts,
        env=env,
        workdir=start.workdir,
        user=start.user,
        pin=base_root.pin,
        findings=(*base_root.findings, *findings),
        upload_environment=upload,
        healthcheck=start.healthcheck,
        entrypoint=start.entrypoint,
    )


def _findings_of(
    dockerfile: Dockerfile, docker_image: str | None, bases: Bases
) -> tuple[Finding, ...]:
    findings = []
    if docker_image is not None:
        message = (
            f"task.toml names the image {docker_image}, which is not in the image store; the "
            "task's Dockerfile was built instead"
        )
        detail: dict[str, object] = {"wanted": docker_image, "used": "Dockerfile"}
        findings.append(_finding(message, detail))
    missing = dict.fromkeys(
        str(stage.source.image)
        for stage in dockerfile.needed
        if stage.source.image is not None and not bases.is_there(dockerfile, stage)
    )
    findings += [_substituted(f"The Dockerfile is FROM {image}", bases) for image in missing]
    return tuple(findings)


def _substituted(who: str, bases: Bases) -> Finding:
    wanted, used = who.rpartition(" ")[2], bases.of_base().pin
    remedy = "use -e docker"
    if wanted != NOTHING:
        remedy = f"pull it with `proctor image pull {wanted}`, or use -e docker"
    system = used.partition("@")[0]
    if system.startswith("host:"):
        system = f"the host's system ({system.removeprefix('host:')})"
    message = f"{who}, which is not in the image store; {system} was used instead: {remedy}"
    return _finding(message, {"wanted": wanted, "used": used})


def _finding(message: str, detail: dict[str, object]) -> Finding:
    return Finding(code=FindingCode.BASE_SUBSTITUTED, phase=_PHASE, message=message, detail=detail)


def _platform_notes(dockerfile: Dockerfile) -> tuple[str, ...]:
    return tuple(note for stage in dockerfile.needed for note in _note_platform(dockerfile, stage))


def _note_platform(dockerfile: Dockerfile, stage: Stage) -> tuple[str, ...]:
    wanted, ours = stage.platform, str(this_platform())
    if wanted is None or wanted == ours or wanted.startswith(f"{ours}/"):
        return ()
    place = f"{dockerfile.where}:{stage.line}"
    return (f"{place}: FROM asks for the platform {wanted}; this machine is {ours}",)
