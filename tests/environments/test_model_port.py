"""A sandbox reaches the model gateway of its job, in every network mode, and nothing else."""

import asyncio
import json
import os
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from proctor.environments import forwarding
from proctor.environments.forwarding import ModelPort
from proctor.environments.kinds import make_environment
from proctor.environments.null import NullEnvironment
from proctor.environments.sandbox.environment import SandboxEnvironment
from proctor.environments.sandbox.host_ports import HostPort
from proctor.environments.sandbox.processes import Lister
from proctor.harbor.configs import EnvironmentConfig
from proctor.task.network import NetworkPolicy
from proctor.trial.environment import EnvironmentOrder, ModelReaching
from proctor.trial.network import host_ports_open, model_port_open
from tests import ordinary_user
from tests.become_user import TUN
from tests.environments.model_ports import answer_at
from tests.environments.orders import NO_NETWORK, PUBLIC, null_config, order_of
from tests.environments.sandboxes import found_in, running, said
from tests.environments.test_host_ports import (
    ANSWER,
    MANY_CONNECTIONS,
    SPELLINGS,
    declaring,
    fetched,
    serving,
)
from tests.environments.test_network import only_these, with_slirp

pytestmark = pytest.mark.usefixtures("cache")


@asynccontextmanager
async def reaching(order: EnvironmentOrder) -> AsyncIterator[SandboxEnvironment]:
    """A sandbox whose way to the gateway is open."""
    async with running(order) as sandbox, model_port_open(sandbox):
        yield sandbox


both_networks = pytest.mark.parametrize(
    "network", [NO_NETWORK, pytest.param(PUBLIC, marks=with_slirp)], ids=["no-network", "public"]
)


@both_networks
def test_the_gateway_answers_only_while_its_port_is_open(
    tmp_path: Path, network: NetworkPolicy
) -> None:
    async def go(port: int) -> list[str]:
        async with running(order_of(tmp_path, network=network, model_port=port)) as sandbox:
            answers = [await answer_at(sandbox, port)]
            for _ in range(2):
                async with model_port_open(sandbox):
                    answers.append(await answer_at(sandbox, port))
                    answers += await fetched(sandbox, f"http://127.0.0.1:{port}/", user="nobody")
                answers.append(await answer_at(sandbox, port))
            assert found_in(sandbox) == []
            return answers

    with serving() as gateway:
        assert asyncio.run(go(gateway.port)) == ["", *[ANSWER, ANSWER, ""] * 2]


@both_networks
def test_nothing_else_of_the_host_is_reached(tmp_path: Path, network: NetworkPolicy) -> None:
    async def go(port: int, other: int) -> None:
        async with reaching(order_of(tmp_path, network=network, model_port=port)) as sandbox:
            urls = [f"http://{host}:{other}/" for host in ("127.0.0.1", "localhost", *SPELLINGS)]
            away = f"http://127.0.0.1:{port}/away?{other}"
            assert ANSWER not in await fetched(sandbox, away, *urls)
            if network is NO_NETWORK:
                # The title is all that there is of routes.
                assert await said(sandbox, "wc -l < /proc/net/route") == "1"

    with serving() as gateway, serving() as other:
        asyncio.run(go(gateway.port, other.port))


def test_sandboxes_have_their_ports_apart_and_others_have_none(tmp_path: Path) -> None:
    async def go(port: int) -> None:
        first, second, without = (
            order_of(tmp_path / name, session=name, model_port=given)
            for name, given in (("first", port), ("second", port), ("without", None))
        )
        async with reaching(first) as one, running(second) as two, reaching(without) as none:
            assert await answer_at(one, port) == ANSWER
            assert [await answer_at(each, port) for each in (two, none)] == ["", ""]
            async with model_port_open(two):
                both = await asyncio.gather(answer_at(one, port), answer_at(two, port))
                assert list(both) == [ANSWER, ANSWER]
            assert [await answer_at(each, port) for each in (one, two)] == [ANSWER, ""]

    with serving() as gateway:
        asyncio.run(go(gateway.port))


def test_sandboxes_made_ahead_and_from_frozen_files_reach_it_too(tmp_path: Path) -> None:
    async def go(port: int) -> None:
        for n in range(4):
            async with reaching(order_of(tmp_path, session=f"s{n}", model_port=port)) as sandbox:
                assert await answer_at(sandbox, port) == ANSWER
        async with running(order_of(tmp_path, model_port=port)) as sandbox:
            room = await sandbox.open_room(["/tests", "/logs/verifier"])
            async with model_port_open(sandbox):
                assert await answer_at(room, port) == ANSWER
            await sandbox.freeze()
            copy = await sandbox.open_frozen(sandbox.trial_paths)
            try:
                assert await answer_at(copy, port) == ""
                async with model_port_open(copy):
                    assert await answer_at(copy, port) == ANSWER
            finally:
                await copy.stop(delete=True)

    with serving() as gateway:
        asyncio.run(go(gateway.port))


