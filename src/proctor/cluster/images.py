"""Images of the sandbox: which ones a job needs, and their way to the nodes that lack them.

An image is known by the digest of its files. A node that has another image under the same name is
refused: its trials would not be the same.
"""

import tarfile
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, BinaryIO, cast

import msgspec

from proctor.cluster.shipping import put_pieces, write_parcel
from proctor.environments.sandbox.roots.images import Image, ImageStore
from proctor.harbor.configs import HOST_BASE, SANDBOX, EnvironmentConfig
from proctor.job.images import find_task_image
from proctor.task.directory import Task


def find_images(environment: EnvironmentConfig, tasks: Iterable[Task]) -> list[Image]:
    """Return the imported images that the tasks of a job run on.

    Raises:
        ImageError: the store of images cannot be read.
    """
    if environment.import_path != SANDBOX:
        return []
    pins = {find_task_image(environment, task) for task in tasks}
    base = str(environment.kwargs.get("base", HOST_BASE))
    store = ImageStore()
    named = store.find(base) if base != HOST_BASE else None
    images = [image for image in store.list_images() if image.pin in pins]
    return [*images, *([named] if named is not None and named not in images else [])]


def put_image(image: Image) -> Sequence[Any]:
    """Put the files of an image into the object store. Blocks.

    Raises:
        ImageError: they no longer exist.
    """
    with tempfile.NamedTemporaryFile(prefix="proctor-image-") as file:
        with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar:
            tar.add(ImageStore().rootfs(image), arcname=".")
        file.seek(0)
        return put_pieces(cast(BinaryIO, file))


def find_missing(images: str) -> list[str]:
    """Return the digests of these images that this node does not have under their names."""
    wanted = msgspec.json.decode(images, type=list[Image])
    store = ImageStore()
    return [
        image.digest
        for image in wanted
        if (found := store.find(image.name)) is None or found.digest != image.digest
    ]


def receive_image(image: str, pieces: Sequence[Any]) -> None:
    """Store an image on this node.

    Raises:
        ImageError: another image has its name there, or it did not arrive as it was.
    """
    with tempfile.NamedTemporaryFile(prefix="proctor-image-") as file:
        write_parcel(pieces, cast(BinaryIO, file))
        file.flush()
        ImageStore().receive(msgspec.json.decode(image, type=Image), Path(file.name))
