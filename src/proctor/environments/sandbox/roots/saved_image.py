"""Selects an image in a saved archive, and reads its configuration. Does not unpack layers.

Two formats: manifest.json of `docker save`, and OCI image layouts. Newer Dockers write both; the
first is used then, because it has the tags. Every document is checked against its digest.
"""

import platform
import posixpath
import re
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from proctor.digest import sha256_hex
from proctor.environments.image_config import ImageCheck
from proctor.environments.sandbox.roots.image import is_called
from proctor.environments.sandbox.roots.saved_files import (
    DOCKER,
    INDEX,
    Layer,
    SavedFiles,
    check_digest,
    read_document,
)
from proctor.errors import ImageError
from proctor.sentence import count_of, shown

# The index of an OCI image layout
#
# An index may refer to other indexes; attestations, which are not images, are skipped.


_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")
_INDEX_TYPES = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
_NAMES = ("io.containerd.image.name", "org.opencontainers.image.ref.name")
_ATTESTATION = "vnd.docker.reference.type"
# Indexes may refer to each other in a circle.
_MOST_INDEXES = 100
# All images and indexes that they refer to, each as often as it is named.
_MOST_DESCRIPTORS = 1000


class Platform(msgspec.Struct, frozen=True):
    """Platform of an image; empty if unspecified."""

    os: str = ""
    architecture: str = ""

    def __str__(self) -> str:
        """Return it in Docker's form: linux/amd64."""
        return f"{self.os or 'unknown'}/{self.architecture or 'unknown'}"


class Descriptor(msgspec.Struct, frozen=True, rename="camel"):
    """A reference to a blob."""

    digest: str
    size: int | None = None
    media_type: str = ""
    platform: Platform | None = None
    annotations: dict[str, str] | None = None


class _Index(msgspec.Struct, frozen=True):
    manifests: list[Descriptor] = []


@dataclass(frozen=True, slots=True)
class Candidate:
    """A manifest that the index refers to."""

    descriptor: Descriptor
    names: tuple[str, ...]
    """Names in the index: full names, or only tags."""


def find_candidates(files: SavedFiles) -> list[Candidate]:
    """Return all manifests of images, in order.

    Raises:
        ImageError: an index is missing, damaged or altered, or refers to no image or too many.
    """
    data = read_document(files, INDEX)
    if data is None:
        raise ImageError(f"{INDEX}: is missing; expected an OCI image layout or `docker save`")
    found: list[Candidate] = []
    waiting: deque[Candidate] = deque()
    _add_candidates(waiting, decode(data, _Index, INDEX), (), 0)
    n_seen = n_indexes = 0
    while waiting:
        one = waiting.popleft()
        n_seen += 1
        if one.descriptor.media_type not in _INDEX_TYPES:
            if _ATTESTATION not in (one.descriptor.annotations or {}):
                found.append(one)
            continue
        n_indexes += 1
        if n_indexes > _MOST_INDEXES:
            raise ImageError(f"{INDEX}: refers to more than {_MOST_INDEXES} others; refused")
        _add_candidates(waiting, _read_index(files, one.descriptor), one.names, n_seen)
    if not found:
        raise ImageError(f"{INDEX}: names no image")
    return found


def _add_candidates(
    waiting: deque[Candidate], index: _Index, names: tuple[str, ...], n_seen: int
) -> None:
    """Add what an index refers to; images without names have those of the index."""
    if n_seen + len(waiting) + len(index.manifests) > _MOST_DESCRIPTORS:
        raise ImageError(
            f"{INDEX}: names more than {_MOST_DESCRIPTORS:,} images and indexes; refused"
        )
    waiting.extend(Candidate(below, _names_of(below) or names) for below in index.manifests)


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
    """Return the path of a blob."""
    return f"blobs/sha256/{hex_of(descriptor)}"


def hex_of(descriptor: Descriptor) -> str:
    """Return the digest without its algorithm.

    Raises:
        ImageError: it is not a SHA-256 digest.
    """
    found = _DIGEST.fullmatch(descriptor.digest)
    if found is None:
        raise ImageError(f"{descriptor.digest[:80]!r}: expected sha256: and 64 digits in hex")
    return found[1]


def decode[Document](data: bytes, kind: type[Document], name: str) -> Document:
    """Decode a document.

    Raises:
        ImageError: it has another format.
    """
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ImageError(f"{name}: not a valid document of an image: {error}") from error


_ARCHITECTURES = {
    "x86_64": "amd64",
    "aarch64": "arm64",
    "armv7l": "arm",
    "armv6l": "arm",
    "i686": "386",
    "i386": "386",
}
_HEX_NAME = re.compile(r"(?:blobs/sha256/)?([0-9a-f]{64})(?:\.json)?")
_MOST_LAYERS = 1000


class _Saved(msgspec.Struct, frozen=True, rename="pascal"):
    """One image in manifest.json."""

    config: str
    layers: list[str]
    repo_tags: list[str] | None = None


