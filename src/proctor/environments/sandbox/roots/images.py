"""The store of images that were imported or pulled: `proctor image`.

    <cache>/images/                mode 0700, because setuid bits are kept
      lock                         locked while an image is added or removed
      names/<slug>.json            a name, with the digest and settings of its image
      sha256/<digest>/rootfs/      files of an imported image; never changed
      sha256/<digest>/image.json   an image of a registry, which consists of layers
      sha256/<digest>/lease        locked by every process that uses it; its time: the last use
      layers/<chain>/files/        a layer, as a lower directory of an overlay; never changed
      layers/<chain>/layer.json    its size, and what was left out
      downloads/<digest>.part      a layer that is being downloaded
      incoming-<random>/           an image that is being added

A name is written after its files are complete. The digest of an imported image covers the tree, not
the archive: the same files in another archive are the same image. That of a pulled image is the
digest of its manifest. A layer's chain is the digest of the layer and of all below it: images that
begin with the same layers share them.
"""

import errno
import os
import re
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from proctor.digest import sha256_hex
from proctor.environments.sandbox.locks import claimed, hold, locked, make_private
from proctor.environments.sandbox.roots.image import Image, StoredImage, normalise_name
from proctor.environments.sandbox.roots.image_source import put_source, reason_not_put
from proctor.environments.sandbox.roots.layers import discard, measure
from proctor.environments.sandbox.roots.unpacking import load_facts
from proctor.environments.sandbox.scratch import cache_directory
from proctor.errors import ImageError
from proctor.files import read_small, write_atomic
from proctor.sentence import reason_of

# `--base host`, and Docker's name for an empty image.
_RESERVED = ("host:latest", "scratch:latest")
_IMAGE = "image.json"
# How long what arrived of a layer is kept for the next pull.
_PART_SECONDS = 7 * 24 * 3600


@dataclass(frozen=True, slots=True)
class Known:
    """Settings given at import, which override those of the image."""

    env: Mapping[str, str]
    workdir: str | None = None
    user: str | None = None
    builder: str | None = None
    """See Image."""


@dataclass(frozen=True, slots=True)
class Removed:
    """An image that was removed."""

    image: Image
    n_bytes: int
    """Bytes that were freed; 0 if another name has the same image."""


@dataclass(frozen=True, slots=True)
class Imported:
    """Result of an import."""

    image: Image
    is_new: bool
    """False if the same image already had this name."""


