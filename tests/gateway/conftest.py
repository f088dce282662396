"""Fixtures: a provider, and a gateway in front of it."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
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
from tests.gateway.raw import CHAT, Answer, Raw
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
        """What was recorded so far: a moment after a client has its answer."""
        path = self.directory / "model-calls.jsonl"
        return list(read_calls(str(path))) if path.exists() else []

    @property
    def env(self) -> dict[str, str]:
        """The variables of the agent."""
        return dict(self.account.env)

    async def post(self, body: bytes = b"{}", path: str = CHAT) -> httpx.Response:
        """Ask through the gateway."""
        async with httpx.AsyncClient(timeout=20) as client:
            url, key = f"http://127.0.0.1:{self.gateway.port}{path}", self.account.token
            return await client.post(url, content=body, headers={"authorization": f"Bearer {key}"})

    def make_request(self, line: str = f"POST {CHAT}", body: bytes = b"{}", *more: bytes) -> bytes:
        """Return the bytes of a request with the account's token."""
        lines = [
            f"{line} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {self.account.token}".encode(),
            *more,
            f"Content-Length: {len(body)}".encode(),
        ]
        return b"\r\n".join(lines) + b"\r\n\r\n" + body

    async def talk(self, data: bytes, *, seconds: float = 5.0) -> bytes:
        """Send bytes to the gateway; returns what it says until it closes, or the time is over."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.gateway.port)
        said = bytearray()
        try:
            async with asyncio.timeout(seconds):
                writer.write(data)
                while chunk := await reader.read(1 << 16):
                    said += chunk
                    if b"\r\n\r\n" in said and seconds > 1:
                        break
        except (TimeoutError, ConnectionError):
            pass
        finally:
            writer.close()
        return bytes(said)


type OpenIt = Callable[..., AbstractAsyncContextManager[Opened]]
type OpenRaw = Callable[..., AbstractAsyncContextManager[tuple[Opened, Raw]]]


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


@pytest.fixture
def opened_raw(opened: OpenIt, provider: Provider) -> OpenRaw:
    """Opens a gateway in front of a provider that answers with bytes; requests are not retried."""

    @asynccontextmanager
    async def open_it(
        answer: Answer, tls: ssl.SSLContext | None = None
    ) -> AsyncIterator[tuple[Opened, Raw]]:
        raw = Raw(answer)
        server = await asyncio.start_server(raw.accept, "127.0.0.1", 0, ssl=tls)
        provider.scheme = "http" if tls is None else "https"
        provider.port = server.sockets[0].getsockname()[1]
        try:
            async with opened() as at:
                at.account.n_retries = 0
                yield at, raw
        finally:
            server.close()
            for task in raw.serving:
                task.cancel()
            await asyncio.gather(*raw.serving, return_exceptions=True)
            for writer in raw.writers:
                writer.transport.abort()
            await asyncio.sleep(0)

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
