"""Finds the host's addresses, and adds routes that block them in a network namespace.

The helper that connects a sandbox opens its sockets on the host: without these routes, a sandbox
could reach every service that listens on one of the host's interfaces. Uses netlink, because `ip`
may not be installed, and only the standard library.
"""

import errno
import fcntl
import os
import socket
import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

_HEAD = struct.Struct("=IHHII")
_ROUTE = struct.Struct("=BBBBBBBBI")
_ATTRIBUTE = struct.Struct("=HH")
_ERROR = struct.Struct("=i")

# From <linux/netlink.h> and <linux/rtnetlink.h>.
_NEW_ROUTE, _GET_ROUTE = 24, 26
_IS_ERROR, _IS_DONE = 2, 3
_REQUEST, _ACKNOWLEDGE, _DUMP, _CREATE = 0x1, 0x4, 0x300, 0x400
_DESTINATION, _DEVICE = 1, 4
_SCOPE_OF_HOST = 254
_TABLE_MAIN, _TABLE_LOCAL = 254, 255
_LOCAL, _UNREACHABLE = 2, 7
_BY_ADMINISTRATOR = 4
_SOL_NETLINK, _STRICT_CHECK = 270, 12
_MOST_READ = 1 << 16
# Answers of a kernel without IPv6.
_NOT_THERE = {errno.EOPNOTSUPP, errno.EAFNOSUPPORT, errno.ENOENT}


class Prefix(NamedTuple):
    """An address or a prefix."""

    family: int
    address: bytes
    length: int
    """In bits."""

    def holds(self, address: bytes) -> bool:
        """Whether it contains an address, of either family."""
        if len(address) != len(self.address):
            return False
        other = 8 * len(address) - self.length
        return int.from_bytes(address) >> other == int.from_bytes(self.address) >> other


def find_own_addresses() -> list[Prefix]:
    """The local addresses of this network namespace, without loopback and link-local ones."""
    return [prefix for prefix in find_local_addresses() if not _is_kept(prefix)]


def find_local_addresses() -> list[Prefix]:
    """Return all local addresses of this network namespace, including loopback."""
    with _open() as netlink:
        found = {*_list_local(netlink, socket.AF_INET), *_list_local(netlink, socket.AF_INET6)}
    return sorted(prefix for prefix in found if prefix.length)


def make_unreachable(prefixes: Sequence[Prefix]) -> None:
    """Make addresses unreachable in this network namespace."""
    for prefix in prefixes:
        _add_route(prefix, _pack_route(prefix.family, prefix.length, _TABLE_MAIN, _UNREACHABLE))


def make_local(prefixes: Sequence[Prefix]) -> None:
    """Make addresses local in this network namespace, before all other routes."""
    device = _pack_attribute(_DEVICE, struct.pack("=i", socket.if_nametoindex("lo")))
    for prefix in prefixes:
        route = _pack_route(
            prefix.family, prefix.length, _TABLE_LOCAL, _LOCAL, scope=_SCOPE_OF_HOST
        )
        _add_route(prefix, route + device)


def _add_route(prefix: Prefix, route: bytes) -> None:
    with _open() as netlink:
        flags = _REQUEST | _ACKNOWLEDGE | _CREATE
        destination = _pack_attribute(_DESTINATION, prefix.address)
        _send(netlink, _NEW_ROUTE, flags, route + destination)
        for _ in _read(netlink):
            pass


def _pack_attribute(kind: int, value: bytes) -> bytes:
    """Pack an attribute of a route; all values here are multiples of 4 bytes, without padding."""
    return _ATTRIBUTE.pack(_ATTRIBUTE.size + len(value), kind) + value


def _is_kept(prefix: Prefix) -> bool:
    if prefix.family == socket.AF_INET:
        return prefix.address[0] == 127
    is_loopback = prefix.address == socket.inet_pton(socket.AF_INET6, "::1")
    is_of_link = prefix.address[0] == 0xFE and prefix.address[1] & 0xC0 == 0x80
    return is_loopback or is_of_link


