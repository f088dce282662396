"""Relays ports of the host that a job lets its agents reach from inside a sandbox.

    --allow-host-port 127.0.0.1:8000      a model server on this machine

PID 1 binds the same address and port in the sandbox's network before anything runs there, and sends
the socket to the runner. During the agent's phase, the runner listens on it and forwards each
connection to the host. There is no route to the host, so nothing else of the host is reachable,
whatever names, redirects or spellings of the address a program inside uses.
"""

import os
import re
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import NamedTuple

from proctor.environments.forwarding import MOST_CONNECTIONS, Forwarder
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
        self._forwarder = Forwarder()

    def open(self) -> Sequence[str]:
        """Listen until closed; return error messages for ports that fail."""
        failed = []
        for port, bound in self._sockets:
            try:
                bound.listen(MOST_CONNECTIONS)
            except OSError as error:
                # A program inside listens there. An exception would let an agent force a retry of
                # the trial.
                failed.append(f"{port} cannot be reached from the sandbox: {reason_of(error)}")
            else:
                self._forwarder.listen(bound.dup(), port.address, port.port)
        return failed

    async def close(self) -> None:
        """Refuse new connections, and end existing ones."""
        for _, bound in self._sockets:
            # It stays bound, but no longer listens.
            with suppress(OSError):
                bound.shutdown(socket.SHUT_RDWR)
        await self._forwarder.stop()

    async def end(self) -> None:
        """Close it for good."""
        await self.close()
        for _, bound in self._sockets:
            bound.close()
        self._sockets.clear()
