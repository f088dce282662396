"""Images of the sandbox: which ones a job needs, and their way to the nodes that lack them.

An image is known by its digest. A node that has another image under the same name is refused: its
trials would not be the same. Files of imported images are sent; a node pulls an image of a registry
by its digest.
"""

import os
import tarfile
import tempfile
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO, cast

import msgspec

from proctor.cluster.shipping import put_pieces, write_parcel
from proctor.environments.sandbox.roots.image import Image
from proctor.environments.sandbox.roots.images import ImageStore
from proctor.environments.sandbox.roots.pull import PullOptions, pull_image
from proctor.errors import ImageError
from proctor.harbor.configs import HOST_BASE, SANDBOX, EnvironmentConfig
from proctor.job import images as job_images
from proctor.task.directory import Task


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
