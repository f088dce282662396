"""The index of an OCI image layout: which manifests it leads to, and for which machines.

An index may lead to others; attestations, which are no images, are passed over. Nothing here
chooses one, or reads a manifest.
"""

import re
from dataclasses import dataclass

import msgspec

from proctor.digest import sha256_hex
from proctor.environments.sandbox.roots.saved_files import INDEX, SavedFiles, read_document
from proctor.errors import ImageError

_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")
_INDEX_TYPES = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
_NAMES = ("io.containerd.image.name", "org.opencontainers.image.ref.name")
_ATTESTATION = "vnd.docker.reference.type"
_MOST_INDEXES = 100


class Platform(msgspec.Struct, frozen=True):
    """Which machine an image is for; empty where it does not say."""

    os: str = ""
    architecture: str = ""

    def __str__(self) -> str:
        """As Docker writes it: linux/amd64."""
        return f"{self.os or 'unknown'}/{self.architecture or 'unknown'}"


class Descriptor(msgspec.Struct, frozen=True, rename="camel"):
    """What one document says of a blob."""

    digest: str
    size: int | None = None
    media_type: str = ""
    platform: Platform | None = None
    annotations: dict[str, str] | None = None


class _Index(msgspec.Struct, frozen=True):
    manifests: list[Descriptor] = []


@dataclass(frozen=True, slots=True)
class Candidate:
    """A manifest that the index leads to."""

    descriptor: Descriptor
    names: tuple[str, ...]
    """What the index calls it: a whole name, or a tag alone."""


def find_candidates(files: SavedFiles) -> list[Candidate]:
    """All manifests of images, in order.

    Raises:
        ImageError: an index is missing, damaged or altered, or leads to none.
    """
    data = read_document(files, INDEX)
    if data is None:
        raise ImageError(f"{INDEX}: is missing; expected an OCI image layout, or `docker save`'s")
    found: list[Candidate] = []
    waiting = [Candidate(one, _names_of(one)) for one in decode(data, _Index, INDEX).manifests]
    n_indexes = 0
    while waiting:
        one = waiting.pop(0)
        if one.descriptor.media_type not in _INDEX_TYPES:
            if _ATTESTATION not in (one.descriptor.annotations or {}):
                found.append(one)
            continue
        n_indexes += 1
        if n_indexes > _MOST_INDEXES:
            raise ImageError(f"{INDEX}: leads to more than {_MOST_INDEXES} others; refused")
        inner = _read_index(files, one.descriptor).manifests
        waiting += [Candidate(below, _names_of(below) or one.names) for below in inner]
    if not found:
        raise ImageError(f"{INDEX}: names no image")
    return found


def _read_index(files: SavedFiles, descriptor: Descriptor) -> _Index:
    name = blob_name(descriptor)
    data = read_document(files, name)
    if data is None:
        raise ImageError(f"{name}: is missing; save the image again")
    if sha256_hex(data) != hex_of(descriptor):
        raise ImageError(f"{name}: its SHA-256 is {sha256_hex(data)}: it was altered or damaged")
    return decode(data, _Index, name)


def _names_of(descriptor: Descriptor) -> tuple[str, ...]:
    said = descriptor.annotations or {}
    return tuple(said[key] for key in _NAMES if key in said)


def blob_name(descriptor: Descriptor) -> str:
    """Where a blob lies."""
    return f"blobs/sha256/{hex_of(descriptor)}"


def hex_of(descriptor: Descriptor) -> str:
    """The digest without its algorithm.

    Raises:
        ImageError: it is no SHA-256.
    """
    found = _DIGEST.fullmatch(descriptor.digest)
    if found is None:
        raise ImageError(f"{descriptor.digest[:80]!r}: expected sha256: and 64 digits in hex")
    return found[1]


def decode[Document](data: bytes, kind: type[Document], name: str) -> Document:
    """A document as what it should be.

    Raises:
        ImageError: it is something else.
    """
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ImageError(f"{name}: not what an image has there: {error}") from error
