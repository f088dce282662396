"""Pulls images of registries into the store.

    resolve     find the manifest for a platform, at a mirror or at the registry itself
    download    the layers that the store lacks, several at once
    unpack      each on top of those below it, while the next ones arrive
    name        give the image its name; only then is it there
    prune       remove what was not used for the longest time, if the store exceeds its limit

The image is known by the digest of its manifest. If a connection breaks, what has arrived is kept
for the next pull; if something is not what its digest says, or is refused, nothing is kept.
"""

import shutil
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import msgspec

from proctor.digest import sha256_hex
from proctor.environments.sandbox.roots.image import Image, normalise_name
from proctor.environments.sandbox.roots.image_tar import most_unpacked
from proctor.environments.sandbox.roots.images import ImageStore, check_free_for_use, explain
from proctor.environments.sandbox.roots.layers import LayerStore, discard
from proctor.environments.sandbox.roots.prune import NOTHING_PRUNED, Pruned, prune, store_limit
from proctor.environments.sandbox.roots.registry.blobs import Blob, Downloads, Meter, RemoteFiles
from proctor.environments.sandbox.roots.registry.client import (
    Patience,
    RegistryClient,
    StoppedError,
)
from proctor.environments.sandbox.roots.registry.configuration import (
    Reference,
    load_configuration,
    parse_reference,
)
from proctor.environments.sandbox.roots.saved_files import Layer
from proctor.environments.sandbox.roots.saved_image import (
    Platform,
    SavedImage,
    choose_remote,
    parse_platform,
    this_platform,
)
from proctor.environments.sandbox.roots.unpacking import (
    FACTS,
    LayerFacts,
    Unpacker,
    UnpackOrder,
    load_facts,
)
from proctor.errors import ImageError, RegistryError, UnreachableRegistryError
from proctor.sentence import count_of, render_size

# Overlayfs takes 500 lower directories; no builder makes as many.
_MOST_LAYERS = 250
_PATIENCE = Patience()
_POLL_SECONDS = 0.2


def show_nothing(_done: int, _total: int) -> None:
    """Show no progress."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PullOptions:
    """How to pull."""

    env: Mapping[str, str]
    """Variables of this process, which say where configurations are."""
    now: datetime
    platform: str | None = None
    """As in linux/arm64; None: this machine's."""
    name: str | None = None
    """Name in the store; None: that of the image."""
    show: Callable[[int, int], None] = show_nothing
    """Called with the bytes that arrived, and the total."""
    stopped: threading.Event | None = None
    """Ends the pull when it is set."""
    is_held: bool = False
    """Keep the image until this process ends: nobody removes it before it is used."""
    keep: frozenset[str] = frozenset()
    """Digests of other images that are not removed to stay within the limit."""


@dataclass(frozen=True, slots=True)
class Pulled:
    """Result of a pull."""

    image: Image
    before: Image | None
    """The image that had the name before."""
    n_layers: int
    """Number of layers that were downloaded."""
    n_bytes: int
    """Bytes of these layers, compressed."""
    pruned: Pruned = NOTHING_PRUNED
    """What was removed to stay within the limit."""

    @property
    def is_new(self) -> bool:
        """Whether the name did not have this image before."""
        return self.before is None or self.before.digest != self.image.digest


def pull_image(store: ImageStore, reference: str, options: PullOptions) -> Pulled:
    """Pull an image into the store; layers that are there are not downloaded again.

    Raises:
        RegistryError: the registry cannot be reached, refuses, or sends something else.
        ImageError: the name or the image is invalid, or cannot be stored.
        StoppedError: it was stopped.
    """
    limit = store_limit(options.env)
    wanted = parse_reference(reference)
    name = check_free_for_use(normalise_name(options.name or wanted.name))
    platform = parse_platform(options.platform)
    with _resolved(wanted, platform, options) as (client, found):
        pull = _Pull(store, client, found, options)
        try:
            return pull.run(name, wanted.name, str(platform), limit)
        except InterruptedError as error:
            raise StoppedError from error
        except ImageError as error:
            raise type(error)(f"{wanted.name}: {error}") from error
        except OSError as error:
            raise ImageError(explain(store.downloads, store.downloads.parent, error)) from error


