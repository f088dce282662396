"""What the driver's machine sends to nodes: files, images of the sandbox, variables.

An archive is put into Ray's object store in pieces, and each node keeps it by its digest: the
second trial of a task on a node fetches nothing. An image is known by its digest. A node that has
another image under the same name is refused: its trials would not be the same. Files of imported
images are sent; a node pulls an image of a registry by its digest.
"""

import os
import tarfile
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

import msgspec
import ray

from proctor.cluster.archive import pack
from proctor.digest import sha256_file
from proctor.environments.sandbox.roots.image import Image
from proctor.environments.sandbox.roots.images import ImageStore
from proctor.environments.sandbox.roots.pull import PullOptions, pull_image
from proctor.errors import ClusterError, ImageError
from proctor.gateway.upstream import PROVIDERS
from proctor.harbor.agents import find_keys
from proctor.harbor.configs import HOST_BASE, SANDBOX, EnvironmentConfig
from proctor.harbor.env import find_template
from proctor.job import images as job_images
from proctor.sentence import reason_of
from proctor.task.directory import Task
from proctor.trial.opening import find_envs
from proctor.trial.spec import TrialSpec

_PIECE: Final = 32 << 20

type Parcels = Mapping[str, Sequence[Any]]
"""References to the pieces of archives in the object store, by digest."""


class Tree(msgspec.Struct, frozen=True):
    """A file or directory that a trial reads."""

    path: str
    """On the driver's machine, as the trial's specification has it."""
    digest: str
    """Of its archive."""
    is_file: bool


class Shipping:
    """The archives of one job. Keeps references to them until it is dropped."""

    def __init__(self) -> None:
        self._trees: dict[str, Tree] = {}
        self._parcels: dict[str, Sequence[Any]] = {}

    def send(self, spec: TrialSpec) -> tuple[Sequence[Tree], Parcels]:
        """Put what a trial reads into the object store, unless it is there. Blocks."""
        paths = [str(spec.task.directory), *spec.find_paths()]
        trees = [self._find_tree(path) for path in dict.fromkeys(paths)]
        return trees, {tree.digest: self._parcels[tree.digest] for tree in trees}

    def _find_tree(self, path: str) -> Tree:
        if path not in self._trees:
            try:
                self._trees[path] = self._pack(path)
            except OSError as error:
                raise ClusterError(f"{path}: cannot be sent: {reason_of(error)}") from error
        return self._trees[path]

    def _pack(self, path: str) -> Tree:
        source = Path(path).expanduser()
        with tempfile.NamedTemporaryFile(prefix="proctor-tree-") as file:
            pack(source, cast(BinaryIO, file))
            file.flush()
            digest = sha256_file(Path(file.name))
            if digest not in self._parcels:
                file.seek(0)
                self._parcels[digest] = put_pieces(cast(BinaryIO, file))
        return Tree(path, digest, is_file=not source.is_dir())


def put_pieces(file: BinaryIO) -> Sequence[Any]:
    """Put the rest of a file into the object store, in pieces."""
    return [ray.put(piece) for piece in iter(lambda: file.read(_PIECE), b"")]


def write_parcel(pieces: Sequence[Any], file: BinaryIO) -> None:
    """Write an archive from the object store to a file."""
    file.writelines(ray.get(piece) for piece in pieces)


def find_images(environment: EnvironmentConfig, tasks: Iterable[Task]) -> list[Image]:
    """Return the images that the roots of a job's tasks are made of."""
    if environment.import_path != SANDBOX:
        return []
    pins = {image.pin for task in tasks for image in job_images.find_images(environment, task)}
    base = str(environment.kwargs.get("base", HOST_BASE))
    store = ImageStore()
    named = store.find(base) if base != HOST_BASE else None
    images = [image for image in store.list_images() if image.pin in pins]
    return [*images, *([named] if named is not None and named not in images else [])]


def put_image(image: Image) -> Sequence[Any]:
    """Put the files of an image into the object store; none of one that nodes pull. Blocks."""
    if image.layers:
        return ()
    with tempfile.NamedTemporaryFile(prefix="proctor-image-") as file:
        with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar:
            tar.add(ImageStore().rootfs(image), arcname=".")
        file.seek(0)
        return put_pieces(cast(BinaryIO, file))


def find_missing(images: str) -> list[str]:
    """Return the digests of these images that this node does not have under their names.

    For the others, a job begins to use them now.
    """
    wanted = msgspec.json.decode(images, type=list[Image])
    store = ImageStore()
    return [image.digest for image in wanted if not _is_there(store, image)]


def _is_there(store: ImageStore, image: Image) -> bool:
    found = store.find(image.name)
    return found is not None and found.digest == image.digest and store.mark_used(found)


def receive_image(image: str, pieces: Sequence[Any], images: str) -> None:
    """Store an image on this node; `images` are all of the job, which its limit does not remove."""
    wanted = msgspec.json.decode(image, type=Image)
    if wanted.layers:
        job = msgspec.json.decode(images, type=list[Image])
        _pull(wanted, frozenset(one.digest for one in job))
        return
    with tempfile.NamedTemporaryFile(prefix="proctor-image-") as file:
        write_parcel(pieces, cast(BinaryIO, file))
        file.flush()
        ImageStore().receive(wanted, Path(file.name))


def _pull(image: Image, keep: frozenset[str]) -> None:
    store = ImageStore()
    if (there := store.find(image.name)) is not None:
        raise ImageError(
            f"{image.name}: is sha256:{there.digest[:12]}… on this node; the job's is "
            f"sha256:{image.digest[:12]}…"
        )
    reference = f"{image.name.partition('@')[0]}@sha256:{image.digest}"
    options = PullOptions(env=os.environ, now=datetime.now(UTC), name=image.name, keep=keep)
    pull_image(store, reference, options)


HELD = "held-by-the-gateway"
"""Stands for a provider's key, which a trial with a gateway never gets."""


def find_variables(
    spec: TrialSpec, host: Mapping[str, str], *, is_served: bool = False
) -> dict[str, str]:
    """Return the variables that templates of a trial name, and what its agent looks for.

    `is_served`: its agent reaches models through the gateway, which keeps the keys of providers.
    """
    templates = (find_template(value) for env in find_envs(spec) for value in env.values())
    names = {template.name for template in templates if template is not None}
    keys = {name for provider in PROVIDERS.values() for name in provider.keys}
    if not is_served:
        names |= find_keys(spec.config.agent, host).keys()
        names |= {name for provider in PROVIDERS.values() for name in provider.urls}
    return {
        name: HELD if is_served and name in keys else host[name] for name in names if name in host
    }
