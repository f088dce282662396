"""Clusters that anybody may use are recognised and refused."""

import asyncio
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import grpc
import pytest

from proctor.cluster.connection import connect, needs_token
from proctor.errors import ClusterError
from proctor.harbor.configs import AgentConfig
from tests.executors.test_contract import make_spec
from tests.serve.servers import make_certificate


class Anybody(grpc.GenericRpcHandler):  # type: ignore[misc]
    """A cluster as far as a stranger sees it."""

    def __init__(self, code: grpc.StatusCode | None) -> None:
        self._code = code

    def service(self, _details: Any) -> Any:
        def answer(_request: bytes, context: Any) -> bytes:
            if self._code is not None:
                context.abort(self._code, "no")
            return b""

        return grpc.unary_unary_rpc_method_handler(answer)


@pytest.fixture(params=["", "ray://"])
def serve(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Serves on the loopback address; returns where."""
    servers = []

    def start(code: grpc.StatusCode | None) -> str:
        server = grpc.server(ThreadPoolExecutor(1), handlers=[Anybody(code)])
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        servers.append(server)
        return f"{request.param}127.0.0.1:{port}"

    yield start
    for server in servers:
        server.stop(None)


def test_a_cluster_that_answers_strangers_is_refused(serve: Any) -> None:
    address = serve(None)
    assert not needs_token(address)
    with pytest.raises(ClusterError, match="expects no token"):
        connect(address, is_insecure=False)


def test_it_may_be_used_if_wanted(serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    connected: list[str] = []

    def init(address: str, **_: object) -> None:
        connected.append(address)

    monkeypatch.setattr("ray.init", init)
    address = serve(None)
    connect(address, is_insecure=True)
    assert connected == [address]


def test_a_client_server_that_fails_to_start_is_asked_again(
    serve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[str] = []

    def init(address: str, **_: object) -> None:
        tries.append(address)
        if len(tries) < 3:
            raise ConnectionAbortedError("RuntimeError: Starting Ray client server failed.")

    monkeypatch.setattr("ray.init", init)
    connect(serve(None), is_insecure=True)
    assert len(tries) == 3


def test_a_token_that_is_refused_is_said_at_once(
    serve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", "0" * 64)
    address = serve(grpc.StatusCode.UNAUTHENTICATED)
    assert needs_token(address)
    with pytest.raises(ClusterError, match="refuses this machine's token"):
        connect(address, is_insecure=False)
    assert os.environ["RAY_AUTH_MODE"] == "token"


def test_what_is_no_cluster_is_said(serve: Any) -> None:
    with pytest.raises(ClusterError, match="not a Ray cluster"):
        needs_token(serve(grpc.StatusCode.UNIMPLEMENTED))


@pytest.fixture
def serve_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Serves with TLS, and wants the certificates of clients, as Ray does; returns where."""
    certificate, key = make_certificate(tmp_path)
    pair = key.read_bytes(), certificate.read_bytes()
    names = {"SERVER_CERT": certificate, "SERVER_KEY": key, "CA_CERT": certificate}
    for name, path in names.items():
        monkeypatch.setenv(f"RAY_TLS_{name}", str(path))
    servers = []

    def start(code: grpc.StatusCode | None) -> str:
        server = grpc.server(ThreadPoolExecutor(1), handlers=[Anybody(code)])
        wanted = grpc.ssl_server_credentials([pair], pair[1], require_client_auth=True)
        port = server.add_secure_port("127.0.0.1:0", wanted)
        server.start()
        servers.append(server)
        return f"127.0.0.1:{port}"

    yield start
    for server in servers:
        server.stop(None)


def test_a_cluster_with_tls_is_asked_as_any_other(
    serve_tls: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = serve_tls(grpc.StatusCode.UNAUTHENTICATED)
    with pytest.raises(ClusterError, match=r"not a Ray cluster .*set RAY_USE_TLS=1 here too"):
        needs_token(address)
    monkeypatch.setenv("RAY_USE_TLS", "1")
    # The token of this machine is not sent: the question is what strangers get.
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", "0" * 64)
    assert needs_token(address)
    assert not needs_token(serve_tls(None))


@pytest.mark.parametrize(
    ("value", "said"),
    [(None, "RAY_TLS_CA_CERT must also be set"), ("/nowhere/ca", "/nowhere/ca: No such file")],
)
def test_certificates_that_are_not_there_are_said(
    serve_tls: Any, monkeypatch: pytest.MonkeyPatch, value: str | None, said: str
) -> None:
    monkeypatch.setenv("RAY_USE_TLS", "1")
    if value is None:
        monkeypatch.delenv("RAY_TLS_CA_CERT")
    else:
        monkeypatch.setenv("RAY_TLS_CA_CERT", value)
    with pytest.raises(ClusterError, match=said):
        needs_token(serve_tls(None))


@pytest.mark.usefixtures("connected")
def test_a_trial_that_waits_for_a_node_that_will_not_come_ends(tmp_path: Path) -> None:
    executor = import_module("tests.cluster.executors").ConnectedExecutor(tmp_path / "job", 1)
    spec = make_spec(tmp_path, AgentConfig(name="nop"))
    environment = spec.config.environment.model_copy(update={"override_cpus": 64})
    config = spec.config.model_copy(update={"environment": environment})
    with pytest.raises(ClusterError, match="no node is left"):
        asyncio.run(executor.run(replace(spec, config=config), lambda _: None))
