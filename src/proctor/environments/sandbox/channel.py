"""Messages between the runner and processes of its sandboxes: JSON, optionally with open files.

One message is one packet of a SOCK_SEQPACKET socket. A long message is sent as a memfd, because the
size of packets is limited. Uses only the standard library; link.py is the asynchronous end.
"""

import json
import os
import socket
import struct
from collections.abc import Mapping, Sequence

type Message = dict[str, object]

_INLINE = b"J"
_IN_MEMORY = b"M"
# Bytes in one packet; larger ones may not fit into the socket's buffer.
_LONGEST_INLINE = 1 << 15
# Limit of a message, against a process that sends without end.
_LONGEST = 1 << 26
_MOST_FILES = 32
_ROOM_FOR_FILES = socket.CMSG_SPACE(_MOST_FILES * 4)


def make_pair() -> tuple[socket.socket, socket.socket]:
    """Make a channel; return its two ends."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def send(channel: socket.socket, message: Mapping[str, object], files: Sequence[int] = ()) -> None:
    """Send a message and copies of open files."""
    data = json.dumps(message).encode()
    if len(data) <= _LONGEST_INLINE:
        _send_packet(channel, _INLINE + data, files)
        return
    memory = os.memfd_create("message", os.MFD_CLOEXEC)
    try:
        with os.fdopen(memory, "wb", closefd=False) as file:
            file.write(data)
        _send_packet(channel, _IN_MEMORY, (memory, *files))
    finally:
        os.close(memory)


def _send_packet(channel: socket.socket, packet: bytes, files: Sequence[int]) -> None:
    rights = struct.pack(f"{len(files)}i", *files)
    beside = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)] if files else []
    channel.sendmsg([packet], beside, socket.MSG_NOSIGNAL)


def receive(channel: socket.socket) -> tuple[Message, list[int]] | None:
    """Receive the next message and its files; None if the other end is closed.

    Raises:
        OSError: there is no message (on a non-blocking socket).
        ValueError: it is not a message.
    """
    try:
        packet, beside = _receive_packet(channel)
    except ConnectionResetError:
        # Raised once if the other end closed with unread data. Its own messages can still be read.
        packet, beside = _receive_packet(channel)
    if not packet:
        return None
    files = [fd for _, _, data in beside for fd in struct.unpack(f"{len(data) // 4}i", data)]
    if packet[:1] == _IN_MEMORY:
        packet = _INLINE + _read_memory(files.pop(0))
    message = json.loads(packet[1:])
    if not isinstance(message, dict):
        raise ValueError("the message is not an object")  # noqa: TRY004 - as for invalid JSON
    return message, files


def _receive_packet(channel: socket.socket) -> tuple[bytes, list[tuple[int, int, bytes]]]:
    packet, beside, _, _ = channel.recvmsg(
        _LONGEST_INLINE + 1, _ROOM_FOR_FILES, socket.MSG_CMSG_CLOEXEC
    )
    return packet, beside


def _read_memory(fd: int) -> bytes:
    """Read all of a memfd, independent of its file position."""
    try:
        size = os.fstat(fd).st_size
        if size > _LONGEST:
            raise ValueError(f"a message of {size} bytes; expected at most {_LONGEST}")
        return os.pread(fd, size, 0)
    finally:
        os.close(fd)


def close_all(files: Sequence[int]) -> None:
    """Close files that came with a message."""
    for fd in files:
        os.close(fd)
