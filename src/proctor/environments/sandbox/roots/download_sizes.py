"""How much pulls of images would download. Fetches manifests, no layers, and stores nothing.

A registry that cannot be reached is asked once, however many of its images are wanted. All of it
takes a bounded time: what is not known then stays unknown, with a reason.
"""

import threading
import time
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from proctor.environments.sandbox.roots.images import ImageStore
from proctor.environments.sandbox.roots.pull import find_missing_layers
from proctor.environments.sandbox.roots.registry.blobs import Blob, RemoteFiles
from proctor.environments.sandbox.roots.registry.client import Patience, RegistryClient
from proctor.environments.sandbox.roots.registry.configuration import (
    Configuration,
    Endpoint,
    Reference,
    load_configuration,
    parse_reference,
)
from proctor.environments.sandbox.roots.saved_image import SavedImage, choose_remote, this_platform
from proctor.errors import ImageError, RegistryError, UnreachableRegistryError

AT_ONCE = 4
"""Number of images that are asked for at once."""
# A pull waits longer, because it fails otherwise.
_PATIENCE = Patience(connect_seconds=5.0, piece_seconds=10.0, document_seconds=20.0, waits=(0.5,))
# After this time, no further image is asked for.
_MOST_SECONDS = 120.0

type Layers = Mapping[str, Blob]
"""The layers of an image that the store lacks, by their chains."""


@dataclass(frozen=True, slots=True)
class DownloadSizes:
    """What pulls would download."""

    layers: Mapping[str, Layers]
    """By the references of the images; those that are unknown are left out."""
    reasons: tuple[str, ...]
    """Why images are unknown, each reason once."""

    def count_bytes(self, references: Iterable[str]) -> int | None:
        """Sum what these images need; layers that they share count once. None: unknown."""
        seen: set[str] = set()
        total = 0
        for reference in references:
            layers = self.layers.get(reference)
            if layers is None:
                return None
            # A blob that is in one image twice is downloaded once. In another image it is
            # downloaded again, unless the layers below it are the same, too.
            new = {blob.digest: blob.size for chain, blob in layers.items() if chain not in seen}
            total += sum(new.values())
            seen.update(layers)
        return total


def find_sizes(
    store: ImageStore, references: Collection[str], env: Mapping[str, str], stopped: threading.Event
) -> DownloadSizes:
    """Ask registries for the manifests of images. Blocks; setting `stopped` ends it soon."""
    try:
        asking = _Asking(store, load_configuration(env), env, stopped)
    except ImageError as error:
        return DownloadSizes({}, (str(error),))
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="size") as pool:
        answers = dict(zip(references, pool.map(asking.ask, references), strict=True))
    known = {name: found for name, found in answers.items() if not isinstance(found, str)}
    reasons = dict.fromkeys(why for why in answers.values() if isinstance(why, str))
    return DownloadSizes(known, tuple(reasons))


class _Registry:
    """What is known about a registry or a mirror."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        """Held until the first answer."""
        self.has_answered = False
        self.failure: str | None = None
        """Why it cannot be reached."""


class _Asking:
    def __init__(
        self,
        store: ImageStore,
        configuration: Configuration,
        env: Mapping[str, str],
        stopped: threading.Event,
    ) -> None:
        self._store = store
        self._configuration = configuration
        self._env = env
        self._stopped = stopped
        self._until = time.monotonic() + _MOST_SECONDS
        self._registries: dict[str, _Registry] = {}

    def ask(self, reference: str) -> Layers | str:
        """Return the layers that a pull would download, or why they are unknown."""
        try:
            wanted = parse_reference(reference)
            failed: list[str] = []
            for endpoint in self._configuration.find_endpoints(wanted):
                try:
                    return find_missing_layers(self._store, self._fetch(endpoint, wanted))
                except UnreachableRegistryError as error:
                    # Without the image's name: the reason is the same for all of them.
                    failed.append(str(error))
                except RegistryError as error:
                    failed.append(f"{wanted.name}: {error}")
                except ImageError as error:
                    raise ImageError(f"{wanted.name}: {error}") from error
            raise RegistryError("; ".join(failed))
        except ImageError as error:
            return str(error)

    def _fetch(self, endpoint: Endpoint, wanted: Reference) -> SavedImage:
        registry = self._registries.setdefault(endpoint.url, _Registry())
        with registry.lock:
            if self._stopped.is_set() or time.monotonic() > self._until:
                raise UnreachableRegistryError(
                    f"{endpoint.host}: not asked for all images, because that took more than "
                    f"{_MOST_SECONDS:.0f} seconds"
                )
            if registry.failure is None and not registry.has_answered:
                return self._fetch_from(registry, endpoint, wanted)
        if registry.failure is not None:
            raise UnreachableRegistryError(registry.failure)
        return self._fetch_from(registry, endpoint, wanted)

    def _fetch_from(self, registry: _Registry, endpoint: Endpoint, wanted: Reference) -> SavedImage:
        try:
            with RegistryClient(endpoint, self._env, _PATIENCE) as client:
                found = choose_remote(RemoteFiles(client, wanted.version), this_platform())
        except UnreachableRegistryError as error:
            registry.failure = str(error)
            raise
        except RegistryError:
            registry.has_answered = True
            raise
        registry.has_answered = True
        return found
