"""Removes the least recently used images and layers, so that the store stays within its limit.

Only what can be had again without a person: pulled images, images that buildah or docker built, and
layers of Dockerfiles. Imported images stay, and do not count. What a process uses or builds stays
too, and no layer is removed before those on top of it.
"""

import os
import re
from collections.abc import Mapping, Set
from dataclasses import dataclass
from datetime import datetime

from proctor.environments.sandbox.roots.image import StoredImage
from proctor.environments.sandbox.roots.images import ImageStore
from proctor.environments.sandbox.roots.layers import LayerStore, StoredLayer
from proctor.errors import ImageError

LIMIT = "PROCTOR_STORE_LIMIT"
"""Variable with the limit."""
# Its name when layers were all that was limited.
_OLD_LIMIT = "PROCTOR_LAYERS_LIMIT"
_USUAL_LIMIT = 50 * 1000**3
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kMGT]?)B?", re.IGNORECASE)
_UNITS = {"": 1, "k": 1000, "m": 1000**2, "g": 1000**3, "t": 1000**4}
_NONE: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Pruned:
    """What was removed."""

    images: tuple[StoredImage, ...]
    layers: tuple[StoredLayer, ...]
    n_bytes: int
    """Bytes that were freed on the disk."""


NOTHING_PRUNED = Pruned((), (), 0)


def parse_size(text: str) -> int:
    """Parse a size such as 20GB, 500 MB or 0; a GB has 10^9 bytes.

    Raises:
        ImageError: it is not one.
    """
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise ImageError(f"{text!r}: expected a size such as 20GB, 500MB or 0")
    return int(float(found[1]) * _UNITS[found[2].lower()])


def store_limit(environ: Mapping[str, str] = os.environ) -> int:
    """Return how many bytes images and layers that can be removed may have.

    Raises:
        ImageError: $PROCTOR_STORE_LIMIT, or $PROCTOR_LAYERS_LIMIT, is not a size.
    """
    name = LIMIT if environ.get(LIMIT) else _OLD_LIMIT
    text = environ.get(name, "")
    try:
        return parse_size(text) if text else _USUAL_LIMIT
    except ImageError as error:
        raise ImageError(f"{name}={error}") from error


def measure_store(images: list[StoredImage], layers: list[StoredLayer]) -> int:
    """Return the bytes on the disk; layers that images share count once."""
    sizes = {name: size for image in images for name, size in image.sizes.items()}
    return sum(sizes.values()) + sum(layer.size for layer in layers)


def prune_store(
    images: ImageStore, layers: LayerStore, limit: int, *, waits: bool = False
) -> Pruned:
    """Remove what was not used for the longest time, until the rest has at most `limit` bytes.

    If another process is changing the images, nothing is removed, because it does so itself when it
    has ended; `waits`: it is waited for.
    """
    with images.pruning(waits=waits) as is_free:
        return prune(images, layers, limit) if is_free else NOTHING_PRUNED


def prune(images: ImageStore, layers: LayerStore, limit: int, keep: Set[str] = _NONE) -> Pruned:
    """See prune_store; for callers that change the store. Images in `keep`, by digest, stay."""
    pruning = _Pruning(images, layers, keep)
    before = pruning.size
    try:
        while (found := pruning.find_lost() or pruning.find_oldest(limit)) is not None:
            pruning.remove(found)
    finally:
        if pruning.gone_images:
            images.sweep()
    return Pruned(tuple(pruning.gone_images), tuple(pruning.gone_layers), before - pruning.size)


class _Pruning:
    """What is left in the store while it is pruned."""

    def __init__(self, images: ImageStore, layers: LayerStore, keep: Set[str]) -> None:
        self._image_store = images
        self._layer_store = layers
        self._images = [one for one in images.list_stored() if not one.is_kept]
        self._layers = layers.list_layers()
        # Digests and keys of what cannot be removed now.
        self._stuck = set(keep)
        self.gone_images: list[StoredImage] = []
        self.gone_layers: list[StoredLayer] = []

    @property
    def size(self) -> int:
        """Bytes that count towards the limit."""
        return measure_store(self._images, self._layers)

    def find_lost(self) -> StoredLayer | None:
        """Find a layer whose parent is gone: it can never be used again, whatever the limit."""
        ids = {one.id for one in self._layers}
        lost = (one for one in self._find_tops() if one.parent is not None)
        return next((one for one in lost if one.parent not in ids), None)

    def find_oldest(self, limit: int) -> StoredImage | StoredLayer | None:
        """Find what was not used for the longest time; None if the limit is kept."""
        if self.size <= limit:
            return None
        oldest: list[tuple[datetime, int, StoredImage | StoredLayer]]
        # Layers before the image below them, which was used when they were.
        oldest = [(layer.used_at, 0, layer) for layer in self._find_tops()]
        oldest += [
            (self._find_use(image), 1, image)
            for image in self._images
            if image.digest not in self._stuck
        ]
        return min(oldest, key=lambda one: one[:2], default=(None, 0, None))[2]

    def _find_tops(self) -> list[StoredLayer]:
        """Return the layers with none on top of them."""
        parents = {one.parent for one in self._layers} - {""}
        return [one for one in self._layers if one.id not in parents and one.key not in self._stuck]

    def _find_use(self, image: StoredImage) -> datetime:
        """Return when an image, or a layer on it, was last used."""
        suffix = f"@sha256:{image.digest}"
        above = [layer.used_at for layer in self._layers if layer.base.endswith(suffix)]
        return max([image.used_at, *above])

    def remove(self, found: StoredImage | StoredLayer) -> None:
        """Remove it, unless a process uses it."""
        if isinstance(found, StoredImage):
            if self._image_store.evict(found):
                self._images.remove(found)
                self.gone_images.append(found)
            else:
                self._stuck.add(found.digest)
        elif self._layer_store.remove(found.key):
            self._layers.remove(found)
            self.gone_layers.append(found)
        else:
            self._stuck.add(found.key)
