"""Brings loopback up in a network namespace, and listens there for connections to models.

Uses only the standard library: the zygote imports this, and every sandbox is a fork of it.
"""

import fcntl
import socket
import struct

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
