"""Relays ports of the host that a job lets its agents reach from inside a sandbox.

    --allow-host-port 127.0.0.1:8000      a model server on this machine

PID 1 binds the same address and port in the sandbox's network before anything runs there, and sends
the socket to the runner. During the agent's phase, the runner listens on it and forwards each
connection to the host. There is no route to the host, so nothing else of the host is reachable,
whatever names, redirects or spellings of the address a program inside uses.
"""

import asyncio
import os
import re
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import NamedTuple

from proctor.environments.sandbox.network import choose_network
from proctor.environments.sandbox.routes import find_local_addresses
from proctor.errors import UnsupportedError
from proctor.sentence import reason_of
from proctor.task.network import NetworkMode, NetworkPolicy

KWARG = "host_ports"
"""Kwarg of the sandbox that --allow-host-port sets."""
OPTION = "--allow-host-port"

_FORM = re.compile(r"(?:\[(?P<in_brackets>[^][]*)\]|(?P<plain>[^][:]*)):(?P<port>[0-9]{1,5})")
_EXPECTED = "expected ADDRESS:PORT, such as 127.0.0.1:8000 or [::1]:8000"
# Addresses that slirp4netns and pasta use inside themselves.
_OF_HELPERS = frozenset({"10.0.2.2", "10.0.2.3", "10.0.2.100", "169.254.0.1"})
# Ports of one job.
_MOST_PORTS = 16
# Concurrent connections of one sandbox. More are reset, or it could exhaust the runner's files.
_MOST_CONNECTIONS = 64
_CONNECT_SEC = 10.0
_CHUNK = 1 << 16


class HostPort(NamedTuple):
    """An address of the host and a TCP port."""

    address: str
    port: int

    def __str__(self) -> str:
        """Return it as in a URL."""
        host = f"[{self.address}]" if ":" in self.address else self.address
        return f"{host}:{self.port}"


def host_ports_of(kwargs: Mapping[str, object]) -> tuple[HostPort, ...]:
    """Return the ports that a job lets its agents reach, without duplicates.

    Raises:
        UnsupportedError: a value is not a single address and port.
    """
    given = kwargs.get(KWARG) or ()
    texts = [given] if isinstance(given, str) else given
    if not isinstance(texts, Sequence) or not all(isinstance(text, str) for text in texts):
        raise UnsupportedError(f"--ek {KWARG}={given}: expected a list of ADDRESS:PORT")
    found = tuple(dict.fromkeys(map(parse_host_port, texts)))
    if len(found) > _MOST_PORTS:
        raise UnsupportedError(f"{OPTION}: {len(found)} ports; expected at most {_MOST_PORTS}")
    return found


def parse_host_port(text: str) -> HostPort:
    """Parse an address and a port.

    Raises:
        UnsupportedError: it is neither.
    """
    form = _FORM.fullmatch(text)
    if form is None or not 0 < int(form["port"]) < 1 << 16:
        raise UnsupportedError(f"{OPTION} {text}: {_EXPECTED}")
    host = form["in_brackets"] or form["plain"] or ""
    try:
        address = ip_address(host)
    except ValueError as error:
        raise UnsupportedError(
            f"{OPTION} {text}: {host!r} is not an IP address; {_EXPECTED}. Names are not accepted, "
            "because they can resolve to several addresses"
        ) from error
    if (address.version == 6) != (form["in_brackets"] is not None):
        raise UnsupportedError(f"{OPTION} {text}: {_EXPECTED}")
    if problem := _find_problem(address):
        raise UnsupportedError(f"{OPTION} {text}: {problem}")
    return HostPort(str(address), int(form["port"]))


def _find_problem(address: IPv4Address | IPv6Address) -> str | None:
    """Return why an address cannot be used as one address of the host."""
    if address.is_unspecified:
        return f"{address} means all addresses; name one, such as 127.0.0.1"
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped:
            return f"this is an IPv4 address; write {address.ipv4_mapped}"
        if address.is_link_local or address.scope_id:
            return "a link-local address does not exist in a sandbox; name another one"
    if str(address) in _OF_HELPERS:
        return f"slirp4netns or pasta answers at {address} inside a sandbox; name another address"
    return None


