"""A container reaches the model gateway of its job, on every Docker network, and nothing else."""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from proctor.digest import sha256_hex
from proctor.environments.docker import program as engines
from proctor.environments.docker.environment import DockerEnvironment
from proctor.environments.docker.model_port import Container, open_model_port
from proctor.environments.docker.program import run_docker
from proctor.environments.kinds import check_reaches_models
from proctor.errors import DockerError, UnsupportedError
from proctor.harbor.configs import SANDBOX, EnvironmentConfig
from proctor.trial.environment import EnvironmentOrder, ModelReaching
from proctor.trial.network import model_port_open
from tests.environments.docker.containers import docker_config, docker_order, running
from tests.environments.docker.engine import Engine
from tests.environments.model_ports import answer_at
from tests.environments.orders import PUBLIC, null_config
from tests.environments.sandboxes import said
from tests.environments.test_host_ports import ANSWER, serving
from tests.unprivileged import unprivileged

pytestmark = pytest.mark.usefixtures("cache", "engine")
N_POSTS, N_BYTES = 20, 1_000_000
POST = f"""
post() {{
    exec 3<>/dev/tcp/127.0.0.1/$1
    printf 'POST / HTTP/1.0\\r\\nContent-Length: {N_BYTES}\\r\\n\\r\\n' >&3
    cat /logs/in >&3
    tail -c {N_BYTES} <&3 > /logs/out-$2
}}
"""


@pytest.fixture
def bridge(engine: Engine) -> Iterator[str]:
    """A network of the engine whose containers have their own address."""
    name = "models"
    engine.docker("network", "create", name)
    engines._KNOWN.clear()
    yield name
    engine.docker("network", "rm", name)
    engines._KNOWN.clear()


@asynccontextmanager
async def reaching(order: EnvironmentOrder) -> AsyncIterator[DockerEnvironment]:
    """A container whose way to the gateway is open."""
    async with running(order) as place, model_port_open(place):
        yield place


async def watch_port(order: EnvironmentOrder, port: int, other: int) -> list[str]:
    """What the gateway answers before, while and after its port is open, and another service."""
    async with running(order) as place:
        assert isinstance(place, ModelReaching)
        answers = [await answer_at(place, port)]
        async with model_port_open(place):
            room = await place.open_room(("/tests", "/logs/verifier"))
            for inside in (place, room):
                answers += [await answer_at(inside, each) for each in (port, other)]
        answers.append(await answer_at(place, port))
        return answers


SEEN = ["", ANSWER, "", ANSWER, "", ""]


def test_without_a_network_the_gateway_is_all_that_is_reached(tmp_path: Path) -> None:
    with serving() as gateway, serving() as other:
        order = docker_order(tmp_path, model_port=gateway.port)
        assert asyncio.run(watch_port(order, gateway.port, other.port)) == SEEN


def test_with_a_network_it_is_all_of_the_host_that_is_reached(tmp_path: Path, bridge: str) -> None:
    config = docker_config(kwargs={"network": bridge})
    with serving() as gateway, serving() as other:
        order = docker_order(tmp_path, config=config, network=PUBLIC, model_port=gateway.port)
        assert asyncio.run(watch_port(order, gateway.port, other.port)) == SEEN


def test_a_container_on_the_hosts_network_needs_no_port(tmp_path: Path) -> None:
    config = docker_config(kwargs={"network": "host"})
    with serving() as gateway, serving() as other:
        order = docker_order(tmp_path, config=config, network=PUBLIC, model_port=gateway.port)
        assert asyncio.run(watch_port(order, gateway.port, other.port)) == [ANSWER] * 6


def test_containers_have_their_ports_apart_and_others_have_none(tmp_path: Path) -> None:
    async def go(port: int) -> None:
        first, second, without = (
            docker_order(tmp_path / name, session=name, model_port=given)
            for name, given in (("first", port), ("second", port), ("without", None))
        )
        async with reaching(first) as one, running(second) as two, reaching(without) as none:
            asked = [await answer_at(each, port) for each in (one, two, none)]
            assert asked == [ANSWER, "", ""]
            async with model_port_open(two):
                assert [await answer_at(each, port) for each in (one, two)] == [ANSWER] * 2

    with serving() as gateway:
        asyncio.run(go(gateway.port))