@contextmanager
def _resolved(
    wanted: Reference, platform: Platform, options: PullOptions
) -> Iterator[tuple[RegistryClient, SavedImage]]:
    """Find the image at the first endpoint that has it."""
    endpoints = load_configuration(options.env).find_endpoints(wanted)
    failed: list[str] = []
    for endpoint in endpoints:
        with ExitStack() as stack:
            try:
                client = stack.enter_context(RegistryClient(endpoint, options.env, _PATIENCE))
                stack.enter_context(_stopped_by(options.stopped, client))
                found = choose_remote(RemoteFiles(client, wanted.version), platform)
            except RegistryError as error:
                failed.append(str(error))
                if endpoint is endpoints[-1]:
                    raise type(error)(f"{wanted.name}: {'; '.join(failed)}") from error
                continue
            except ImageError as error:
                raise ImageError(f"{wanted.name}: {error}") from error
            yield client, found
            return


@contextmanager
def _stopped_by(stopped: threading.Event | None, client: RegistryClient) -> Iterator[None]:
    """Stop the client when the event is set, whatever it waits for."""
    if stopped is None:
        yield
        return
    is_done = threading.Event()

    def watch() -> None:
        while not is_done.wait(_POLL_SECONDS):
            if stopped.is_set():
                client.stop()
                return

    thread = threading.Thread(target=watch, name="pull-watch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_done.set()
        thread.join()


class _Pull:
    def __init__(
        self, store: ImageStore, client: RegistryClient, found: SavedImage, options: PullOptions
    ) -> None:
        self._store = store
        self._client = client
        self._found = found
        self._options = options
        self._made: list[str] = []

    def run(self, name: str, reference: str, platform: str, limit: int) -> Pulled:
        store, options = self._store, self._options
        found = self._found
        layers = list(zip(_chains(found), found.layers, strict=True))
        if len(layers) > _MOST_LAYERS:
            raise ImageError(f"has {len(layers)} layers; expected at most {_MOST_LAYERS}")
        with store.changing(options.stopped) as incoming:
            missing = find_missing_layers(store, found)
            blobs = {blob.digest: blob for blob in missing.values()}
            try:
                self._fetch(incoming, layers, list(blobs.values()))
            except (UnreachableRegistryError, InterruptedError, StoppedError, KeyboardInterrupt):
                # The next pull continues with what has arrived.
                raise
            except BaseException:
                for chain in self._made:
                    discard(self._store.layer(chain))
                self._drop(blobs)
                raise
            facts = {chain: load_facts(store.layer(chain)) for chain, _ in layers}
            image = self._describe(name, reference, platform, facts)
            before = store.find(name)
            store.name_pulled(incoming, image)
            # Also those of layers that an interrupted pull unpacked.
            self._drop(_blob_of(layer).digest for _, layer in layers)
            if options.is_held:
                store.hold(image)
            store.sweep()
            pruned = self._prune(limit, image)
        n_bytes = sum(blob.size for blob in blobs.values())
        return Pulled(image, before, len(missing), n_bytes, pruned)

    def _prune(self, limit: int, image: Image) -> Pruned:
        keep = self._options.keep | {image.digest}
        # The image is there: that something else cannot be deleted is no reason to refuse it.
        with suppress(ImageError, OSError):
            return prune(self._store, LayerStore(self._store.cache / "layers"), limit, keep)
        return NOTHING_PRUNED

    def _fetch(
        self, incoming: Path, layers: Sequence[tuple[str, Layer]], blobs: Sequence[Blob]
    ) -> None:
        """Download and unpack the layers that are missing."""
        if not blobs:
            return
        total = sum(blob.size for blob in blobs)
        free = shutil.disk_usage(incoming).free
        if total > free:
            raise ImageError(
                f"{incoming.parent}: has {render_size(free)} of free space, and the layers to "
                f"download are {render_size(total)}; free some space, or set PROCTOR_CACHE to "
                "another directory"
            )
        # For the whole image: a bomb may be spread over many layers.
        most = most_unpacked(total)
        meter = Meter(total, self._options.show, self._options.stopped)
        with Unpacker() as unpacker, Downloads(self._client, self._store.downloads, meter) as all_:
            arriving = all_.start(blobs)
            lowers: list[str] = []
            for chain, layer in layers:
                if not _is_there(self._store, chain):
                    blob = arriving[_blob_of(layer).digest].result()
                    below = tuple(reversed(lowers))
                    most -= self._unpack(unpacker, incoming, (chain, layer), blob, below, most)
                lowers.append(str(self._store.layer(chain) / "files"))

    def _unpack(
        self,
        unpacker: Unpacker,
        incoming: Path,
        one: tuple[str, Layer],
        blob: Path,
        lowers: tuple[str, ...],
        most: int,
    ) -> int:
        """Unpack a layer of at most so many bytes; return how many it has."""
        chain, layer = one
        home = incoming / chain
        (home / "files").mkdir(parents=True)
        name = f"sha256:{_blob_of(layer).digest[:12]}…"
        facts = unpacker.unpack(
            UnpackOrder(str(blob), str(home / "files"), lowers, name, layer.diff_id, most)
        )
        (home / FACTS).write_bytes(msgspec.json.encode(facts))
        if self._store.layer(chain).exists():
            discard(self._store.layer(chain))
        home.rename(self._store.layer(chain))
        self._made.append(chain)
        return facts.n_unpacked

    def _describe(
        self, name: str, reference: str, platform: str, facts: Mapping[str, LayerFacts]
    ) -> Image:
        found = self._found
        chains = list(facts)
        # For overlayfs the top directory of a layer hides nothing, so what it hides is left out.
        first = max((n for n, chain in enumerate(chains) if facts[chain].hides_all), default=0)
        used = [facts[chain] for chain in chains[first:]]
        notes = tuple(dict.fromkeys(note for one in used for note in one.notes))
        n_squashed = sum(one.n_squashed for one in used)
        if n_squashed:
            entries = count_of(n_squashed, "entry", "entries")
            notes += (f"belong to root instead of to other users: {entries}",)
        if platform != str(this_platform()):
            notes += (f"is for {platform}; this machine is {this_platform()}",)
        return Image(
            name=name,
            digest=(found.manifest or "").removeprefix("sha256:"),
            size=sum(one.size for one in used),
            n_entries=sum(one.n_entries for one in used),
            imported_at=self._options.now,
            source=found.form,
            image_id=found.image_id,
            env=found.env,
            workdir=found.workdir,
            user=found.user,
            entrypoint=found.entrypoint,
            healthcheck=found.healthcheck,
            notes=(*notes, *found.notes),
            layers=tuple(chains[first:]),
            platform=platform,
            n_squashed=n_squashed,
            pulled_from=reference,
        )

    def _drop(self, digests: Iterable[str]) -> None:
        for digest in digests:
            (self._store.downloads / f"{digest}.part").unlink(missing_ok=True)


def find_missing_layers(store: ImageStore, found: SavedImage) -> dict[str, Blob]:
    """Return what a pull downloads: the layers that the store lacks, by their chains."""
    return {
        chain: _blob_of(layer)
        for chain, layer in zip(_chains(found), found.layers, strict=True)
        if not _is_there(store, chain)
    }


def _is_there(store: ImageStore, chain: str) -> bool:
    return (store.layer(chain) / FACTS).exists()


def load_layers(store: ImageStore, image: Image) -> list[tuple[str, LayerFacts]]:
    """Return the layers of a pulled image, lowest first, each with its chain."""
    return [(chain, load_facts(store.layer(chain))) for chain in image.layers]


def _chains(found: SavedImage) -> Iterator[str]:
    """Yield the chain of each layer: a digest of the layer and of all below it."""
    chain = ""
    for layer in found.layers:
        chain = sha256_hex(f"{chain} {layer.diff_id}".encode()) if chain else layer.diff_id
        yield chain


def _blob_of(layer: Layer) -> Blob:
    if layer.digest is None or layer.size is None or layer.size < 0:
        raise RegistryError(f"layer {layer.name}: its manifest does not say its size")
    return Blob(layer.digest, layer.size)