def check_host_ports(ports: Sequence[HostPort]) -> None:
    """Check that sandboxes on this machine can reach these ports of it, and no others.

    Raises:
        UnsupportedError: an address is another machine's, or sandboxes share the host's network.
        OSError: the machine's addresses cannot be listed.
    """
    if not ports:
        return
    local = find_local_addresses()
    for port in ports:
        packed = ip_address(port.address).packed
        if not any(prefix.holds(packed) for prefix in local):
            raise UnsupportedError(
                f"{OPTION} {port}: {port.address} is not an address of this machine; a public "
                "network reaches other machines without this option"
            )
    check_can_open(ports, choose_network(NetworkPolicy(NetworkMode.PUBLIC)).shared_because)


def check_can_open(ports: Sequence[HostPort], shared_because: str | None) -> None:
    """Check that only these ports would be reachable.

    Raises:
        UnsupportedError: the sandbox shares the host's network, for the reason given.
    """
    if ports and shared_because:
        raise UnsupportedError(
            f"{OPTION} {ports[0]}: the sandbox would share the host's network, where every port "
            f"can be reached ({shared_because}); install slirp4netns, or leave the option out"
        )


class Relay:
    """Forwards connections from one sandbox to ports of the host."""

    def __init__(self, ports: Sequence[HostPort], bound: Sequence[int]) -> None:
        """`bound`: for each port, a socket bound to it in the sandbox's network; duplicated."""
        self._sockets = [
            (port, socket.socket(fileno=os.dup(fd))) for port, fd in zip(ports, bound, strict=True)
        ]
        self._is_open = False
        self._servers: list[asyncio.Server] = []
        self._connections: set[asyncio.Task[None]] = set()

    async def open(self) -> Sequence[str]:
        """Listen until closed; return error messages for ports that fail."""
        failed = []
        self._is_open = True
        for port, bound in self._sockets:
            try:
                self._servers.append(await self._listen(port, bound.dup()))
            except OSError as error:
                # A program inside listens there. An exception would let an agent force a retry of
                # the trial.
                failed.append(f"{port} cannot be reached from the sandbox: {reason_of(error)}")
        return failed

    async def _listen(self, port: HostPort, copy: socket.socket) -> asyncio.Server:
        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            is_full = len(self._connections) >= _MOST_CONNECTIONS
            # A connection accepted just before `close` may get here after it.
            if task is None or is_full or not self._is_open:
                writer.transport.abort()
                return
            self._connections.add(task)
            task.add_done_callback(self._connections.discard)
            await _pass_on(port, reader, writer)

        try:
            return await asyncio.start_server(accept, sock=copy)
        except BaseException:
            copy.close()
            raise

    async def close(self) -> None:
        """Refuse new connections, and end existing ones."""
        self._is_open = False
        servers, self._servers = self._servers, []
        for server in servers:
            server.close()
        for _, bound in self._sockets:
            # It stays bound, but no longer listens.
            with suppress(OSError):
                bound.shutdown(socket.SHUT_RDWR)
        ending = list(self._connections)
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)

    async def end(self) -> None:
        """Close it for good."""
        await self.close()
        for _, bound in self._sockets:
            bound.close()
        self._sockets.clear()


async def _pass_on(
    port: HostPort, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Connect to the host, and copy in both directions until both sides have closed."""
    writers = [writer]
    try:
        async with asyncio.timeout(_CONNECT_SEC):
            far_reader, far_writer = await asyncio.open_connection(port.address, port.port)
        writers.append(far_writer)
        async with asyncio.TaskGroup() as both:
            both.create_task(_copy(reader, far_writer))
            both.create_task(_copy(far_reader, writer))
        for each in writers:
            each.close()
            await each.wait_closed()
    except* (OSError, TimeoutError):
        # One side has ended; `finally` resets the connection of the other.
        pass
    finally:
        for each in writers:
            each.transport.abort()


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    while chunk := await source.read(_CHUNK):
        target.write(chunk)
        await target.drain()
    target.write_eof()
