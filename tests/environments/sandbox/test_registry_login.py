"""Credentials where Docker keeps them, and what names mean."""

import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import parse_qs

import pytest

from proctor.environments.sandbox.roots.images import ImageStore
from proctor.environments.sandbox.roots.pull import PullOptions, pull_image
from proctor.environments.sandbox.roots.registry.configuration import (
    Credentials,
    Reference,
    find_credentials,
    parse_reference,
)
from proctor.errors import ImageError, RegistryError
from tests.environments.sandbox.registries import Request, SmallRegistry, small_registry
from tests.environments.sandbox.saved import Saved

HEX = "a" * 64


@pytest.mark.parametrize(
    ("name", "host", "repository", "version"),
    [
        ("debian", "docker.io", "library/debian", "latest"),
        ("debian:12", "docker.io", "library/debian", "12"),
        ("docker.io/library/debian:12", "docker.io", "library/debian", "12"),
        ("org/tool:1", "docker.io", "org/tool", "1"),
        ("localhost/tool", "localhost", "tool", "latest"),
        ("127.0.0.1:5000/a/b/c:x", "127.0.0.1:5000", "a/b/c", "x"),
        ("ghcr.io/org/tool_a.b:1", "ghcr.io", "org/tool_a.b", "1"),
        (f"debian@sha256:{HEX}", "docker.io", "library/debian", f"sha256:{HEX}"),
        (f"a.b:1/tool:2@sha256:{HEX}", "a.b:1", "tool", f"sha256:{HEX}"),
    ],
)
def test_a_name_has_a_host_a_repository_and_a_version(
    name: str, host: str, repository: str, version: str
) -> None:
    found = parse_reference(name)
    assert isinstance(found, Reference)
    assert (found.host, found.repository, found.version) == (host, repository, version)


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return {"HOME": str(tmp_path), "PATH": f"{tmp_path}/bin"}


def log_in(tmp_path: Path, **config: object) -> None:
    (tmp_path / ".docker").mkdir()
    (tmp_path / ".docker" / "config.json").write_text(json.dumps(config), encoding="utf-8")


def helper(tmp_path: Path, name: str, script: str) -> None:
    (tmp_path / "bin").mkdir(exist_ok=True)
    path = tmp_path / "bin" / f"docker-credential-{name}"
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(0o755)


AUTH = {"auth": "YWRhOnNlY3I6ZXQ="}


@pytest.mark.parametrize(
    ("key", "host"),
    [
        ("https://index.docker.io/v1/", "docker.io"),
        ("docker.io", "docker.io"),
        ("ghcr.io", "ghcr.io"),
        ("https://127.0.0.1:5000/v2/", "127.0.0.1:5000"),
    ],
)
def test_a_login_is_found_by_its_host(
    tmp_path: Path, env: dict[str, str], key: str, host: str
) -> None:
    log_in(tmp_path, auths={"elsewhere.example": {"auth": "eDp5"}, key: AUTH})
    assert find_credentials(host, env) == Credentials("ada", "secr:et")


def test_no_file_and_no_entry_are_no_credentials(tmp_path: Path, env: dict[str, str]) -> None:
    assert find_credentials("ghcr.io", env) is None
    log_in(tmp_path, auths={"docker.io": AUTH, "quay.io": {}})
    assert find_credentials("ghcr.io", env) is None
    assert find_credentials("quay.io", env) is None


def test_another_hosts_password_is_not_taken(tmp_path: Path, env: dict[str, str]) -> None:
    log_in(tmp_path, auths={"ghcr.io": AUTH})
    assert find_credentials("ghcr.io.evil.example", env) is None
    assert find_credentials("ghcr.io:444", env) is None


def test_a_helper_is_asked_for_its_registry(tmp_path: Path, env: dict[str, str]) -> None:
    log_in(tmp_path, credHelpers={"ghcr.io": "pass"}, auths={"ghcr.io": {}})
    script = """read -r host; test "$1 $host" = "get ghcr.io" || exit 1
    echo '{"Username": "ada", "Secret": "s"}'"""
    helper(tmp_path, "pass", script)
    assert find_credentials("ghcr.io", env) == Credentials("ada", "s")


