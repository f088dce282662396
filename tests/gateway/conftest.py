"""Fixtures: a provider, and a gateway in front of it."""

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from proctor.gateway.account import Account
from proctor.gateway.gateway import Gateway, open_gateway
from proctor.gateway.options import GatewayOptions
from proctor.gateway.recording import RecordedCall, read_calls
from proctor.harbor.configs import AgentConfig
from tests.cli.programs import run_child
from tests.faults.conftest import site as site  # a fixture
from tests.faults.site import Site
from tests.gateway.images import CLIENTS, MINI, find_image
from tests.gateway.providers import KEY, Provider, running
from tests.gateway.trials import Runs
from tests.parity.shared import made_once

PATHS = {"openai": "/v1", "anthropic": "", "gemini": ""}


@dataclass
class Opened:
    """A gateway with one open account."""

    gateway: Gateway
    account: Account
    directory: Path

    @property
    def calls(self) -> list[RecordedCall]:
        """What was recorded so far."""
        return list(read_calls(str(self.directory / "model-calls.jsonl")))

    @property
    def env(self) -> dict[str, str]:
        """The variables of the agent."""
        return dict(self.account.env)


type OpenIt = Callable[..., AbstractAsyncContextManager[Opened]]


@pytest.fixture
def provider() -> Iterator[Provider]:
    """A provider that answers `done`."""
    with running(Provider()) as found:
        yield found


@pytest.fixture
def opened(provider: Provider, tmp_path: Path) -> OpenIt:
    """Opens a gateway in front of the provider, with options."""

    @asynccontextmanager
    async def open_it(**options: Any) -> AsyncIterator[Opened]:
        endpoints = {name: f"{provider.origin}{path}" for name, path in PATHS.items()}
        host = {"OPENAI_API_KEY": KEY, "ANTHROPIC_API_KEY": KEY, "GEMINI_API_KEY": KEY}
        config = AgentConfig(name="command", model_name="gpt-4o")
        async with open_gateway(GatewayOptions(host, endpoints, **options)) as gateway:
            account = gateway.open_agent("trial", str(tmp_path), config, {})
            assert isinstance(account, Account)
            async with account.opened():
                yield Opened(gateway, account, tmp_path)

    return open_it


@pytest.fixture(scope="session")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache of their own for these images: other tests clean the one that all share."""
    return made_once(tmp_path_factory, "images", lambda _: None)


@pytest.fixture
def runs(site: Site, provider: Provider, images: Path) -> Runs:
    """Runs agents in front of the provider."""
    site.env = {"PROCTOR_CACHE": str(images), "PROCTOR_SCRATCH": str(site.top / "scratch")}
    return Runs(site, provider)


@pytest.fixture(scope="session")
def clients_image(images: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """An image with the clients of OpenAI and Anthropic."""
    return import_image("clients", CLIENTS, images, tmp_path_factory)


@pytest.fixture(scope="session")
def mini_image(images: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """An image with mini-swe-agent."""
    return import_image("mini", MINI, images, tmp_path_factory)


def import_image(
    name: str, packages: Sequence[str], cache: Path, factory: pytest.TempPathFactory
) -> str:
    """Let sandboxes with this cache use an image; once, whichever worker needs it first."""
    tag = f"{name}:1"

    def make(_: Path) -> None:
        archive = find_image(name, packages)
        done = run_child("image", "import", tag, archive, env={"PROCTOR_CACHE": str(cache)})
        assert done.code == 0, done.err

    made_once(factory, f"image-{name}", make)
    return tag
