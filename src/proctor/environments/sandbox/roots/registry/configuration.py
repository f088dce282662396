"""registries.toml: mirrors of registries, and hosts that are contacted over plain HTTP.

    [registries."docker.io"]
    mirrors = ["https://mirror.example.org", "https://proxy.example.org/docker-hub"]

    [registries."registry.lan:5000"]
    plain_http = true

Mirrors, such as pull-through caches, are tried in order, and then the registry itself. A path after
a mirror's host is put before the names of repositories. Loopback is contacted over plain HTTP
unless `plain_http = false`; a mirror by its address.
"""

import base64
import ipaddress
import os
import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from proctor.environments.sandbox.roots.image import normalise_name
from proctor.errors import ImageError
from proctor.files import read_small
from proctor.sentence import reason_of

# What the name of an image means: a host, a repository there, and a tag or a digest


DOCKER_HUB = "docker.io"
_LAST_PORT = 65535
_REPOSITORY = re.compile(r"[a-z0-9]+(?:(?:\.|_{1,2}|-+|/)[a-z0-9]+)*")


@dataclass(frozen=True, slots=True)
class Reference:
    """An image in a registry."""

    name: str
    """Normalised, as in `debian:12`."""
    host: str
    """`docker.io`, or a host with its port, as in `registry.example.org:5000`."""
    repository: str
    """Path of the repository on the host, as in `library/debian`."""
    tag: str
    digest: str | None = None
    """`sha256:` and hex, if the name has one; it decides, not the tag."""

    @property
    def version(self) -> str:
        """Tag or digest."""
        return self.digest or self.tag


def parse_reference(name: str) -> Reference:
    """Parse the name of an image; a name without a host is one of Docker Hub.

    Raises:
        ImageError: it is not a name of an image in a registry.
    """
    name = normalise_name(name)
    rest, _, digest = name.partition("@")
    first, _, inner = rest.partition("/")
    host, path = DOCKER_HUB, rest
    if inner and ("." in first or ":" in first or first == "localhost"):
        host, path = first.lower(), inner
    repository, _, tag = path.partition(":")
    if host == DOCKER_HUB and "/" not in repository:
        repository = f"library/{repository}"
    if not _REPOSITORY.fullmatch(repository):
        raise ImageError(
            f"{name}: {repository!r} is not a repository of a registry; expected small letters and "
            "digits, with `.`, `_`, `-` and `/` between them"
        )
    port = host.partition(":")[2]
    if port and int(port) > _LAST_PORT:
        raise ImageError(f"{name}: {port} is not a port; expected at most {_LAST_PORT}")
    return Reference(name, host, repository, tag or "latest", digest or None)


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
            name, _, port = reference.host.rpartition(":")
            is_plain = is_loopback(name if name and port.isdecimal() else reference.host)
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
            try:
                parts = urlsplit(url)
                is_good = (
                    parts.scheme in ("http", "https") and parts.hostname and not parts.username
                )
                _ = parts.port
            except ValueError:
                is_good = False
            if not is_good or "?" in url or "#" in url:
                raise ImageError(
                    f"{path}: {url!r} is a mirror of {name}; expected https://HOST[:PORT][/PREFIX]"
                )
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


def _mirror(url: str, reference: Reference) -> Endpoint:
    parts = urlsplit(url)
    prefix = parts.path.strip("/")
    repository = f"{prefix}/{reference.repository}" if prefix else reference.repository
    return Endpoint(f"{parts.scheme}://{parts.netloc}", parts.netloc, repository)


# Users and passwords of registries, where Docker keeps them
#
# ~/.docker/config.json has them itself (`auths`), or names a program that has them (`credHelpers`
# for one registry, `credsStore` for all). No password is ever part of a message.


# Docker's own key for Docker Hub, in files and for helpers.
_HUB_KEY = "https://index.docker.io/v1/"
_HUB_NAMES = frozenset({DOCKER_HUB, "index.docker.io", "registry-1.docker.io"})
_HELPER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_HELPER_SECONDS = 60
_LARGEST_LOGINS = 1 << 24
# The user that helpers name if the secret is a token.
_TOKEN_USER = "<token>"  # noqa: S105 - Docker's word, not a secret


class _Auth(msgspec.Struct, frozen=True):
    auth: str = ""
    username: str = ""
    password: str = ""
    identitytoken: str = ""