def test_containers_with_frozen_files_reach_it_too(tmp_path: Path) -> None:
    async def go(port: int) -> None:
        async with running(docker_order(tmp_path, model_port=port)) as place:
            await place.freeze()
            copy = await place.open_frozen(place.trial_paths)
            try:
                assert await answer_at(copy, port) == ""
                async with model_port_open(copy):
                    assert [await answer_at(each, port) for each in (copy, place)] == [ANSWER, ""]
            finally:
                await copy.stop(delete=True)

    with serving() as gateway:
        asyncio.run(go(gateway.port))


def test_many_connections_with_large_bodies_are_forwarded_whole(tmp_path: Path) -> None:
    async def go(port: int) -> tuple[str, list[str]]:
        async with reaching(docker_order(tmp_path, model_port=port)) as place:
            out = await said(
                place,
                f"{POST} head -c {N_BYTES} /dev/urandom > /logs/in; "
                f"for n in $(seq {N_POSTS}); do post {port} $n & done; wait; sha256sum /logs/out-*",
            )
            await place.download_file("/logs/in", tmp_path / "in")
        digest = sha256_hex((tmp_path / "in").read_bytes()[::-1])
        return digest, [line.split()[0] for line in out.splitlines()]

    with serving() as gateway:
        digest, found = asyncio.run(go(gateway.port))
    assert found == [digest] * N_POSTS


def test_a_port_that_is_taken_is_an_error(tmp_path: Path) -> None:
    async def go(port: int) -> None:
        async with running(docker_order(tmp_path, model_port=port)) as place:
            name = place._now().container
            number = (await run_docker("inspect", "--format", "{{.Id}}", name)).out.strip()
            with pytest.raises(DockerError, match=f"port {port} for models cannot be opened in"):
                open_model_port(Container(number, place._first, "none"), port)

    with serving() as gateway:
        asyncio.run(go(gateway.port))


# Where it cannot be


def test_a_process_that_is_not_the_containers_is_left_alone() -> None:
    sentence = "its engine runs on another machine, in a virtual machine or in a container; pass"
    for number, pid in (("f" * 64, os.getpid()), ("", os.getpid()), ("f" * 64, 1 << 30)):
        with pytest.raises(UnsupportedError, match=sentence):
            open_model_port(Container(number, pid, "none"), 1234)
    with pytest.raises(DockerError, match="has ended"):
        open_model_port(Container("f" * 64, 0, "none"), 1234)


def test_an_engine_elsewhere_is_refused_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", "ssh://elsewhere")
    DockerEnvironment(docker_order(tmp_path))
    with pytest.raises(UnsupportedError, match=r"DOCKER_HOST is ssh://elsewhere\); pass --no-gat"):
        DockerEnvironment(docker_order(tmp_path, model_port=1))
    with pytest.raises(UnsupportedError, match="on another machine"):
        check_reaches_models(docker_config())


@pytest.fixture
def open_place() -> Iterator[Path]:
    """A directory that everybody can enter; pytest's own are root's."""
    with TemporaryDirectory() as top:
        place = Path(top)
        place.chmod(0o755)
        yield place


def test_who_is_not_root_is_told_before_anything_is_made(open_place: Path) -> None:
    shared = docker_config(kwargs={"network": "host"})
    orders = [
        docker_order(open_place, model_port=1, config=each) for each in (docker_config(), shared)
    ]
    on_hosts_network = docker_order(open_place, model_port=1, config=shared, network=PUBLIC)
    with unprivileged():
        for order in orders:
            with pytest.raises(UnsupportedError, match="requires root; run as root, pass --no-gat"):
                DockerEnvironment(order)
        DockerEnvironment(on_hosts_network)
        with pytest.raises(UnsupportedError, match="requires root"):
            check_reaches_models(docker_config())


def test_environments_that_cannot_reach_it_are_refused_by_name() -> None:
    check_reaches_models(EnvironmentConfig(import_path=SANDBOX))
    check_reaches_models(docker_config())
    for config, name in (
        (null_config(), "null"),
        (EnvironmentConfig(import_path="a.b:C"), "a.b:C"),
    ):
        with pytest.raises(UnsupportedError, match=f"^-e {name}: programs in this environment"):
            check_reaches_models(config)
