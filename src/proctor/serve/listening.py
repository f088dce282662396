"""A socket that accepts a limited number of connections from each network.

Connections are counted from the moment they are accepted, so also while they are being encrypted:
somebody who opens many and holds them keeps out nobody else.
"""

import ipaddress
import socket
from collections import Counter
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Self

MOST_CONNECTIONS = 100
"""Connections of one network at the same time; the server takes four times as many."""
# One user often has this much of IPv6.
_IPV6_PREFIX = 64


@lru_cache(maxsize=1024)
def network_of(address: str) -> str:
    """The address, or the part of an IPv6 address that one user does not choose freely."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address
    # On a socket for both, an IPv4 address is written as an IPv6 one.
    found = getattr(found, "ipv4_mapped", None) or found
    if found.version == 4:
        return str(found)
    return str(ipaddress.ip_network((int(found), _IPV6_PREFIX), strict=False).network_address)


class _Connection(socket.socket):
    """An accepted connection, which says when it is closed."""

    _left: Callable[[], None] | None = None

    @classmethod
    def take(cls, connection: socket.socket, left: Callable[[], None]) -> Self:
        """The same connection; `left` is called once, when it is closed."""
        family, kind, proto = connection.family, connection.type, connection.proto
        found = cls(family, kind, proto, fileno=connection.detach())
        found._left = left
        return found

    def close(self) -> None:
        """Close it."""
        super().close()
        left, self._left = self._left, None
        if left is not None:
            left()


class LimitedSocket(socket.socket):
    """A listening socket with a limit for each network."""

    _most: int
    _refused: Callable[[str], None]
    _open: Counter[str]

    @classmethod
    def take(cls, listening: socket.socket, most: int, refused: Callable[[str], None]) -> Self:
        """The same socket; `refused` gets the address of each connection beyond the limit."""
        family, kind, proto = listening.family, listening.type, listening.proto
        found = cls(family, kind, proto, fileno=listening.detach())
        found._most, found._refused, found._open = most, refused, Counter()
        return found

    def accept(self) -> tuple[socket.socket, Any]:
        """Accept a connection.

        Raises:
            ConnectionAbortedError: one of a network that has too many; the server asks again.
        """
        connection, address = super().accept()
        network = network_of(address[0])
        if self._open[network] >= self._most:
            connection.close()
            self._refused(address[0])
            raise ConnectionAbortedError(f"too many connections from {network}")
        self._open[network] += 1
        return _Connection.take(connection, lambda: self._leave(network)), address

    def _leave(self, network: str) -> None:
        self._open[network] -= 1
        if not self._open[network]:
            del self._open[network]