class _Logins(msgspec.Struct, frozen=True, rename="camel"):
    auths: dict[str, _Auth] = {}
    creds_store: str = ""
    cred_helpers: dict[str, str] = {}


class _Answer(msgspec.Struct, frozen=True, rename="pascal"):
    username: str = ""
    secret: str = ""


@dataclass(frozen=True, slots=True)
class Credentials:
    """A user of a registry."""

    user: str = ""
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    """An identity token, to be exchanged for others; empty if there is a password."""

    @property
    def basic(self) -> str:
        """The value of the header Authorization, with user and password."""
        return f"Basic {base64.b64encode(f'{self.user}:{self.password}'.encode()).decode()}"


def find_credentials(host: str, env: Mapping[str, str]) -> Credentials | None:
    """Find the user's credentials for a registry; None if there are none."""
    path, document = _load_document(env)
    for name, helper in document.cred_helpers.items():
        if _is_for(name, host):
            return _ask_helper(helper, host, path, env)
    if document.creds_store and (found := _ask_helper(document.creds_store, host, path, env)):
        return found
    for name, auth in document.auths.items():
        if _is_for(name, host) and (found := _read_auth(auth, name, path)):
            return found
    return None


def _load_document(env: Mapping[str, str]) -> tuple[Path, _Logins]:
    home = Path(env.get("HOME") or "~").expanduser()
    path = Path(env.get("DOCKER_CONFIG") or home / ".docker") / "config.json"
    try:
        return path, msgspec.json.decode(read_small(str(path), _LARGEST_LOGINS), type=_Logins)
    except FileNotFoundError:
        return path, _Logins()
    except OSError as error:
        raise ImageError(f"{path}: cannot be read: {reason_of(error)}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        # Without the message of the parser, which may quote a secret.
        raise ImageError(f"{path}: not a configuration of Docker; see `docker login`") from error


def _is_for(key: str, host: str) -> bool:
    """Whether a key of Docker's file, which may be an address, names a registry."""
    name = key.partition("://")[2] or key
    name = name.partition("/")[0].lower()
    return name == host or (name in _HUB_NAMES and host in _HUB_NAMES)


def _read_auth(auth: _Auth, name: str, path: Path) -> Credentials | None:
    if auth.identitytoken:
        return Credentials(token=auth.identitytoken)
    if not auth.auth:
        return Credentials(auth.username, auth.password) if auth.username else None
    try:
        plain = base64.b64decode(auth.auth, validate=True).decode()
    except ValueError:
        plain = ""
    user, colon, password = plain.partition(":")
    if not colon:
        raise ImageError(f"{path}: auth of {name} is not as `docker login` writes it; log in again")
    return Credentials(user, password.rstrip("\0"))


def _ask_helper(helper: str, host: str, path: Path, env: Mapping[str, str]) -> Credentials | None:
    if not _HELPER.fullmatch(helper):
        raise ImageError(f"{path}: {helper!r} is not the name of a credential helper")
    program = f"docker-credential-{helper}"
    found = shutil.which(program, path=env.get("PATH"))
    if found is None:
        raise ImageError(
            f"{path}: names the credential helper {program}, which is not installed; install it, "
            f"or remove it from the file to use {host} without a user"
        )
    for key in _keys_of(host):
        if answer := _run_helper(found, key, env):
            if answer.username == _TOKEN_USER:
                return Credentials(token=answer.secret)
            return Credentials(answer.username, answer.secret)
    return None


def _keys_of(host: str) -> Iterator[str]:
    yield _HUB_KEY if host in _HUB_NAMES else host
    if host not in _HUB_NAMES:
        yield f"https://{host}"


def _run_helper(program: str, key: str, env: Mapping[str, str]) -> _Answer | None:
    try:
        done = subprocess.run(
            [program, "get"],
            input=key.encode(),
            capture_output=True,
            check=False,
            timeout=_HELPER_SECONDS,
            env=dict(env) or dict(os.environ),
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ImageError(f"{program}: the credential helper failed: {error}") from error
    if done.returncode != 0:
        # They say so on stdout, in words of their own: `credentials not found in native keychain`.
        if b"not found" in done.stdout + done.stderr:
            return None
        raise ImageError(
            f"{program}: the credential helper ended with {done.returncode} for {key}; "
            "try `docker login` again"
        )
    try:
        answer = msgspec.json.decode(done.stdout, type=_Answer)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ImageError(f"{program}: the credential helper's answer is not JSON") from error
    return answer if answer.secret else None
