"""Users and passwords of registries, where Docker keeps them.

~/.docker/config.json has them itself (`auths`), or names a program that has them (`credHelpers` for
one registry, `credsStore` for all). No password is ever part of a message.
"""

import base64
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from proctor.environments.sandbox.roots.registry.reference import DOCKER_HUB
from proctor.errors import ImageError
from proctor.files import read_small
from proctor.sentence import reason_of

# Docker's own key for Docker Hub, in files and for helpers.
_HUB_KEY = "https://index.docker.io/v1/"
_HUB_NAMES = frozenset({DOCKER_HUB, "index.docker.io", "registry-1.docker.io"})
_HELPER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_HELPER_SECONDS = 60
_LARGEST = 1 << 24
# The user that helpers name if the secret is a token.
_TOKEN_USER = "<token>"  # noqa: S105 - Docker's word, not a secret


class _Auth(msgspec.Struct, frozen=True):
    auth: str = ""
    username: str = ""
    password: str = ""
    identitytoken: str = ""


class _Document(msgspec.Struct, frozen=True, rename="camel"):
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


def _load_document(env: Mapping[str, str]) -> tuple[Path, _Document]:
    home = Path(env.get("HOME") or "~").expanduser()
    path = Path(env.get("DOCKER_CONFIG") or home / ".docker") / "config.json"
    try:
        return path, msgspec.json.decode(read_small(str(path), _LARGEST), type=_Document)
    except FileNotFoundError:
        return path, _Document()
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
