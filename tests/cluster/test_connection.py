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


@pytest.mark.usefixtures("connected")
def test_a_trial_that_waits_for_a_node_that_will_not_come_ends(tmp_path: Path) -> None:
    executor = import_module("tests.cluster.executors").ConnectedExecutor(tmp_path / "job", 1)
    spec = make_spec(tmp_path, AgentConfig(name="nop"))
    environment = spec.config.environment.model_copy(update={"override_cpus": 64})
    config = spec.config.model_copy(update={"environment": environment})
    with pytest.raises(ClusterError, match="no node is left"):
        asyncio.run(executor.run(replace(spec, config=config), lambda _: None))