class _Run(msgspec.Struct, frozen=True, rename="pascal"):
    """Settings for running the image."""

    env: list[str] | None = None
    working_dir: str | None = None
    user: str | None = None
    entrypoint: list[str] | str | None = None
    cmd: list[str] | str | None = None
    healthcheck: ImageCheck | None = None
    shell: list[str] | None = None


class _Layers(msgspec.Struct, frozen=True):
    diff_ids: list[str] = []


class _Config(msgspec.Struct, frozen=True):
    """The configuration of an image; its digest is the image's id."""

    rootfs: _Layers
    architecture: str = ""
    os: str = ""
    config: _Run | None = None


class _Manifest(msgspec.Struct, frozen=True):
    config: Descriptor
    layers: list[Descriptor]


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedImage:
    """An image in a saved archive."""

    form: str
    """docker-save, oci-layout or registry."""
    manifest: str | None
    """`sha256:` and the digest of its manifest; None for docker-save."""
    platform: Platform
    image_id: str
    """`sha256:` and the digest of its configuration."""
    layers: tuple[Layer, ...]
    """Layers, lowest first."""
    env: dict[str, str]
    workdir: str
    user: str
    entrypoint: tuple[str, ...]
    healthcheck: ImageCheck | None
    notes: tuple[str, ...]
    """Messages about settings that are ignored."""


def choose_image(files: SavedFiles, name: str) -> SavedImage:
    """Select the image called `name`; if there is only one, its name does not matter.

    Raises:
        ImageError: none or several match, or a document is missing, damaged or altered.
    """
    data = read_document(files, DOCKER)
    if data is not None:
        images = decode(data, list[_Saved], DOCKER)
        if images:
            return _docker_image(files, _choose_saved(images, name))
    here = this_platform()
    found = [one for one in find_candidates(files) if _fits(_platform_of(files, one), here)]
    if not found:
        raise ImageError(f"{_list_platforms(files, here)}; {_expected_platform(here)}")
    return _layout_image(files, "oci-layout", _choose_candidate(found, name))


def choose_remote(files: SavedFiles, wanted: Platform) -> SavedImage:
    """Select the first image for a platform among those that a name refers to in a registry.

    Raises:
        ImageError: there is none, or a document is missing, damaged or altered.
    """
    for candidate in find_candidates(files):
        if _fits(_platform_of(files, candidate), wanted):
            return _layout_image(files, "registry", candidate)
    raise ImageError(f"{_list_platforms(files, wanted)}; choose one with --platform")


_PLATFORM = re.compile(r"(linux)/([a-z0-9_]+)")


def parse_platform(text: str | None) -> Platform:
    """Parse a platform such as linux/arm64; None is this machine's.

    Raises:
        ImageError: it is not a platform of Linux.
    """
    if text is None:
        return this_platform()
    found = _PLATFORM.fullmatch(text)
    if found is None:
        raise ImageError(f"{text!r}: not a platform; expected linux/amd64 or linux/arm64")
    return Platform(os=found[1], architecture=found[2])


def this_platform() -> Platform:
    """Return the platform of this machine."""
    machine = platform.machine()
    return Platform(os="linux", architecture=_ARCHITECTURES.get(machine, machine))


# docker save


def _choose_saved(images: Sequence[_Saved], name: str) -> _Saved:
    if len(images) == 1:
        return images[0]
    for image in images:
        if any(is_called(name, tag) for tag in image.repo_tags or ()):
            return image
    tags = [", ".join(image.repo_tags or ()) or f"{image.config[:24]}…" for image in images]
    raise ImageError(_several(tags, name))


def _docker_image(files: SavedFiles, saved: _Saved) -> SavedImage:
    for path in (saved.config, *saved.layers):
        if path.startswith("/") or ".." in path.split("/"):
            raise ImageError(f"{DOCKER}: {path!r} leads out of the archive; refused")
    data = read_document(files, saved.config)
    if data is None:
        raise ImageError(f"{DOCKER}: the configuration {saved.config} is missing")
    digest = sha256_hex(data)
    named = _HEX_NAME.fullmatch(saved.config)
    if named:
        _check_document(saved.config, digest, named[1])
    config = decode(data, _Config, saved.config)
    found, here = Platform(os=config.os, architecture=config.architecture), this_platform()
    if not _fits(found, here):
        raise ImageError(f"{DOCKER}: the image is for {found}; {_expected_platform(here)}")
    layers = [(path, _blob_digest(path), None) for path in saved.layers]
    return _image(("docker-save", None), digest, config, layers)


def _blob_digest(path: str) -> str | None:
    """Return the digest in a layer's name; names of older Dockers are not digests of the file."""
    found = re.fullmatch(r"blobs/sha256/([0-9a-f]{64})", path)
    return found[1] if found else None


# OCI image layout


