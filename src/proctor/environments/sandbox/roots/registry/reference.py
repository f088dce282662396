"""What the name of an image means: a host, a repository there, and a tag or a digest."""

import re
from dataclasses import dataclass

from proctor.environments.sandbox.roots.image_name import normalise_name
from proctor.errors import ImageError

DOCKER_HUB = "docker.io"
_LAST_PORT = 65535
_REPOSITORY = re.compile(r"[a-z0-9]+(?:(?:\.|_{1,2}|-+|/)[a-z0-9]+)*")


@dataclass(frozen=True, slots=True)
class Reference:
    """An image in a registry."""

    name: str
    """Normalised, as in `debian:12`."""
    host: str
    """`docker.io`, or a host with its port, as in `registry.example.org:5000`."""
    repository: str
    """Path of the repository on the host, as in `library/debian`."""
    tag: str
    digest: str | None = None
    """`sha256:` and hex, if the name has one; it decides, not the tag."""

    @property
    def version(self) -> str:
        """Tag or digest."""
        return self.digest or self.tag


def parse_reference(name: str) -> Reference:
    """Parse the name of an image; a name without a host is one of Docker Hub.

    Raises:
        ImageError: it is not a name of an image in a registry.
    """
    name = normalise_name(name)
    rest, _, digest = name.partition("@")
    first, _, inner = rest.partition("/")
    host, path = DOCKER_HUB, rest
    if inner and ("." in first or ":" in first or first == "localhost"):
        host, path = first.lower(), inner
    repository, _, tag = path.partition(":")
    if host == DOCKER_HUB and "/" not in repository:
        repository = f"library/{repository}"
    if not _REPOSITORY.fullmatch(repository):
        raise ImageError(
            f"{name}: {repository!r} is not a repository of a registry; expected small letters and "
            "digits, with `.`, `_`, `-` and `/` between them"
        )
    port = host.partition(":")[2]
    if port and int(port) > _LAST_PORT:
        raise ImageError(f"{name}: {port} is not a port; expected at most {_LAST_PORT}")
    return Reference(name, host, repository, tag or "latest", digest or None)
