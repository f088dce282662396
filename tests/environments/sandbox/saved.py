"""Images with their layers, as `docker save` and OCI tools write them; good ones, to be spoilt."""

import gzip
import io
import json
import platform
import tarfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from backports import zstd

from proctor.digest import sha256_hex
from tests.environments.sandbox.trees import entry
from tests.task.trees import write

ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
PACK: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    "gzip": partial(gzip.compress, mtime=0),
    "zstd": zstd.compress,
}

type Member = tarfile.TarInfo | tuple[str, str]
"""An entry, or the path and the words of a file."""


def layer(*members: Member) -> bytes:
    """The tar of a layer."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        for member in members:
            if isinstance(member, tuple):
                content = member[1].encode()
                tar.addfile(entry(member[0], size=len(content)), io.BytesIO(content))
            else:
                tar.addfile(member, io.BytesIO(bytes(member.size)) if member.isreg() else None)
    return made.getvalue()


def directory(name: str, **facts: int) -> tarfile.TarInfo:
    return entry(name, tarfile.DIRTYPE, "", **facts)


def link(name: str, to: str) -> tarfile.TarInfo:
    return entry(name, tarfile.SYMTYPE, to)


def hard(name: str, to: str) -> tarfile.TarInfo:
    return entry(name, tarfile.LNKTYPE, to)


@dataclass
class Saved:
    """One image; its layers as tars."""

    layers: tuple[bytes, ...] = field(default_factory=lambda: (layer(("usr/x", "x")),))
    packing: str = ""
    run: Mapping[str, object] = field(default_factory=dict)
    architecture: str = ARCHITECTURE
    tags: tuple[str, ...] = ()

    @property
    def config(self) -> bytes:
        diff_ids = [f"sha256:{sha256_hex(one)}" for one in self.layers]
        rootfs = {"type": "layers", "diff_ids": diff_ids}
        facts = {"architecture": self.architecture, "os": "linux"}
        return json.dumps({**facts, "config": self.run, "rootfs": rootfs}).encode()

    @property
    def image_id(self) -> str:
        return f"sha256:{sha256_hex(self.config)}"

    @property
    def packed(self) -> list[bytes]:
        return [PACK[self.packing](one) for one in self.layers]


def docker_files(*images: Saved) -> dict[str, bytes]:
    """What older Dockers save."""
    files: dict[str, bytes] = {}
    manifest = []
    for image in images:
        name = f"{image.image_id[7:]}.json"
        files[name] = image.config
        layers = [f"{sha256_hex(one)[:12]}/layer.tar" for one in image.packed]
        files |= dict(zip(layers, image.packed, strict=True))
        manifest.append({"Config": name, "RepoTags": list(image.tags) or None, "Layers": layers})
    return {**files, "manifest.json": json.dumps(manifest).encode()}


def layout_files(*images: Saved, nested: bool = False) -> dict[str, bytes]:
    """An OCI image layout; nested: its index leads to another one."""
    files: dict[str, bytes] = {"oci-layout": b'{"imageLayoutVersion": "1.0.0"}'}
    manifests = [_put_manifest(files, image) for image in images]
    if nested:
        inner = _put(files, json.dumps({"manifests": manifests}).encode(), INDEX)
        manifests = [inner]
    files["index.json"] = json.dumps({"schemaVersion": 2, "manifests": manifests}).encode()
    return files


def both_files(*images: Saved) -> dict[str, bytes]:
    """What newer Dockers save: a layout, and a manifest.json that leads to its blobs."""
    manifest = [
        {
            "Config": f"blobs/sha256/{image.image_id[7:]}",
            "RepoTags": list(image.tags),
            "Layers": [f"blobs/sha256/{sha256_hex(one)}" for one in image.packed],
        }
        for image in images
    ]
    return {**layout_files(*images), "manifest.json": json.dumps(manifest).encode()}


def _put(files: dict[str, bytes], data: bytes, media_type: str) -> dict[str, object]:
    files[f"blobs/sha256/{sha256_hex(data)}"] = data
    return {"mediaType": media_type, "digest": f"sha256:{sha256_hex(data)}", "size": len(data)}


def _put_manifest(files: dict[str, bytes], image: Saved) -> dict[str, object]:
    config = _put(files, image.config, "application/vnd.oci.image.config.v1+json")
    kind = "application/vnd.oci.image.layer.v1.tar" + (f"+{image.packing}" if image.packing else "")
    layers = [_put(files, one, kind) for one in image.packed]
    data = json.dumps({"schemaVersion": 2, "config": config, "layers": layers}).encode()
    described = _put(files, data, MANIFEST)
    described["platform"] = {"os": "linux", "architecture": image.architecture}
    if image.tags:
        described["annotations"] = {"org.opencontainers.image.ref.name": image.tags[0]}
    return described


def as_tar(path: Path, files: Mapping[str, bytes], mode: str = "w") -> Path:
    with tarfile.open(path, mode) as tar:  # type: ignore[call-overload]
        for name, data in files.items():
            tar.addfile(entry(name, size=len(data)), io.BytesIO(data))
    return path


def as_directory(path: Path, files: Mapping[str, bytes]) -> Path:
    for name, data in files.items():
        place = write(path, {name: ""}) / name
        place.write_bytes(data)
    return path
