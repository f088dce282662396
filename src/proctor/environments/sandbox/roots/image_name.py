"""Names of images, as in Docker."""

import re

from proctor.errors import ImageError

_NAME = re.compile(
    r"(?:[a-zA-Z0-9](?:[a-zA-Z0-9._-]*[a-zA-Z0-9])?(?::[0-9]+)?/)?"  # registry, organisation
    r"[a-zA-Z0-9](?:[a-zA-Z0-9._/-]*[a-zA-Z0-9])?"
    r"(?::[A-Za-z0-9_][A-Za-z0-9._-]{0,127})?(?:@sha256:[0-9a-f]{64})?"
)
_LONGEST_NAME = 255


def normalise_name(name: str) -> str:
    """Normalise a name as Docker does: without Docker Hub's prefix, with a tag.

    Raises:
        ImageError: it is not a name of an image.
    """
    if len(name) > _LONGEST_NAME or not _NAME.fullmatch(name) or "//" in name or ".." in name:
        raise ImageError(
            f"{name!r}: not a name of an image; expected one such as debian:12, my-image or "
            "registry.example.org/org/name:tag"
        )
    for prefix in ("docker.io/", "index.docker.io/", "library/"):
        name = name.removeprefix(prefix)
    last = name.rpartition("/")[2]
    return name if ":" in last or "@" in last else f"{name}:latest"


def is_called(name: str, other: str) -> bool:
    """Whether a name found in an archive means the normalised `name`."""
    try:
        return normalise_name(other) == name
    except ImageError:
        return False
