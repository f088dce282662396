"""registries.toml: mirrors of registries, and hosts that are contacted over plain HTTP.

    [registries."docker.io"]
    mirrors = ["https://mirror.example.org", "https://proxy.example.org/docker-hub"]

    [registries."registry.lan:5000"]
    plain_http = true

Mirrors, such as pull-through caches, are tried in order, and then the registry itself. A path after
a mirror's host is put before the names of repositories. Loopback is contacted over plain HTTP
unless `plain_http = false`; a mirror by its address.
"""

import ipaddress
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from proctor.environments.sandbox.roots.registry.reference import DOCKER_HUB, Reference
from proctor.errors import ImageError
from proctor.files import read_small
from proctor.sentence import reason_of

# Where Docker Hub's registry is; its name is that of its site.
_HUB_ADDRESS = "registry-1.docker.io"
_LARGEST = 1 << 20


class _Registry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    mirrors: tuple[str, ...] = ()
    plain_http: bool | None = None


class _Document(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    registries: dict[str, _Registry] = {}


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a repository is asked for."""

    url: str
    """`https://HOST[:PORT]`."""
    host: str
    """Host by which credentials are found: `docker.io`, or a host with its port."""
    repository: str


@dataclass(frozen=True, slots=True)
class Configuration:
    """What a user configured."""

    registries: Mapping[str, _Registry]
    """By their hosts, in lower case."""

    def find_endpoints(self, reference: Reference) -> tuple[Endpoint, ...]:
        """Return the places to ask for a repository, in order."""
        chosen = self.registries.get(reference.host, _Registry())
        mirrors = [_mirror(url, reference) for url in chosen.mirrors]
        is_plain = chosen.plain_http
        if is_plain is None:
            is_plain = is_loopback(_without_port(reference.host))
        address = _HUB_ADDRESS if reference.host == DOCKER_HUB else reference.host
        url = f"{'http' if is_plain else 'https'}://{address}"
        return (*mirrors, Endpoint(url, reference.host, reference.repository))


def load_configuration(env: Mapping[str, str]) -> Configuration:
    """Load registries.toml of the user; without one, nothing is configured.

    Raises:
        ImageError: it is invalid or cannot be read.
    """
    home = Path(env.get("HOME") or "~").expanduser()
    config = Path(env.get("XDG_CONFIG_HOME") or home / ".config")
    path = config / "proctor" / "registries.toml"
    try:
        document = tomllib.loads(read_small(str(path), _LARGEST).decode())
        found = msgspec.convert(document, type=_Document)
    except FileNotFoundError:
        return Configuration({})
    except OSError as error:
        raise ImageError(f"{path}: cannot be read: {reason_of(error)}") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise ImageError(f"{path}: not a configuration of registries: {error}") from error
    for name, registry in found.registries.items():
        for url in registry.mirrors:
            _check_mirror(path, name, url)
    # As in the names of images: case means nothing in a host.
    return Configuration({name.lower(): registry for name, registry in found.registries.items()})


def is_loopback(host: str) -> bool:
    """Whether a host, without its port, is this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _without_port(host: str) -> str:
    name, _, port = host.rpartition(":")
    return name if name and port.isdecimal() else host


def _check_mirror(path: Path, name: str, url: str) -> None:
    try:
        parts = urlsplit(url)
        is_good = parts.scheme in ("http", "https") and parts.hostname and not parts.username
        _ = parts.port
    except ValueError:
        is_good = False
    if not is_good or "?" in url or "#" in url:
        raise ImageError(
            f"{path}: {url!r} is a mirror of {name}; expected https://HOST[:PORT][/PREFIX]"
        )


def _mirror(url: str, reference: Reference) -> Endpoint:
    parts = urlsplit(url)
    prefix = parts.path.strip("/")
    repository = f"{prefix}/{reference.repository}" if prefix else reference.repository
    return Endpoint(f"{parts.scheme}://{parts.netloc}", parts.netloc, repository)
