"""The gateway of one job: a server on the loopback address, while the job runs."""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from copy import copy
from dataclasses import dataclass, field
from typing import Final

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from proctor.gateway.account import Account
from proctor.gateway.budget import NO_LIMITS, Budget
from proctor.gateway.connections import Connections
from proctor.gateway.options import GatewayOptions, point_at_gateway
from proctor.gateway.recordings import find_providers, find_trial
from proctor.gateway.replay import Cassette
from proctor.gateway.server import Server
from proctor.gateway.upstream import HOST, Upstream, find_hidden
from proctor.gateway.weather import RETRIES
from proctor.harbor.agents import CHAT
from proctor.harbor.configs import AgentConfig
from proctor.trial.models import ModelAccount

# Longer than clients keep connections: one that is closed while a request comes fails it.
_IDLE_SEC: Final = 120
# Time in which the first request of a connection must have begun.
_FIRST_SEC: Final = 30.0
# How the head of an answer begins; a body that does too is only sent a little later.
_HEAD: Final = b"HTTP/1."
_LOGGER = logging.getLogger(__name__)


@dataclass(slots=True)
class Gateway:
    """A running gateway; see Models."""

    options: GatewayOptions
    base: str
    port: int | None
    server: Server
    on_use: Callable[[str, int, float | None], None] | None = None
    """See Account; for agents only."""
    job: Budget = field(init=False)

    def __post_init__(self) -> None:
        self.job = Budget("job", self.options.job_limits)

    def reached_at(self, base: str) -> "Gateway":
        """Return the same gateway for a trial that reaches it by another URL, through a relay."""
        other = copy(self)
        other.base = base
        return other

    def find_upstreams(
        self, config: AgentConfig, env: Mapping[str, str], replay: Sequence[str] = ()
    ) -> dict[str, Upstream]:
        """Return the providers that an agent reaches through the gateway; empty: none."""
        recorded = find_providers(replay) if replay else None
        return self.options.find_upstreams(config, env, recorded)

    def open_agent(
        self,
        trial: str,
        directory: str,
        config: AgentConfig,
        env: Mapping[str, str],
        replay: Sequence[str] = (),
    ) -> ModelAccount | None:
        """See Models."""
        upstreams = self.find_upstreams(config, env, replay)
        if not upstreams:
            return None
        budgets = Budget("trial", self.options.trial_limits), self.job
        account = self._open(trial, directory, upstreams, budgets)
        retries = config.kwargs.get("retries") if config.name == CHAT else None
        account.on_use = self.on_use
        account.n_retries = retries if isinstance(retries, int) else RETRIES
        if replay:
            source = str(find_trial(replay[0]))
            account.cassette = Cassette(source, replay, self.options.on_difference)
        account.config = point_at_gateway(config, account.find_url(config.model_name))
        return account

    def open_verifier(
        self, trial: str, directory: str, env: Mapping[str, str]
    ) -> ModelAccount | None:
        """See Models."""
        upstreams = self.options.find_verifier_upstreams(env)
        # Tests are the benchmark's: they are recorded, but spend nothing of the agent's.
        budgets = (Budget("trial", NO_LIMITS),)
        return self._open(trial, directory, upstreams, budgets) if upstreams else None

    def _open(
        self,
        trial: str,
        directory: str,
        upstreams: Mapping[str, Upstream],
        budgets: tuple[Budget, ...],
    ) -> Account:
        account = Account(
            trial=trial,
            directory=directory,
            upstreams=upstreams,
            base=self.base,
            hidden=find_hidden(self.options.host),
            budgets=budgets,
            logger=_LOGGER,
        )
        self.server.accounts[account.token] = account
        return account


class _Gathering(asyncio.Transport):
    """A transport that sends a head, and what is written in the same turn of the loop, as one.

    A head and its body do not wake the client twice; nor do chunks that come faster than they can
    be passed on: the busier it is, the fewer packets there are. A chunk that comes alone is sent at
    once.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._transport, self._loop = transport, loop
        self._parts: list[bytes] | None = None
        """What is sent at the end of this turn; None before its first write."""
        for name in ("get_extra_info", "is_closing", "pause_reading", "resume_reading", "abort"):
            setattr(self, name, getattr(transport, name))

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send bytes, at once or soon."""
        if not data:
            return
        if self._parts is not None:
            self._parts.append(bytes(data))
            return
        self._parts = []
        self._loop.call_soon(self._flush)
        if bytes(data[: len(_HEAD)]) == _HEAD:
            self._parts.append(bytes(data))
        else:
            self._transport.write(data)

    def close(self) -> None:
        """Send what is left, and end."""
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        parts, self._parts = self._parts, None
        if parts:
            self._transport.write(b"".join(parts))


class _Connection(H11Protocol):
    """A client's connection, closed if no request comes, and if what comes is not HTTP."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for a request, for a while."""
        super().connection_made(_Gathering(transport, self.loop))
        self.loop.call_later(_FIRST_SEC, self._close_unused)

    def _close_unused(self) -> None:
        if not self._is_used:
            self.transport.abort()

    def send_400_response(self, msg: str) -> None:
        """Answer what is not HTTP, if nothing is being answered."""
        if self._is_used and self.cycle.response_started:
            self.transport.abort()
        else:
            super().send_400_response(msg)

    @property
    def _is_used(self) -> bool:
        # Until the first request, its attribute is None, whatever its type says.
        return bool(self.cycle)


class _Quiet(uvicorn.Server):
    """A server that leaves signals to the job."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield


@asynccontextmanager
async def open_gateway(options: GatewayOptions) -> AsyncIterator[Gateway]:
    """Run a gateway inside the context."""
    # asyncio turns Nagle's algorithm off only for sockets that name TCP: 40 ms a request.
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.bind((HOST, 0))
    async with Connections() as connections:
        server = Server(connections)
        http = _Quiet(_configure(server))
        serving = asyncio.create_task(http.serve(sockets=[listening]))
        try:
            while not http.started and not serving.done():
                await asyncio.sleep(0.001)
            port = listening.getsockname()[1]
            inside = port if options.is_inside else None
            yield Gateway(options, f"http://{HOST}:{port}", inside, server)
        finally:
            http.should_exit = True
            # The job has ended, and nothing is left to serve.
            with suppress(Exception):
                await serving
            listening.close()


def _configure(server: Server) -> uvicorn.Config:
    return uvicorn.Config(
        server,
        http=_Connection,
        log_config=None,
        log_level=logging.CRITICAL,
        access_log=False,
        proxy_headers=False,
        lifespan="off",
        ws="none",
        timeout_graceful_shutdown=1,
        timeout_keep_alive=_IDLE_SEC,
        server_header=False,
        date_header=False,
    )
