"""Manifests and configurations of a registry, read as the files of a saved image.

The image is then selected as in an OCI image layout: `index.json` refers to what the name refers to
in the registry, and every other document is fetched by its digest.
"""

import io
from typing import BinaryIO

import msgspec

from proctor.digest import sha256_hex
from proctor.environments.sandbox.roots.registry.client import RegistryClient
from proctor.environments.sandbox.roots.saved_files import INDEX, LARGEST_DOCUMENT
from proctor.errors import RegistryError

_BLOBS = "blobs/sha256/"
_ACCEPTED = ", ".join(
    (
        "application/vnd.oci.image.index.v1+json",
        "application/vnd.oci.image.manifest.v1+json",
        "application/vnd.docker.distribution.manifest.list.v2+json",
        "application/vnd.docker.distribution.manifest.v2+json",
    )
)
_OLD = "application/vnd.docker.distribution.manifest.v1+"
# Documents of one image: an index, its manifests without a platform and their configurations.
_MOST_DOCUMENTS = 60


class _Reference(msgspec.Struct, frozen=True):
    digest: str = ""


class _Manifest(msgspec.Struct, frozen=True, rename="camel"):
    """What an index and a manifest have in common."""

    media_type: str = ""
    manifests: list[_Reference] = []


class RemoteFiles:
    """The documents of one image in a registry."""

    def __init__(self, client: RegistryClient, version: str) -> None:
        """`version` is a tag, or `sha256:` and a digest."""
        self._client = client
        self._version = version
        self._n_documents = 0
        self._documents: dict[str, bytes] = {}
        # Digests that an index names: the registry has them among its manifests, not its blobs.
        self._manifests: set[str] = set()

    def open(self, name: str) -> BinaryIO | None:
        """Open a document; None if a registry has none of that name."""
        if name == INDEX:
            return io.BytesIO(self._make_index())
        if not name.startswith(_BLOBS):
            return None
        digest = f"sha256:{name.removeprefix(_BLOBS)}"
        if digest not in self._documents:
            kind = "manifests" if digest in self._manifests else "blobs"
            self._fetch(f"{kind}/{digest}", digest)
        return io.BytesIO(self._documents[digest])

    def _make_index(self) -> bytes:
        expected = self._version if ":" in self._version else None
        digest, media_type = self._fetch(f"manifests/{self._version}", expected)
        if media_type.startswith(_OLD):
            raise RegistryError(
                f"{self._client.endpoint.host}: has only a manifest of the first version of "
                f"{self._client.endpoint.repository}, which has no digests of unpacked layers; "
                "push the image again with a current tool"
            )
        size = len(self._documents[digest])
        root = {"digest": digest, "mediaType": media_type, "size": size}
        return msgspec.json.encode({"schemaVersion": 2, "manifests": [root]})

    def _fetch(self, path: str, expected: str | None) -> tuple[str, str]:
        """Fetch a document; return its digest and media type."""
        self._n_documents += 1
        if self._n_documents > _MOST_DOCUMENTS:
            raise RegistryError(
                f"{self._client.endpoint.host}: the image consists of more than {_MOST_DOCUMENTS} "
                "manifests and configurations; refused"
            )
        data, kind = self._client.read(path, {"Accept": _ACCEPTED}, LARGEST_DOCUMENT)
        digest = f"sha256:{sha256_hex(data)}"
        if expected is not None and digest != expected:
            raise RegistryError(
                f"{self._client.endpoint.host}: {path} has the digest {digest}; expected "
                f"{expected}: it was altered or damaged"
            )
        self._documents[digest] = data
        return digest, self._remember(data, kind)

    def _remember(self, data: bytes, kind: str) -> str:
        """Note the manifests that an index names; return the media type."""
        try:
            found = msgspec.json.decode(data, type=_Manifest)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return kind
        self._manifests.update(one.digest for one in found.manifests)
        return found.media_type or kind