FAKE = """
import socket, sys
for address in ("127.0.0.1", "0.0.0.0", "::", "::1", "127.0.0.2"):
    one = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
    for option in (socket.SO_REUSEADDR, socket.SO_REUSEPORT):
        one.setsockopt(socket.SOL_SOCKET, option, 1)
    try:
        one.bind((address, int(sys.argv[1])))
        one.listen()
        print(address, end=" ")
    except OSError:
        pass
"""


def test_no_program_inside_can_listen_in_place_of_the_gateway(tmp_path: Path) -> None:
    async def go(port: int) -> None:
        async with running(order_of(tmp_path, model_port=port)) as sandbox:
            listen = f"python3 -c '{FAKE}' {port}"
            elsewhere = "::1 127.0.0.2"
            assert await said(sandbox, listen) == elsewhere
            async with model_port_open(sandbox):
                assert await answer_at(sandbox, port) == ANSWER
                assert await said(sandbox, listen) == elsewhere
            assert await said(sandbox, listen) == elsewhere

    with serving() as gateway:
        asyncio.run(go(gateway.port))


def test_the_runners_socket_is_no_sign_of_a_service_of_the_agent(tmp_path: Path) -> None:
    async def go(port: int) -> list[bool]:
        async with running(order_of(tmp_path, model_port=port)) as sandbox:
            await sandbox.exec("sleep 60 > /dev/null 2>&1 &")
            return [each.listens for each in await sandbox.list_processes()]

    assert asyncio.run(go(4321)) == [False]
    with socket.create_server(("127.0.0.1", 0)) as one:
        own = os.readlink(f"/proc/self/fd/{one.fileno()}")  # noqa: PTH115 - not a path
        port = one.getsockname()[1]
        assert own in Lister()._find_listening("/proc/self")
        assert own not in Lister(model_port=port)._find_listening("/proc/self")


def test_closing_the_port_ends_connections(tmp_path: Path) -> None:
    async def go(port: int) -> None:
        async with running(order_of(tmp_path, model_port=port)) as sandbox:
            async with model_port_open(sandbox):
                held = f"exec 3<>/dev/tcp/127.0.0.1/{port}; echo open > /tmp/is; cat <&3"
                await sandbox.exec(f"bash -c '{held}; echo over > /tmp/is' > /dev/null 2>&1 &")
                while await said(sandbox, "cat /tmp/is") != "open":
                    await asyncio.sleep(0.01)
            while await said(sandbox, "cat /tmp/is") != "over":
                await asyncio.sleep(0.01)

    with serving() as gateway:
        asyncio.run(go(gateway.port))


def test_many_connections_with_large_bodies_are_forwarded_whole(tmp_path: Path) -> None:
    async def go(port: int) -> str:
        async with reaching(order_of(tmp_path, model_port=port)) as sandbox:
            post = f"curl -s -m 100 --data-binary @/tmp/in http://127.0.0.1:{port}/"
            return await said(
                sandbox,
                "head -c 2000000 /dev/urandom > /tmp/in; "
                f"for n in $(seq 40); do {post} > /tmp/out-$n & done; wait; "
                'python3 -c \'d = open("/tmp/in", "rb").read()[::-1]\n'
                'print(sum(open(f"/tmp/out-{n}", "rb").read() == d for n in range(1, 41)))\'',
            )

    with serving() as gateway:
        assert asyncio.run(go(gateway.port)) == "40"


def test_more_connections_than_are_forwarded_wait_until_others_end(tmp_path: Path) -> None:
    async def go(port: int) -> str:
        async with reaching(order_of(tmp_path, model_port=port)) as sandbox:
            return await said(sandbox, f"python3 -c '{MANY_CONNECTIONS}' {port}")

    with serving() as gateway:
        assert asyncio.run(go(gateway.port)) == "256 answered, then 44"


