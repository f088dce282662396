"""The program that answers: one process, on loopback, until it is interrupted."""

import socket

import uvicorn
from starlette.applications import Starlette

from proctor.errors import InputError

HOST = "127.0.0.1"
_WAITING = 512
"""Connections that may wait to be taken."""


def listen(port: int, host: str = HOST) -> socket.socket:
    """A socket of this machine that takes connections; port 0 takes any that is free.

    Raises:
        InputError: the port is taken, or may not be used.
    """
    found = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((host, port))
        found.listen(_WAITING)
    except OSError as error:
        found.close()
        raise InputError(
            f"port {port} of {host} cannot be used: {error.strerror}; --port 0 takes a free one"
        ) from error
    return found


def serve(app: Starlette, listening: socket.socket) -> None:
    """Answer until interrupted; what is under way is given a moment to end."""
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, timeout_graceful_shutdown=2, server_header=False
    )
    uvicorn.Server(config).run(sockets=[listening])