def test_a_store_is_asked_for_every_registry(tmp_path: Path, env: dict[str, str]) -> None:
    log_in(tmp_path, credsStore="desktop", auths={"quay.io": AUTH})
    script = """read -r host; case "$host" in
    https://index.docker.io/v1/) echo '{"Username": "<token>", "Secret": "t"}';;
    *) echo 'credentials not found in native keychain'; exit 1;; esac"""
    helper(tmp_path, "desktop", script)
    assert find_credentials("docker.io", env) == Credentials(token="t")  # noqa: S106
    assert find_credentials("quay.io", env) == Credentials("ada", "secr:et")
    assert find_credentials("ghcr.io", env) is None


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("[]", "not a configuration of Docker"),
        ('{"auths": {"ghcr.io": {"auth": "c2VjcmV0"}}}', "auth of ghcr.io is not as"),
        ('{"auths": {"ghcr.io": {"auth": "\\u00e9"}}}', "auth of ghcr.io is not as"),
        ('{"credsStore": "../evil"}', "not the name of a credential helper"),
        ('{"credsStore": "absent"}', "docker-credential-absent, which is not installed"),
        ('{"credsStore": "bad"}', "the credential helper ended with 3 for ghcr.io"),
        ('{"credsStore": "odd"}', "the credential helper's answer is not JSON"),
    ],
)
def test_logins_that_cannot_be_read_are_a_sentence_without_a_secret(
    tmp_path: Path, env: dict[str, str], config: str, message: str
) -> None:
    helper(tmp_path, "bad", "echo secret; exit 3")
    helper(tmp_path, "odd", "echo secret")
    (tmp_path / ".docker").mkdir()
    (tmp_path / ".docker" / "config.json").write_text(config, encoding="utf-8")
    with pytest.raises(ImageError, match=message) as caught:
        find_credentials("ghcr.io", env)
    assert "secret" not in str(caught.value)


# Identity tokens, which `docker login` keeps for registries that sign in with a browser


@pytest.fixture
def registry() -> Iterator[SmallRegistry]:
    """A registry that wants the token t0ken, which its token server gives for the right one."""
    with small_registry() as found:
        found.put("tool", Saved())

        def answer(request: Request) -> None:
            if request.headers.get("Authorization") == "Bearer t0ken":
                found.answer(request)
            else:
                realm = f'Bearer realm="http://{found.host}/token",service="s"'
                request.say(401, WWW_Authenticate=realm)

        def exchange(request: Request) -> None:
            asked.append((request.command, parse_qs(request.body.decode())))
            is_right = asked[-1][1].get("refresh_token") == ["identity"]
            # As the specification of OAuth has it, `token` is not there.
            request.say(200 if is_right else 401, b'{"access_token": "t0ken", "expires_in": 60}')

        asked: list[tuple[str, dict[str, list[str]]]] = []
        found.answers = {**dict.fromkeys(found.documents, answer), "/token": exchange}
        yield found
        assert [command for command, _ in asked] == ["POST"]
        assert asked[0][1] == {
            "grant_type": ["refresh_token"],
            "service": ["s"],
            "scope": ["repository:tool:pull"],
            "client_id": ["proctor"],
            "refresh_token": asked[0][1]["refresh_token"],
        }


def pull(tmp_path: Path, registry: SmallRegistry, env: dict[str, str]) -> None:
    path = f"{env['PATH']}:{os.environ['PATH']}"
    options = PullOptions(env={**env, "PATH": path}, now=datetime(2026, 1, 2, tzinfo=UTC))
    pull_image(ImageStore(tmp_path / "cache"), f"{registry.host}/tool:1", options)


@pytest.mark.parametrize("kind", ["file", "helper", "store"])
def test_an_identity_token_is_exchanged_and_shown_to_nobody_else(
    tmp_path: Path, env: dict[str, str], registry: SmallRegistry, kind: str
) -> None:
    helper(tmp_path, "own", """echo '{"Username": "<token>", "Secret": "identity"}'""")
    # With a token, `auth` is a user without a password.
    auth = {"auth": "YWRhOg==", "identitytoken": "identity"}
    config: dict[str, dict[str, object]] = {
        "file": {"auths": {registry.host: auth}},
        "helper": {"credHelpers": {registry.host: "own"}},
        "store": {"credsStore": "own", "auths": {registry.host: {}}},
    }
    log_in(tmp_path, **config[kind])
    pull(tmp_path, registry, env)
    sent = {headers.get("Authorization") for _, headers in registry.seen}
    assert sent == {None, "Bearer t0ken"}
    ((_, headers),) = [one for one in registry.seen if one[0] == "/token"]
    assert "Authorization" not in headers


def test_an_identity_token_that_ended_is_a_sentence_without_it(
    tmp_path: Path, env: dict[str, str], registry: SmallRegistry
) -> None:
    log_in(tmp_path, auths={registry.host: {"identitytoken": "old-secret"}})
    with pytest.raises(RegistryError, match="log in with `docker login") as caught:
        pull(tmp_path, registry, env)
    assert "old-secret" not in str(caught.value)
    assert "identity token" in str(caught.value)
