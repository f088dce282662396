"""An image of the store: its settings under one name, and its files on the disk."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

import msgspec

from proctor.environments.image_config import ImageCheck
from proctor.errors import ImageError
from proctor.sentence import count_of
from proctor.trial.finding import Finding, FindingCode


class Origin(StrEnum):
    """How an image came into the store."""

    PULLED = "pulled"
    BUILT = "built"
    """By buildah or docker, from a Dockerfile."""
    IMPORTED = "imported"


class Image(msgspec.Struct, frozen=True, kw_only=True):
    """An image under one name."""

    name: str
    """Normalised, as in `debian:12` or `registry.example.org/org/name:tag`."""
    digest: str
    """SHA-256 over the tree, or of the manifest if it was pulled, in hex."""
    size: int
    """Sum of the sizes of its files, in bytes."""
    n_entries: int
    """Number of files, directories and symlinks."""
    imported_at: datetime
    source: str
    """tar, directory, docker-save, oci-layout or registry."""
    image_id: str | None = None
    """Docker's image id, the digest of the image's configuration: `sha256:` and hex."""
    env: dict[str, str] = {}
    """Variables of every command; `docker export` does not include them."""
    workdir: str = "/"
    user: str = "root"
    entrypoint: tuple[str, ...] = ()
    healthcheck: ImageCheck | None = None
    notes: tuple[str, ...] = ()
    """Messages about entries that were left out, and settings that are not used."""
    layers: tuple[str, ...] = ()
    """Chains of its layers, lowest first, if it was pulled."""
    platform: str | None = None
    """Platform it was pulled for, as in linux/amd64."""
    n_squashed: int = 0
    """Number of entries that belong to other users in the image, and to root here."""
    pulled_from: str | None = None
    """Reference that was pulled; None: it was not, or an earlier version pulled it."""
    builder: str | None = None
    """Program that built it from a task's Dockerfile, as in buildah; None: none did."""
    disk_size: int | None = None
    """Bytes on the disk, if it has no layers; None: not measured."""

    @property
    def origin(self) -> Origin:
        """How it came to its name."""
        if self.builder is not None:
            return Origin.BUILT
        is_pulled = bool(self.layers) or self.source == "registry"
        return Origin.PULLED if is_pulled else Origin.IMPORTED

    @property
    def is_kept(self) -> bool:
        """Whether a person has to bring it again if it is removed, so that only they remove it.

        That is so for what was imported, and for what was pulled under the name of another image.
        """
        if self.origin is not Origin.PULLED or self.pulled_from is None:
            return self.origin is Origin.IMPORTED
        repository, _, digest = self.pulled_from.partition("@")
        if digest:
            # The name has a tag, and a reference by digest need not.
            return _repository_of(self.name) != _repository_of(repository)
        return self.name != self.pulled_from

    @property
    def pin(self) -> str:
        """Name and digest, for records."""
        return f"{self.name}@sha256:{self.digest}"

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Findings of every trial that runs on it."""
        if not self.n_squashed:
            return ()
        message = (
            f"{self.name}: {count_of(self.n_squashed, 'entry', 'entries')} of other users belong "
            "to root: this user has no subordinate ids, or too few; configure /etc/subuid and "
            "/etc/subgid, remove the image, and pull it again"
        )
        detail: dict[str, object] = {"image": self.pin, "n_entries": self.n_squashed}
        code = FindingCode.OWNERS_SQUASHED
        return (Finding(code=code, phase="setup", message=message, detail=detail),)


@dataclass(frozen=True, slots=True)
class StoredImage:
    """The files of an image in the store, with all names that it has."""

    digest: str
    names: tuple[str, ...]
    sizes: Mapping[str, int]
    """Bytes on the disk of its layers, by chain, or of all its files by its digest."""
    used_at: datetime
    """When a job last began with it, or it was pulled or built."""
    is_used: bool
    """Whether a running process uses it."""
    is_kept: bool
    """See Image: that of any of its names."""

    @property
    def size(self) -> int:
        """Bytes on the disk, with layers that it shares with other images."""
        return sum(self.sizes.values())


def _repository_of(name: str) -> str:
    """Return a name without tag and digest."""
    first, slash, last = name.partition("@")[0].rpartition("/")
    return f"{first}{slash}{last.partition(':')[0]}"


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