def test_a_sandbox_on_the_hosts_network_needs_no_port(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def go(port: int) -> str:
        order = order_of(tmp_path, network=PUBLIC, model_port=port)
        async with reaching(order) as sandbox:
            return await answer_at(sandbox, port)

    with only_these(tmp_path / "bin", "sh") as path, serving() as gateway:
        monkeypatch.setenv("PATH", path)
        assert asyncio.run(go(gateway.port)) == ANSWER


def test_a_declared_port_of_the_host_and_the_gateway_do_not_mix(tmp_path: Path) -> None:
    async def go(port: int, declared: int) -> None:
        order = declaring(tmp_path, HostPort("127.0.0.1", declared), model_port=port)
        async with running(order) as sandbox:
            async with model_port_open(sandbox):
                assert await answer_at(sandbox, port) == ANSWER
                assert await answer_at(sandbox, declared) == ""
            async with host_ports_open(sandbox):
                assert await answer_at(sandbox, port) == ""
                assert await answer_at(sandbox, declared) == ANSWER

    with serving() as gateway, serving() as declared:
        asyncio.run(go(gateway.port, declared.port))


# Forwarding itself, without a sandbox


@contextmanager
def listening() -> Iterator[socket.socket]:
    """A socket as environments have one."""
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        made.listen()
        yield made


def test_an_environment_keeps_some_connections_when_others_have_taken_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def go(port: int, greedy: socket.socket, modest: socket.socket) -> list[int]:
        ends = [ModelPort(port, each.fileno()) for each in (greedy, modest)]
        for end in ends:
            end.open()
        numbers, writers = [], []
        for where, n in ((greedy, 50), (modest, 20)):
            made = [await asyncio.open_connection(*where.getsockname()) for _ in range(n)]
            for _, writer in made:
                writer.write(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n")
                writers.append(writer)
            reading = [asyncio.ensure_future(reader.read(1)) for reader, _ in made]
            done, waiting = await asyncio.wait(reading, timeout=1.0)
            numbers.append(len(done))
            for each in waiting:
                each.cancel()
        for writer in writers:
            writer.close()
        for end in ends:
            await end.end()
        return numbers

    monkeypatch.setattr(forwarding, "most_of_all", lambda: 30)
    with serving() as gateway, listening() as one, listening() as two:
        assert asyncio.run(go(gateway.port, one, two)) == [30, 8]


def test_an_answer_that_is_cut_is_reset_and_not_taken_for_whole() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.read(1) * 100)
        await reader.read()
        writer.close()

    async def go(inside: socket.socket) -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        end = ModelPort(server.sockets[0].getsockname()[1], inside.fileno())
        end.open()
        reader, writer = await asyncio.open_connection(*inside.getsockname())
        writer.write(b"x")
        assert await reader.readexactly(100) == b"x" * 100
        await end.close()
        with pytest.raises(ConnectionResetError):
            await reader.read()
        writer.close()
        await end.end()
        server.close()

    with listening() as inside:
        asyncio.run(go(inside))


def test_a_side_that_has_said_all_still_hears_the_answer() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = await reader.read()
        writer.write(asked[::-1])
        writer.close()

    async def go(inside: socket.socket) -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        end = ModelPort(server.sockets[0].getsockname()[1], inside.fileno())
        end.open()
        reader, writer = await asyncio.open_connection(*inside.getsockname())
        data = os.urandom(5_000_000)
        writer.write(data)
        writer.write_eof()
        assert await reader.read() == data[::-1]
        writer.close()
        await end.end()
        server.close()

    with listening() as inside:
        asyncio.run(go(inside))


# Environments that cannot


async def test_environments_say_whether_they_reach_a_gateway(tmp_path: Path) -> None:
    assert isinstance(SandboxEnvironment(order_of(tmp_path)), ModelReaching)
    null = NullEnvironment(order_of(tmp_path, config=null_config()))
    assert not isinstance(null, ModelReaching)
    plain = EnvironmentConfig(import_path="tests.environments.plain_env:PlainEnvironment")
    foreign = make_environment(order_of(tmp_path, config=plain))
    assert not isinstance(foreign, ModelReaching)
    async with model_port_open(foreign):
        pass


# Ordinary users


ORDINARY = """
import asyncio, json, sys
from pathlib import Path
from proctor.trial.network import host_ports_open, model_port_open
from tests.environments.model_ports import answer_at
from tests.environments.orders import NO_NETWORK, PUBLIC, order_of
from tests.environments.sandboxes import running
from tests.environments.test_host_ports import serving

async def main(place):
    for name, network in (("none", NO_NETWORK), ("public", PUBLIC)):
        with serving() as gateway, serving() as other:
            order = order_of(place / name, network=network, model_port=gateway.port)
            async with running(order) as sandbox:
                seen = [await answer_at(sandbox, gateway.port)]
                async with model_port_open(sandbox):
                    seen += [await answer_at(sandbox, each.port) for each in (gateway, other)]
                print(json.dumps([sandbox._choice.network, *seen]))

asyncio.run(main(Path(sys.argv[1])))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can furnish a machine")
@with_slirp
def test_an_ordinary_users_sandbox_reaches_the_gateway() -> None:
    with ordinary_user.ordinary_home() as home:
        env = ordinary_user.environment(home, PROCTOR_CACHE=str(home / "cache"))
        ran = ordinary_user.run_as_ordinary_user(
            sys.executable, "-c", ORDINARY, home, home=home, env=env, machine=(TUN,)
        )
    assert ran.code == 0, ran.err
    seen = list(map(json.loads, ran.out.splitlines()))
    assert seen == [["none", "", ANSWER, ""], ["slirp4netns", "", ANSWER, ""]]
