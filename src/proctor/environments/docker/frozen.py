"""What an agent left in a container, kept as an image that other containers are started from.

Such an image has no name. It carries the labels of its run, by which it is found again after a
kill, and goes with the container that it was made of. A clean room is a container of the task's own
image that is given, before it is started, the part of the kept files that is not left out.
"""

import asyncio
import posixpath
from dataclasses import replace
from pathlib import Path

from proctor.environments.docker.containers import TRIAL, words_of_labels
from proctor.environments.docker.image import Image
from proctor.environments.docker.program import run_docker
from proctor.environments.sandbox.delete import delete_tree
from proctor.environments.sandbox.mapped import run_mapped
from proctor.errors import UnsupportedError
from proctor.trial.changes import LeftOut

_UPPER = "{{if .GraphDriver.Data}}{{.GraphDriver.Data.UpperDir}}{{end}}"


async def keep_as_image(container: str, image: Image) -> Image:
    """The files of a container as they are now, with all else as in the image it was started from.

    Raises:
        DockerError: they cannot be kept.
    """
    if image.has_volumes:
        raise UnsupportedError(f"{image.pin}: has volumes, and what lies in those is in no image")
    labels = [word for word in words_of_labels() if word != "--label"]
    # Containers inherit an image's labels; one that begins with this has no evidence to bring in.
    changes = [f"LABEL {label}" for label in (*labels, f"{TRIAL}=")]
    words = [word for change in changes for word in ("--change", change)]
    told = await run_docker("commit", *words, container, patience_sec=None)
    return replace(image, id=told.out.strip())


async def remove_image(image: Image) -> None:
    """Remove what was kept.

    Raises:
        DockerError: it cannot be removed.
    """
    await run_docker("image", "rm", image.id)


async def fill_from_kept(container: str, kept: Image, left_out: LeftOut) -> None:
    """Give a container that was not started yet what was kept, but for what is left out.

    The topmost layer of what was kept is copied to the layer that takes what the container writes,
    so that deletions and replaced directories stay what they are. Both lie on this machine.

    Raises:
        DockerError, SandboxError, OSError: that cannot be done.
    """
    source = await _find_layer("image", "inspect", kept.id)
    target = await _find_layer("inspect", container)
    # The engine has made the working directory in it, if the image has none, and will again.
    await asyncio.to_thread(delete_tree, Path(target))
    paths = [[path.lstrip("/") for path in each] for each in (left_out.paths, left_out.plain)]
    # A process does it, which can be ended: there may be much to copy.
    await run_mapped("copy", [[source, target]], *paths, apart=True)


async def _find_layer(*words: str) -> str:
    """Where the topmost layer of something lies on this machine."""
    layer = (await run_docker(*words[:-1], "--format", _UPPER, words[-1])).out.strip()
    if not posixpath.isabs(layer) or not Path(layer).is_dir():
        raise UnsupportedError(f"{words[-1]}: its topmost layer is not on this machine: {layer!r}")
    return layer