def _open() -> socket.socket:
    return socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0)


def _list_local(netlink: socket.socket, family: int) -> Iterator[Prefix]:
    try:
        # Let the kernel filter: a router may have a million routes. Linux before 4.20 sends all.
        netlink.setsockopt(_SOL_NETLINK, _STRICT_CHECK, 1)
    except OSError as error:
        if error.errno != errno.ENOPROTOOPT:
            raise
    route = _pack_route(family, 0, _TABLE_LOCAL, _LOCAL, protocol=0)
    _send(netlink, _GET_ROUTE, _REQUEST | _DUMP, route)
    try:
        for body in _read(netlink):
            found, length, _, _, table, _, _, kind, _ = _ROUTE.unpack_from(body)
            address = _find_destination(body[_ROUTE.size :])
            if kind == _LOCAL and table == _TABLE_LOCAL and address is not None:
                yield Prefix(found, address, length)
    except OSError as error:
        if error.errno not in _NOT_THERE:
            raise


def _find_destination(attributes: bytes) -> bytes | None:
    at = 0
    while at + _ATTRIBUTE.size <= len(attributes):
        size, kind = _ATTRIBUTE.unpack_from(attributes, at)
        if size < _ATTRIBUTE.size:
            return None
        if kind == _DESTINATION:
            return attributes[at + _ATTRIBUTE.size : at + size]
        at += size + 3 & ~3
    return None


def _pack_route(
    family: int,
    length: int,
    table: int,
    kind: int,
    *,
    protocol: int = _BY_ADMINISTRATOR,
    scope: int = 0,
) -> bytes:
    return _ROUTE.pack(family, length, 0, 0, table, protocol, scope, kind, 0)


def _send(netlink: socket.socket, kind: int, flags: int, body: bytes) -> None:
    netlink.sendto(_HEAD.pack(_HEAD.size + len(body), kind, flags, 1, 0) + body, (0, 0))


def _read(netlink: socket.socket) -> Iterator[bytes]:
    """Yield the messages of one answer."""
    while True:
        data, at = netlink.recv(_MOST_READ), 0
        while at + _HEAD.size <= len(data):
            size, kind, _, _, _ = _HEAD.unpack_from(data, at)
            body = data[at + _HEAD.size : at + size]
            if kind == _IS_DONE:
                return
            if kind == _IS_ERROR:
                number = -_ERROR.unpack_from(body)[0]
                if number not in (0, errno.EEXIST):
                    raise OSError(number, os.strerror(number))
                return
            yield body
            at += size + 3 & ~3


# Brings loopback up in a network namespace, and listens there for connections to models
#
# Uses only the standard library: the zygote imports this, and every sandbox is a fork of it.


_NAME = b"lo"
_ADDRESS = "127.0.0.1"
_IFF_UP = 1
_SIOCGIFFLAGS = 0x8913
_SIOCSIFFLAGS = 0x8914
# Connections that wait until the runner accepts them.
_MOST_WAITING = 256


def bring_loopback_up() -> None:
    """Bring loopback up in the network namespace of this thread."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = bytearray(struct.pack("16sH22x", _NAME, 0))
        fcntl.ioctl(any_socket, _SIOCGIFFLAGS, request)
        flags = struct.unpack_from("H", request, 16)[0]
        if not flags & _IFF_UP:
            struct.pack_into("H", request, 16, flags | _IFF_UP)
            fcntl.ioctl(any_socket, _SIOCSIFFLAGS, request)


def listen_for_models(port: int) -> socket.socket:
    """Listen on a port of loopback in the network namespace of this thread.

    Raises:
        OSError: another socket has the port.
    """
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        # Without SO_REUSEADDR: no other socket can have this port, on any address.
        listening.bind((_ADDRESS, port))
        listening.listen(_MOST_WAITING)
    except BaseException:
        listening.close()
        raise
    return listening