def _choose_candidate(found: Sequence[Candidate], name: str) -> Candidate:
    if len({one.descriptor.digest for one in found}) == 1:
        return found[0]
    tag = name.rpartition(":")[2]
    called = [one for one in found if any(is_called(name, own) for own in one.names)]
    # The layout of a single repository has only tags as names.
    called = called or [one for one in found if tag in one.names]
    if len({one.descriptor.digest for one in called}) == 1:
        return called[0]
    said = [", ".join(one.names) or f"{one.descriptor.digest[:19]}…" for one in found]
    raise ImageError(_several(said, name))


def _platform_of(files: SavedFiles, candidate: Candidate) -> Platform:
    if candidate.descriptor.platform is not None:
        return candidate.descriptor.platform
    config = _read_config(files, _read_manifest(files, candidate))[1]
    return Platform(os=config.os, architecture=config.architecture)


def _layout_image(files: SavedFiles, form: str, candidate: Candidate) -> SavedImage:
    manifest = _read_manifest(files, candidate)
    digest, config = _read_config(files, manifest)
    layers = [(blob_name(one), hex_of(one), one.size) for one in manifest.layers]
    return _image((form, candidate.descriptor.digest), digest, config, layers)


def _read_manifest(files: SavedFiles, candidate: Candidate) -> _Manifest:
    name = blob_name(candidate.descriptor)
    return decode(_read_blob(files, candidate.descriptor), _Manifest, name)


def _read_config(files: SavedFiles, manifest: _Manifest) -> tuple[str, _Config]:
    data = _read_blob(files, manifest.config)
    return sha256_hex(data), decode(data, _Config, blob_name(manifest.config))


def _read_blob(files: SavedFiles, descriptor: Descriptor) -> bytes:
    name = blob_name(descriptor)
    data = read_document(files, name)
    if data is None:
        raise ImageError(f"{name}: is missing; save the image again")
    _check_document(name, sha256_hex(data), hex_of(descriptor))
    return data


def _check_document(name: str, found: str, expected: str) -> None:
    try:
        check_digest(found, expected)
    except ImageError as error:
        raise ImageError(f"{name}: {error}") from error


def _list_platforms(files: SavedFiles, wanted: Platform) -> str:
    there = sorted({str(_platform_of(files, one)) for one in find_candidates(files)})
    return f"has no image for {wanted}, but for {', '.join(there)}"


# Platforms, in both forms


def _fits(found: Platform, wanted: Platform) -> bool:
    """Whether a platform is the wanted one; unspecified fields match."""
    return found.os in ("", wanted.os) and found.architecture in ("", wanted.architecture)


def _expected_platform(wanted: Platform) -> str:
    return f"expected {wanted}: `docker pull --platform {wanted}`"


def _several(there: Sequence[str], name: str) -> str:
    return (
        f"contains {count_of(len(there), 'image')}, and none or several are called {name}: "
        f"{'; '.join(there)}; import it under one of these names"
    )


def _image(
    origin: tuple[str, str | None],
    digest: str,
    config: _Config,
    layers: Sequence[tuple[str, str | None, int | None]],
) -> SavedImage:
    diff_ids = config.rootfs.diff_ids
    if len(diff_ids) != len(layers) or not layers:
        raise ImageError(
            f"has {count_of(len(layers), 'layer')}, but its configuration names "
            f"{len(diff_ids)}; expected an image of a root file system"
        )
    if len(layers) > _MOST_LAYERS:
        raise ImageError(f"has {len(layers):,} layers; expected at most {_MOST_LAYERS:,}")
    run = config.config or _Run()
    texts = run.env or ()
    pairs = (_clean("Env", text).partition("=") for text in texts)
    text = _clean("User", run.user)
    if text and len(text.split()) != 1:
        raise ImageError(f"its User is {text!r}; expected the name or number of one user")
    check = run.healthcheck
    if check is None or not check.test:
        check_of = None
    else:
        test = _words("Healthcheck", check.test)
        if test[0] == "CMD-SHELL" and run.shell:
            test = ("CMD", *_words("Shell", run.shell), *test[1:])
        check_of = msgspec.structs.replace(check, test=test)
    return SavedImage(
        form=origin[0],
        manifest=origin[1],
        platform=Platform(os=config.os, architecture=config.architecture),
        image_id=f"sha256:{digest}",
        layers=tuple(
            Layer(name=name, digest=blob, size=size, diff_id=hex_of(Descriptor(diff_id)))
            for (name, blob, size), diff_id in zip(layers, diff_ids, strict=True)
        ),
        env={name: value for name, _, value in pairs if name},
        workdir=posixpath.normpath(posixpath.join("/", _clean("WorkingDir", run.working_dir))),
        user=text or "root",
        entrypoint=_words("Entrypoint", run.entrypoint),
        healthcheck=check_of,
        notes=(f"its Cmd is not run: {shown(run.cmd)}",) if run.cmd else (),
    )


def _words(name: str, value: Sequence[str] | str | None) -> tuple[str, ...]:
    words = (value,) if isinstance(value, str) else value or ()
    return tuple(_clean(name, word) for word in words)


def _clean(word: str, text: str | None) -> str:
    if "\0" in (text or ""):
        raise ImageError(f"its {word} has a zero byte: {shown(text)}; refused")
    return text or ""
