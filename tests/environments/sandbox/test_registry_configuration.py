"""registries.toml: where a repository is asked for, and whether in the clear."""

from pathlib import Path

import pytest

from proctor.environments.sandbox.roots.registry.client import Patience, RegistryClient
from proctor.environments.sandbox.roots.registry.configuration import (
    Endpoint,
    load_configuration,
    parse_reference,
)
from proctor.errors import RegistryError


def find(tmp_path: Path, name: str, text: str = "") -> tuple[Endpoint, ...]:
    """The endpoints of an image with this configuration."""
    place = tmp_path / "proctor"
    place.mkdir(exist_ok=True)
    (place / "registries.toml").write_text(text, encoding="utf-8")
    configuration = load_configuration({"XDG_CONFIG_HOME": str(tmp_path)})
    return configuration.find_endpoints(parse_reference(name))


@pytest.mark.parametrize(
    ("name", "url"),
    [
        ("127.0.0.1:5000/tool", "http://127.0.0.1:5000"),
        ("127.9.9.9/tool", "http://127.9.9.9"),
        ("localhost/tool", "http://localhost"),
        ("LOCALHOST:5000/tool", "http://localhost:5000"),
        ("registry.lan/tool", "https://registry.lan"),
        ("registry.lan:80/tool", "https://registry.lan:80"),
        ("10.0.0.1:5000/tool", "https://10.0.0.1:5000"),
        ("localhost.example.org/tool", "https://localhost.example.org"),
        ("127.0.0.1.example.org/tool", "https://127.0.0.1.example.org"),
        ("ghcr.io/org/tool", "https://ghcr.io"),
        ("debian:12", "https://registry-1.docker.io"),
    ],
)
def test_only_loopback_is_contacted_over_plain_http(tmp_path: Path, name: str, url: str) -> None:
    (endpoint,) = find(tmp_path, name)
    assert endpoint.url == url


@pytest.mark.parametrize("key", ["registry.lan:5000", "Registry.LAN:5000"])
def test_plain_http_is_obeyed_for_the_host_that_is_named(tmp_path: Path, key: str) -> None:
    text = f'[registries."{key}"]\nplain_http = true\n'
    (named,) = find(tmp_path, "registry.lan:5000/tool", text)
    assert named == Endpoint("http://registry.lan:5000", "registry.lan:5000", "tool")
    for other in ("registry.lan/tool", "registry.lan:5001/tool", "a.registry.lan:5000/tool"):
        (endpoint,) = find(tmp_path, other, text)
        assert endpoint.url.startswith("https://")


def test_loopback_can_be_made_to_be_encrypted(tmp_path: Path) -> None:
    text = '[registries."127.0.0.1:5000"]\nplain_http = false\n'
    (endpoint,) = find(tmp_path, "127.0.0.1:5000/tool", text)
    assert endpoint.url == "https://127.0.0.1:5000"


@pytest.mark.parametrize("plain", ["true", "false"])
def test_a_mirror_is_contacted_by_its_address_and_the_registry_by_its_name(
    tmp_path: Path, plain: str
) -> None:
    mirrors = '["http://mirror.lan:81/hub/", "https://127.0.0.1:5000", "https://m.example.org"]'
    text = f'[registries."registry.lan"]\nmirrors = {mirrors}\nplain_http = {plain}\n'
    scheme = "http" if plain == "true" else "https"
    assert find(tmp_path, "registry.lan/org/tool:1", text) == (
        Endpoint("http://mirror.lan:81", "mirror.lan:81", "hub/org/tool"),
        Endpoint("https://127.0.0.1:5000", "127.0.0.1:5000", "org/tool"),
        Endpoint("https://m.example.org", "m.example.org", "org/tool"),
        Endpoint(f"{scheme}://registry.lan", "registry.lan", "org/tool"),
    )


def test_a_mirror_is_only_for_its_registry(tmp_path: Path) -> None:
    text = '[registries."docker.io"]\nmirrors = ["http://mirror.lan"]\n'
    mirror, hub = find(tmp_path, "debian:12", text)
    assert mirror == Endpoint("http://mirror.lan", "mirror.lan", "library/debian")
    assert hub == Endpoint("https://registry-1.docker.io", "docker.io", "library/debian")
    (other,) = find(tmp_path, "ghcr.io/org/tool", text)
    assert other.host == "ghcr.io"


@pytest.mark.parametrize("host", ["999.999.999.999", "xn--a.example.org", "xn--.example.org"])
def test_names_that_no_host_has_are_refused(tmp_path: Path, host: str) -> None:
    (endpoint,) = find(tmp_path, f"{host}/tool:1")
    with pytest.raises(RegistryError, match=f"{host}: is not the name of a host"):
        RegistryClient(endpoint, {}, Patience())
