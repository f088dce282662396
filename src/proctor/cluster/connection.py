"""Connect to a Ray cluster, and refuse one that anybody may use.

Anyone who reaches the ports of a cluster without token authentication runs code on every node.
Such a cluster is recognised by asking it something without a token: it answers.
"""

import logging
import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

import grpc
import ray
from ray._common.tls_utils import load_certs_from_env
from ray._private.authentication.authentication_token_setup import (
    maybe_enable_token_auth_if_token_available,
)
from ray._private.authentication.http_token_authentication import get_auth_headers_if_auth_enabled
from ray._raylet import AuthenticationTokenLoader, Config
from ray.exceptions import AuthenticationError, RayError

from proctor.errors import ClusterError
from proctor.sentence import reason_of

CLIENT: Final = "ray://"
ADDRESS: Final = "RAY_ADDRESS"
_USE_TLS: Final = "RAY_USE_TLS"
_ANSWER_SEC: Final = 10.0
_QUESTIONS: Final = {
    True: "/ray.rpc.RayletDriver/ClusterInfo",
    False: "/ray.rpc.NodeInfoGcsService/CheckAlive",
}
"""A question that needs no arguments: of Ray's client server, and of the head node."""
# Ray's client server forks a process for each client while gRPC is in use, and on a busy head node
# about one such process in ten dies before it is a program; the next one is independent of it.
# GRPC_ENABLE_FORK_SUPPORT=0 on the head node avoids it (docs/guide/scale.md).
_TRIES: Final = 6


def find_address(on: str, environ: Mapping[str, str]) -> str:
    """Return the address that `--on` names: HOST:PORT, or ray://HOST:PORT for a client's.

    Raises:
        ClusterError: there is none.
    """
    address = on if on.startswith(CLIENT) else environ.get(ADDRESS, "")
    if not address:
        raise ClusterError(
            f"--on {on}: {ADDRESS} is not set; set it to the HOST:PORT that `ray start --head` "
            "printed, or pass --on ray://HOST:PORT"
        )
    host, _, port = address.removeprefix(CLIENT).rpartition(":")
    if not host or not port.isdecimal():
        raise ClusterError(f"{address}: no address of a cluster; expected ray://HOST:PORT")
    return address


def connect(address: str, *, is_insecure: bool) -> None:
    """Connect this process to a cluster. Blocks.

    Raises:
        ClusterError: nothing answers, it expects another token, or it expects none.
    """
    if ray.is_initialized():
        return
    _check_reachable(address)
    if needs_token(address):
        _check_own_token(address)
    elif not is_insecure:
        raise ClusterError(
            f"{address}: the cluster expects no token, so anyone who reaches it runs code on every "
            "node (CVE-2023-48022); start Ray with RAY_AUTH_MODE=token on every machine, or pass "
            "--insecure-cluster if nobody else can reach it"
        )
    for n_left in reversed(range(_TRIES)):
        try:
            # Nothing of ours goes into runtime_env: Ray stores and shows it.
            ray.init(
                address=address,
                log_to_driver=False,
                configure_logging=False,
                logging_level=logging.ERROR,
            )
        except (RayError, OSError, RuntimeError, ValueError, AssertionError) as error:
            if n_left == 0:
                last = str(error).strip().splitlines()[-1:] or [type(error).__name__]
                raise ClusterError(f"{address}: no connection to the cluster: {last[0]}") from error
        else:
            return


def _check_reachable(address: str) -> None:
    host, _, port = address.removeprefix(CLIENT).rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _ANSWER_SEC).close()
    except OSError as error:
        raise ClusterError(
            f"{address}: no cluster answers: {reason_of(error)}; start one with `ray start "
            "--head`, and see docs/guide/scale.md"
        ) from error


def needs_token(address: str) -> bool:
    """Whether a cluster refuses a request without a token.

    Raises:
        ClusterError: what answers is no cluster.
    """
    code = _ask(address, {})
    if code not in (grpc.StatusCode.OK, grpc.StatusCode.UNAUTHENTICATED):
        is_hidden = code is grpc.StatusCode.UNAVAILABLE and not os.environ.get(_USE_TLS)
        hint = f"; if it uses TLS, set {_USE_TLS}=1 here too" if is_hidden else ""
        raise ClusterError(
            f"{address}: what answers there is not a Ray cluster ({code.name}){hint}"
        )
    return code is grpc.StatusCode.UNAUTHENTICATED


def _check_own_token(address: str) -> None:
    """Check that the cluster takes this machine's token: Ray itself would try for a minute."""
    # Ray reads both once; variables may have changed since.
    Config.initialize("")
    AuthenticationTokenLoader.instance().reset_cache()
    try:
        maybe_enable_token_auth_if_token_available(warn_if_disabled=False)
        headers = get_auth_headers_if_auth_enabled({})
    except AuthenticationError:
        headers = {}
    if _ask(address, headers) is grpc.StatusCode.UNAUTHENTICATED:
        found = "refuses this machine's token" if headers else "expects a token"
        raise ClusterError(
            f"{address}: the cluster {found}; set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN_PATH to "
            "a file with the token of its head node (`ray get-auth-token` prints it there)"
        )


def _ask(address: str, headers: Mapping[str, str]) -> grpc.StatusCode:
    """Ask a cluster something, and return how it answers."""
    with _open_channel(address.removeprefix(CLIENT)) as channel:
        ask = channel.unary_unary(_QUESTIONS[address.startswith(CLIENT)])
        metadata = [(name.lower(), value) for name, value in headers.items()]
        try:
            ask(b"", timeout=_ANSWER_SEC, metadata=metadata)
        except grpc.RpcError as error:
            return error.code()
    return grpc.StatusCode.OK


def _open_channel(address: str) -> grpc.Channel:
    """Open a channel as Ray does, by its variables of TLS, but without a token."""
    if os.environ.get(_USE_TLS, "0").lower() not in ("1", "true"):
        return grpc.insecure_channel(address)
    try:
        chain, key, authority = load_certs_from_env()
    except OSError as error:
        raise ClusterError(f"{_USE_TLS}: {error.filename}: {reason_of(error)}") from error
    except RuntimeError as error:
        raise ClusterError(str(error)) from error
    return grpc.secure_channel(address, grpc.ssl_channel_credentials(authority, key, chain))


def disconnect() -> None:
    """End the connection of this process. Blocks."""
    # A driver whose node died has nothing to disconnect from.
    with suppress(RayError, OSError, RuntimeError):
        ray.shutdown()
