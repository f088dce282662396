"""What an agent left in a container, kept as an image that other containers are started from.

Such an image has no name. It carries the labels of its run, by which it is found again after a
kill, and goes with the container that it was made of.
"""

from dataclasses import replace

from proctor.environments.docker.containers import TRIAL, words_of_labels
from proctor.environments.docker.image import Image
from proctor.environments.docker.program import run_docker
from proctor.errors import DockerError


async def keep_as_image(container: str, image: Image) -> Image:
    """The files of a container as they are now, with all else as in the image it was started from.

    Raises:
        DockerError: they cannot be kept.
    """
    if image.has_volumes:
        raise DockerError(f"{image.pin}: has volumes, and what lies in those is in no image")
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
