"""Root file systems that a task starts from: images of the store, the host's files, nothing."""

from dataclasses import dataclass
from pathlib import Path

from proctor.environments.sandbox.roots.builders import find_program
from proctor.environments.sandbox.roots.dockerfile import (
    NOTHING,
    Dockerfile,
    Source,
    Stage,
    parse_dockerfile,
)
from proctor.environments.sandbox.roots.host_base import HostBase, load_furnishing, load_host_base
from proctor.environments.sandbox.roots.image import Image
from proctor.environments.sandbox.roots.images import ImageStore
from proctor.environments.sandbox.roots.instructions import Start, find_unbuilt
from proctor.environments.sandbox.roots.layers import Parts
from proctor.environments.sandbox.roots.saved_image import this_platform
from proctor.environments.sandbox.scratch import cache_directory
from proctor.errors import ImageError
from proctor.files import read_small
from proctor.harbor.configs import HOST_BASE
from proctor.sentence import reason_of
from proctor.trial.finding import Finding


def load_dockerfile(environment_dir: Path) -> Dockerfile | None:
    """Load the Dockerfile of a task; None if it has none.

    Raises:
        ImageError: it cannot be read, or is invalid.
    """
    path = environment_dir / "Dockerfile"
    try:
        text = read_small(str(path)).decode("utf-8")
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        raise ImageError(f"{path}: not UTF-8 text: {error.reason} at {error.start}") from error
    except OSError as error:
        raise ImageError(f"{path}: cannot be read: {reason_of(error)}") from error
    return parse_dockerfile(text, str(path), this_platform().architecture)


def find_images(
    environment_dir: Path,
    docker_image: str | None,
    base: str,
    *,
    force: bool = False,
    is_external: bool = False,
) -> tuple[Image, ...]:
    """Return the images of which a task's root would be made; the one that it runs on first.

    `is_external`: another program builds Dockerfiles, and uses its own images.
    """
    store = ImageStore()
    names = _list_images(environment_dir, docker_image, force=force, is_external=is_external)
    if docker_image is not None and names == [docker_image] and store.find(docker_image) is None:
        # The Dockerfile, if there is one, is built instead.
        names = _list_images(environment_dir, None, force=force, is_external=is_external)
    images = [store.find(name) for name in names]
    is_substituted = not images or None in images
    first = store.find(base) if is_substituted and base != HOST_BASE else None
    return tuple(image for image in (first, *images) if image is not None)


def hold_images(
    environment_dir: Path,
    docker_image: str | None,
    *,
    force: bool = False,
    is_external: bool = False,
) -> list[str]:
    """Keep the images that a task names until this process ends; return those the store lacks."""
    store = ImageStore()
    names = _list_images(environment_dir, docker_image, force=force, is_external=is_external)
    return [name for name in names if (found := store.find(name)) is None or not store.hold(found)]


def find_other_builder(
    environment_dir: Path, docker_image: str | None, *, force: bool = False
) -> str | None:
    """Return the program that `--builder auto` builds a task with; None: the sandbox."""
    try:
        dockerfile = load_dockerfile(environment_dir) if force or docker_image is None else None
    except ImageError:
        # Its trials will report the problem.
        return None
    return _find_other_builder(dockerfile) if dockerfile is not None else None


def _find_other_builder(dockerfile: Dockerfile) -> str | None:
    return None if find_unbuilt(dockerfile) is None else find_program()


def _list_images(
    environment_dir: Path, docker_image: str | None, *, force: bool, is_external: bool
) -> list[str]:
    if is_external and (environment_dir / "Dockerfile").is_file() and (force or not docker_image):
        return []
    dockerfile = load_dockerfile(environment_dir)
    if dockerfile is not None and (docker_image is None or force):
        # What another program builds, it pulls itself.
        return [] if _find_other_builder(dockerfile) else list(dockerfile.images)
    return [] if docker_image in (None, NOTHING) else [str(docker_image)]


@dataclass(frozen=True, slots=True)
class Base:
    """A root file system to build on: an image, the host's files, or an earlier stage."""

    parts: Parts
    start: Start
    pin: str
    """Name of the image or host at its bottom, with its digest."""
    identity: str
    """What its files are: the pin, or the id of the topmost layer of a stage."""
    layer: str | None = None
    """Id of the topmost layer of a stage; None: it is not one."""
    findings: tuple[Finding, ...] = ()


class Bases:
    """Images and the chosen base."""

    def __init__(self, base: str, scratch: Path) -> None:
        self._base = base
        self._scratch = scratch
        self._store = ImageStore()

    def find(self, name: str) -> Image | None:
        """Find an image of the store; None if there is none."""
        return self._store.find(name)

    def of_image(self, image: Image) -> Base:
        """Return the files of an image, with what every sandbox needs."""
        lowers = (str(load_furnishing(self._scratch)), *map(str, self._store.lowers(image)))
        start = Start(
            image.env,
            image.workdir,
            image.user,
            healthcheck=image.healthcheck.to_task() if image.healthcheck else None,
            entrypoint=image.entrypoint,
        )
        return Base((("/", lowers),), start, image.pin, image.pin, findings=image.findings)

    def of_base(self) -> Base:
        """Return what --base names."""
        if self._base == HOST_BASE:
            host = load_host(self._scratch)
            return Base(host.parts, Start({}), host.pin, host.pin)
        return self.of_image(self._store.load_base(self._base))

    def under(self, dockerfile: Dockerfile, stage: Stage) -> Base:
        """Return what a stage that is FROM an image starts from."""
        if is_empty(stage):
            lowers = (str(load_furnishing(self._scratch)),)
            return Base((("/", lowers),), Start({}), NOTHING, NOTHING)
        image = self._find_from(dockerfile, stage)
        return self.of_base() if image is None else self.of_image(image)

    def is_there(self, dockerfile: Dockerfile, stage: Stage) -> bool:
        """Whether the image of FROM is in the store."""
        return is_empty(stage) or self._find_from(dockerfile, stage) is not None

    def to_copy(self, source: Source) -> Image:
        """Return the image that COPY --from names.

        Raises:
            ImageError: it is not in the store.
        """
        name = str(source.image)
        image = self.find(name)
        if image is None:
            raise ImageError(
                f"--from={name}: not in the image store, and no other image can be used instead of "
                f"it; pull it with `proctor image pull {name}`"
            )
        return image

    def without_furnishing(self, parts: Parts) -> Parts:
        """Return the files of a root file system without what every sandbox gets."""
        extra = str(load_furnishing(self._scratch))
        return tuple(
            (target, tuple(one for one in lowers if one != extra) or lowers)
            for target, lowers in parts
        )

    def _find_from(self, dockerfile: Dockerfile, stage: Stage) -> Image | None:
        try:
            return self.find(str(stage.source.image))
        except ImageError as error:
            raise ImageError(f"{dockerfile.where}:{stage.line}: FROM {error}") from error


def is_empty(stage: Stage) -> bool:
    """Whether a stage starts from nothing, and brings a system of its own.

    A stage FROM scratch that only runs commands could not run one: it gets the base.
    """
    return stage.source.image == NOTHING and any(
        statement.keyword == "ADD"
        or (statement.keyword == "COPY" and "from" in dict(statement.flags))
        for statement in stage.statements
    )


def load_host(scratch: Path) -> HostBase:
    """Return the host's files as a root file system."""
    return load_host_base(scratch, cache=cache_directory() / "host")