class ImageStore:
    """The images of one cache."""

    def __init__(self, cache: Path | None = None) -> None:
        self._root = (cache or cache_directory(os.environ)) / "images"

    def find(self, name: str) -> Image | None:
        """Find the image of a name; None if there is none."""
        path = self._name_file(normalise_name(name))
        try:
            return _read(path)
        except FileNotFoundError:
            return None

    def load_base(self, name: str) -> Image:
        """Load the image that --base names.

        Raises:
            ImageError: the name is invalid or unknown, or its file cannot be read.
        """
        image = self.find(name)
        if image is None:
            raise ImageError(
                f"--base {name}: no image of that name; `proctor image pull {name}` fetches it, "
                f"`proctor image import {name} TAR` imports a file, and --base host needs neither"
            )
        return image

    def list_images(self) -> list[Image]:
        """List all images, sorted by name.

        Raises:
            ImageError: one cannot be read.
        """
        try:
            images = []
            for path in (self._root / "names").glob("*.json"):
                # Another process may be removing it.
                with suppress(FileNotFoundError):
                    images.append(_read(path))
            return sorted(images, key=lambda image: image.name)
        except OSError as error:
            raise ImageError(f"{self._root}: cannot be read: {reason_of(error)}") from error

    def lowers(self, image: Image) -> tuple[Path, ...]:
        """Return the directories of an image's files, topmost first.

        They stay until this process ends.

        Raises:
            ImageError: they no longer exist.
        """
        home = self._home(image.digest)
        # Before it is looked at, so that it cannot be removed meanwhile.
        self.hold(image)
        found = tuple(self.layer(chain) / "files" for chain in reversed(image.layers))
        found = found or (home / "rootfs",)
        if not all(one.is_dir() for one in (home, *found)):
            again = "pull" if image.layers else "import"
            raise ImageError(
                f"{home}: the files of {image.name} no longer exist; {again} it again: "
                f"`proctor image prune {image.name}`, then `proctor image {again}`"
            )
        return found

    def hold(self, image: Image) -> bool:
        """Keep an image until this process ends; return False if its files are gone.

        Raises:
            ImageError: it cannot be locked.
        """
        lease = self._home(image.digest) / "lease"
        try:
            if hold(lease):
                os.utime(lease)
        except ImageError:
            if lease.parent.is_dir():
                raise
            return False
        return True

    def mark_used(self, image: Image) -> bool:
        """Note that a job begins to use an image; return False if its files are gone."""
        try:
            (self._home(image.digest) / "lease").touch(mode=0o600)
        except FileNotFoundError:
            return False
        return True

    def rootfs(self, image: Image) -> Path:
        """Return the directory of an imported image's files, which stay until this process ends."""
        return self.lowers(image)[0]

    def layer(self, chain: str) -> Path:
        """Return the directory of a layer."""
        return self._root / "layers" / chain

    @property
    def cache(self) -> Path:
        """The cache that the store is part of."""
        return self._root.parent

    @property
    def downloads(self) -> Path:
        """Directory of layers that are being downloaded."""
        return self._root / "downloads"

    @contextmanager
    def changing(self, stopped: threading.Event | None = None) -> Iterator[Path]:
        """Lock the store against other changes; yield an empty directory, deleted afterwards."""
        for name in ("", "names", "sha256", "layers", "downloads"):
            make_private(self._root / name)
        with locked(self._root / "lock", stopped):
            # Parts of layers stay for a week: the next pull of the same image continues with them.
            for left in self._root.glob("incoming-*"):
                discard(left)
            oldest = time.time() - _PART_SECONDS
            for part in self.downloads.glob("*.part"):
                if part.lstat().st_mtime < oldest:
                    part.unlink()
            incoming = Path(tempfile.mkdtemp(prefix="incoming-", dir=self._root))
            try:
                yield incoming
            finally:
                discard(incoming)

    @contextmanager
    def pruning(self, *, waits: bool) -> Iterator[bool]:
        """Lock the store to evict images; yield False if another process is changing it.

        `waits`: until it has ended instead.
        """
        lock = self._root / "lock"
        if not waits or not self._root.is_dir():
            with claimed(lock) as is_free:
                yield is_free
        else:
            with locked(lock):
                yield True

    def import_image(
        self, name: str, source: Path, known: Known, *, now: datetime, replace: bool = False
    ) -> Imported:
        """Import an archive, a directory or a saved image under a name.

        Raises:
            ImageError: invalid name, unusable source, no space, or another image has the name.
        """
        name = check_free_for_use(normalise_name(name))
        try:
            source.stat()
        except FileNotFoundError as error:
            raise ImageError(
                f"{source}: does not exist; expected a tar archive or a directory"
            ) from error
        except OSError as error:
            raise ImageError(f"{source}: cannot be read: {reason_of(error)}") from error
        if source.is_dir() and self._root.resolve().is_relative_to(source.resolve()):
            raise ImageError(f"{source}: contains the image store itself, {self._root}; refused")
        with self.changing() as incoming:
            try:
                (incoming / "rootfs").mkdir()
                put = put_source(source, incoming / "rootfs", name)
                saved = put.saved
                image = Image(
                    name=name,
                    digest=put.tree.finish(),
                    size=put.tree.size,
                    n_entries=len(put.tree),
                    imported_at=now,
                    source=put.form,
                    image_id=saved.image_id if saved else None,
                    env={**(saved.env if saved else {}), **known.env},
                    workdir=known.workdir or (saved.workdir if saved else "/"),
                    user=known.user or (saved.user if saved else "root"),
                    builder=known.builder,
                    disk_size=measure(incoming / "rootfs"),
                    entrypoint=saved.entrypoint if saved else (),
                    healthcheck=saved.healthcheck if saved else None,
                    notes=put.notes,
                )
                return self._give_name(incoming, image, replace=replace)
            except OSError as error:
                raise ImageError(explain(source, self._root, error)) from error

    def receive(self, image: Image, archive: Path) -> None:
        """Store an imported image of another machine, from an archive of its files.

        Raises:
            ImageError: the archive is not that of the image, or another image has its name.
        """
        with self.changing() as incoming:
            try:
                (incoming / "rootfs").mkdir()
                found = put_source(archive, incoming / "rootfs", image.name).tree.finish()
                if found != image.digest:
                    raise ImageError(
                        f"{image.name}: what arrived is sha256:{found[:12]}…, and was "
                        f"sha256:{image.digest[:12]}… where it came from; import it here: "
                        f"`proctor image import {image.name} TAR`"
                    )
                self._give_name(incoming, image, replace=False)
            except OSError as error:
                raise ImageError(explain(archive, self._root, error)) from error

    def name_pulled(self, incoming: Path, image: Image) -> None:
        """Give an image of which all layers are there its name; the caller changes the store."""
        home = self._home(image.digest)
        if not (home / _IMAGE).exists():
            fresh = incoming / "home"
            fresh.mkdir()
            (fresh / _IMAGE).write_bytes(msgspec.json.encode(image))
            fresh.rename(home)
        (home / "lease").touch(mode=0o600)
        write_atomic(self._name_file(image.name), msgspec.json.encode(image))

    def list_stored(self, images: Iterable[Image] | None = None) -> list[StoredImage]:
        """List the files of these images, or of all, with their sizes on the disk."""
        named: dict[str, list[Image]] = {}
        for image in self.list_images() if images is None else images:
            named.setdefault(image.digest, []).append(image)
        chains = {chain for same in named.values() for chain in same[0].layers}
        sizes = {chain: self._size_of(chain) for chain in chains}
        return [self._describe(digest, same, sizes) for digest, same in named.items()]

    def _describe(self, digest: str, images: list[Image], sizes: Mapping[str, int]) -> StoredImage:
        home, first = self._home(digest), images[0]
        lease = home / "lease"
        try:
            used = (lease if lease.exists() else home).stat().st_mtime
        except FileNotFoundError:
            used = 0
        own = {chain: sizes[chain] for chain in first.layers}
        with claimed(lease) as is_free:
            return StoredImage(
                digest=digest,
                names=tuple(image.name for image in images),
                sizes=own or {digest: first.size if first.disk_size is None else first.disk_size},
                used_at=datetime.fromtimestamp(used, UTC),
                is_used=not is_free,
                is_kept=any(image.is_kept for image in images),
            )

    def _size_of(self, chain: str) -> int:
        try:
            facts = load_facts(self.layer(chain))
        except ImageError:
            # Somebody deleted files of the store by hand.
            return 0
        return facts.size if facts.disk_size is None else facts.disk_size

    def evict(self, stored: StoredImage) -> bool:
        """Remove an image with all its names; return False if a process uses it.

        For callers that change the store, and sweep it afterwards.
        """
        home = self._home(stored.digest)
        if home.is_dir() and not (home / "lease").exists():
            # Or a process that begins to use it now would not be noticed.
            (home / "lease").touch(mode=0o600)
        with claimed(home / "lease") as is_free:
            if not is_free:
                return False
            # Names first: one that is left would stand for files that are gone.
            for name in stored.names:
                self._name_file(name).unlink(missing_ok=True)
            if home.exists():
                self._throw_away(home)
        return True

    def sweep(self) -> None:
        """Delete pulled images without a name, and layers of no image.

        For callers that change the store. What a running process uses stays.
        """
        named = {image.digest for image in self.list_images()}
        used: set[str] = set()
        for path in sorted((self._root / "sha256").glob(f"*/{_IMAGE}")):
            if path.parent.name in named or not self._is_dropped(path.parent.name):
                used.update(_read(path).layers)
        for layer in sorted((self._root / "layers").glob("*")):
            if layer.name not in used:
                self._throw_away(layer)

    def remove(self, name: str) -> Removed:
        """Remove a name, and its files if no other name has them.

        Raises:
            ImageError: there is no such name, or a running process uses it.
        """
        name = normalise_name(name)
        if not self._root.is_dir():
            raise ImageError(_no_such(name, []))
        with locked(self._root / "lock"):
            image = self.find(name)
            if image is None:
                raise ImageError(_no_such(name, [found.name for found in self.list_images()]))
            (stored,) = (one for one in self.list_stored() if one.digest == image.digest)
            if stored.names == (name,):
                self._drop(image)
            self._name_file(name).unlink()
            self.sweep()
            return Removed(image, self._find_freed(stored))

    def reap(self, *, dry_run: bool = False) -> list[Path]:
        """Remove what killed imports left, unless one is running; return the directories."""
        with claimed(self._root / "lock") as is_free:
            left = sorted(self._root.glob("incoming-*")) if is_free else []
            if not dry_run:
                for directory in left:
                    discard(directory)
            return left

    def _find_freed(self, stored: StoredImage) -> int:
        """Return how many bytes of an image were deleted."""
        if self._home(stored.digest).exists():
            return 0
        return sum(size for name, size in stored.sizes.items() if not self.layer(name).exists())

    def _drop(self, image: Image) -> None:
        if not self._is_dropped(image.digest):
            raise ImageError(f"{image.name}: a run uses it; remove it when that has ended")

    def _is_dropped(self, digest: str) -> bool:
        """Delete the files of an image, but not its layers; return False if a process uses them."""
        home = self._home(digest)
        with claimed(home / "lease") as is_free:
            if is_free and home.exists():
                self._throw_away(home)
        return is_free

    def _throw_away(self, directory: Path) -> None:
        """Delete a directory; renamed first, so that it disappears atomically."""
        leaving = self._root / f"incoming-{directory.name}"
        if leaving.exists():
            # A process that removed it before was killed.
            discard(leaving)
        directory.rename(leaving)
        discard(leaving)

    def _home(self, digest: str) -> Path:
        return self._root / "sha256" / digest

    def _give_name(self, incoming: Path, image: Image, *, replace: bool) -> Imported:
        old = self.find(image.name)
        if old is not None and _is_same(old, image):
            return Imported(old, is_new=False)
        if old is not None and not replace:
            raise ImageError(
                f"{image.name}: another image has this name (sha256:{old.digest[:12]}…, this "
                f"one is sha256:{image.digest[:12]}…); pass --replace to replace it"
            )
        home = self._home(image.digest)
        if not home.exists():
            # The directory itself is deleted by the caller.
            (incoming / "home").mkdir()
            (incoming / "rootfs").rename(incoming / "home" / "rootfs")
            (incoming / "home").rename(home)
        (home / "lease").touch(mode=0o600)
        write_atomic(self._name_file(image.name), msgspec.json.encode(image))
        if image.builder is not None:
            # Its build is for a trial of this process: nobody may remove it before it starts.
            self.hold(image)
        return Imported(image, is_new=True)

    def _name_file(self, name: str) -> Path:
        # Readable for people; the digest makes it unique.
        readable = re.sub(r"[^A-Za-z0-9.-]+", "_", name)[:100]
        return self._root / "names" / f"{readable}-{sha256_hex(name.encode())[:16]}.json"


def _read(path: Path) -> Image:
    try:
        return msgspec.json.decode(read_small(str(path)), type=Image)
    except msgspec.DecodeError as error:
        raise ImageError(f"{path}: not what `proctor image import` writes: {error}") from error
    except PermissionError as error:
        raise ImageError(f"{path}: cannot be read: {reason_of(error)}") from error


def _is_same(one: Image, other: Image) -> bool:
    names = ("digest", "image_id", "env", "workdir", "user", "entrypoint", "healthcheck")
    return all(getattr(one, name) == getattr(other, name) for name in names)


def check_free_for_use(name: str) -> str:
    """Return a normalised name, if an image may have it.

    Raises:
        ImageError: it has a meaning of its own.
    """
    if name in _RESERVED:
        raise ImageError(f"{name.partition(':')[0]!r} is reserved; choose another name")
    return name


def explain(source: Path, store: Path, error: OSError) -> str:
    """Return the message for a change of the store that failed with `error`."""
    text = reason_not_put(source, store, error)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        text += "; free some space, or set PROCTOR_CACHE to another directory"
    return text


def _no_such(name: str, there: Sequence[str]) -> str:
    known = f"there are {', '.join(there)}" if there else "the image store is empty"
    return f"{name}: no image of that name; {known}"
