"""Ports of the host that a job declares are reached from a sandbox, and nothing else of it is."""

import asyncio
import json
import logging
import os
import shutil
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from proctor.environments.kinds import check_options
from proctor.environments.sandbox.environment import SandboxEnvironment
from proctor.environments.sandbox.host_ports import HostPort, host_ports_of, parse_host_port
from proctor.errors import UnsupportedError
from proctor.harbor.configs import SANDBOX, EnvironmentConfig
from proctor.trial.environment import EnvironmentOrder
from proctor.trial.finding import FindingCode, level_of
from tests import ordinary_user
from tests.become_user import TUN
from tests.environments.orders import NO_NETWORK, PUBLIC, order_of
from tests.environments.sandboxes import found_in, host_addresses, running, said
from tests.environments.test_network import only_these, with_slirp

ANSWER = "of the host"
SPELLINGS = ("0", "[::]", "[::ffff:127.0.0.1]", "127.1", "2130706433", "10.0.2.2", "10.0.2.3")
"""Other ways to say loopback, and what slirp4netns plays."""


MANY_CONNECTIONS = """
import select, socket, sys, time
def answered(held, n):
    poll, found = select.poll(), set()
    for each in held:
        poll.register(each, select.POLLIN)
    while len(found) < n and (ready := poll.poll(5000)):
        for fd, _ in ready:
            found.add(fd)
            poll.unregister(fd)
    return len(found) + len(poll.poll(300))
held = [socket.create_connection(("127.0.0.1", int(sys.argv[1]))) for _ in range(300)]
for each in held:
    each.sendall(b"GET / HTTP/1.1\\r\\nHost: here\\r\\n\\r\\n")
first = answered(held, 256)
for each in held[:256]:
    each.close()
print(first, "answered, then", answered(held[256:], 44))
"""
"""Opens 300 connections that stay open, then closes the first 256; prints how many answered."""


class Service(BaseHTTPRequestHandler):
    """Answers every path; /away leads to the port that the query names."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        path, _, port = self.path.partition("?")
        if path == "/away":
            self.send_response(302)
            self.send_header("Location", f"http://127.0.0.1:{port}/")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(ANSWER)))
        self.end_headers()
        self.wfile.write(ANSWER.encode())

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[::-1])

    def log_message(self, *_words: object) -> None:
        """Nothing is printed."""


class Server(ThreadingHTTPServer):
    request_queue_size = 512

    def __init__(self, address: str) -> None:
        self.address_family = socket.AF_INET6 if ":" in address else socket.AF_INET
        super().__init__((address, 0), Service)


@contextmanager
def serving(address: str = "127.0.0.1") -> Iterator[HostPort]:
    """A web server on the host."""
    with Server(address) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield HostPort(address, server.server_address[1])
        finally:
            server.shutdown()
            thread.join()


def declaring(place: Path, *ports: HostPort, **more: object) -> EnvironmentOrder:
    """An order of a job that declares ports."""
    kwargs = {"host_ports": list(map(str, ports))} if ports else {}
    config = EnvironmentConfig(import_path=SANDBOX, kwargs=kwargs)
    return order_of(place, config=config, **{"network": PUBLIC, **more})  # type: ignore[arg-type]


async def fetched(sandbox: SandboxEnvironment, *urls: object, user: str | None = None) -> list[str]:
    """What each URL answers from inside, or nothing."""
    get = "curl -s -L -m 5 --noproxy '*'"
    words = " ".join(f"'{url}'" for url in urls)
    out = await said(sandbox, f'for u in {words}; do echo "$({get} $u)".; done', user=user)
    return [line.removesuffix(".") for line in out.split("\n")]


@with_slirp
@pytest.mark.usefixtures("cache")
class TestReached:
    """From inside a sandbox with a network of its own."""

    def test_a_declared_port_answers_and_others_of_its_address_are_refused(
        self, tmp_path: Path
    ) -> None:
        async def go(declared: HostPort, other: HostPort) -> None:
            async with running(declaring(tmp_path, declared)) as sandbox:
                await sandbox.open_host_ports()
                urls = [f"http://{declared}/", f"http://localhost:{declared.port}/"]
                for user in ("root", "nobody"):
                    assert await fetched(sandbox, *urls, user=user) == [ANSWER] * 2
                elsewhere = [f"http://{host}:{other.port}/" for host in SPELLINGS]
                away = f"http://{declared}/away?{other.port}"
                out = await fetched(sandbox, f"http://{other}/", away, *elsewhere)
                assert ANSWER not in out

        with serving() as declared, serving() as other:
            asyncio.run(go(declared, other))

    def test_undeclared_ports_are_all_refused(self, tmp_path: Path) -> None:
        async def go(port: HostPort) -> None:
            async with running(declaring(tmp_path)) as sandbox:
                await sandbox.open_host_ports()
                hosts = ["127.0.0.1", *SPELLINGS]
                out = await fetched(sandbox, *(f"http://{host}:{port.port}/" for host in hosts))
                assert ANSWER not in out
                assert found_in(sandbox) == []

        with serving() as port:
            asyncio.run(go(port))

    @pytest.mark.parametrize("address", ["::1", *host_addresses()])
    def test_other_addresses_of_the_host_can_be_declared(
        self, tmp_path: Path, address: str
    ) -> None:
        async def go(port: HostPort, other: HostPort, near: HostPort) -> list[str]:
            async with running(declaring(tmp_path, port)) as sandbox:
                await sandbox.open_host_ports()
                urls = [f"http://{each}/" for each in (port, other, near)]
                return await fetched(sandbox, *urls)

        with serving(address) as port, serving(address) as other, serving() as near:
            assert asyncio.run(go(port, other, near)) == [ANSWER, "", ""]

    def test_a_declared_port_is_the_agents_alone(self, tmp_path: Path) -> None:
        async def go(port: HostPort) -> None:
            async with running(declaring(tmp_path, port)) as sandbox:
                assert await fetched(sandbox, f"http://{port}/") == [""]
                await sandbox.open_host_ports()
                held = f"exec 3<>/dev/tcp/{port.address}/{port.port}; echo open > /tmp/is; cat <&3"
                await sandbox.exec(f"bash -c '{held}; echo over > /tmp/is' > /dev/null 2>&1 &")
                while await said(sandbox, "cat /tmp/is") != "open":
                    await asyncio.sleep(0.01)
                await sandbox.close_host_ports()
                while await said(sandbox, "cat /tmp/is") != "over":
                    await asyncio.sleep(0.01)
                await sandbox.freeze()
                room = await sandbox.open_room(["/tests", "/logs/verifier"])
                knock = f"exec 3<>/dev/tcp/{port.address}/{port.port} && echo open"
                assert "Connection refused" in await said(room, f"{knock} 2>&1")
                # Tests of a task whose own server has that port.
                serve = f"python3 -m http.server {port.port} --bind 127.0.0.1 >/dev/null 2>&1 &"
                await room.exec(serve)
                wait = f"for i in $(seq 100); do ({knock}) && break; sleep 0.1; done 2>/dev/null"
                assert await said(room, wait) == "open"
                other = await sandbox.open_frozen(sandbox.trial_paths)
                try:
                    assert await fetched(other, f"http://{port}/") == [""]
                finally:
                    await other.stop(delete=True)

        with serving() as port:
            asyncio.run(go(port))

    def test_the_next_step_of_a_task_reaches_it_again(self, tmp_path: Path) -> None:
        async def go(port: HostPort) -> None:
            async with running(declaring(tmp_path, port)) as sandbox:
                for _ in range(3):
                    await sandbox.open_host_ports()
                    assert await fetched(sandbox, f"http://{port}/") == [ANSWER]
                    await sandbox.close_host_ports()
                    assert await fetched(sandbox, f"http://{port}/") == [""]
                assert len(found_in(sandbox)) == 1

        with serving() as port:
            asyncio.run(go(port))

    def test_a_program_that_took_the_port_meanwhile_is_no_error(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        async def go(port: HostPort) -> None:
            async with running(declaring(tmp_path, port)) as sandbox:
                serve = f"python3 -m http.server {port.port} --bind 127.0.0.1 >/dev/null 2>&1 &"
                await sandbox.exec(f"cd /tmp; echo own > index.html; {serve}")
                while await fetched(sandbox, f"http://{port}/") != ["own"]:
                    await asyncio.sleep(0.05)
                await sandbox.open_host_ports()
                assert await fetched(sandbox, f"http://{port}/") == ["own"]

        with serving() as port, caplog.at_level(logging.WARNING):
            asyncio.run(go(port))
        assert f"{port} cannot be reached from the sandbox: Address already in use" in caplog.text

    def test_large_bodies_and_many_connections_are_passed_on(self, tmp_path: Path) -> None:
        async def go(port: HostPort) -> str:
            async with running(declaring(tmp_path, port)) as sandbox:
                await sandbox.open_host_ports()
                post = f"curl -s -m 100 --data-binary @/tmp/in http://{port}/"
                return await said(
                    sandbox,
                    "head -c 5000000 /dev/urandom > /tmp/in; "
                    f"for n in $(seq 8); do {post} > /tmp/out-$n & done; wait; "
                    'python3 -c \'d = open("/tmp/in", "rb").read()[::-1]\n'
                    'print(sum(open(f"/tmp/out-{n}", "rb").read() == d for n in range(1, 9)))\'',
                )

        with serving() as port:
            assert asyncio.run(go(port)) == "8"

    def test_more_connections_than_the_runner_takes_wait_until_others_end(
        self, tmp_path: Path
    ) -> None:
        async def go(port: HostPort) -> str:
            async with running(declaring(tmp_path, port)) as sandbox:
                await sandbox.open_host_ports()
                return await said(sandbox, f"python3 -c '{MANY_CONNECTIONS}' {port.port}")

        with serving() as port:
            assert asyncio.run(go(port)) == "256 answered, then 44"

    def test_a_service_that_is_down_resets_connections(self, tmp_path: Path) -> None:
        async def go(port: HostPort) -> list[str]:
            async with running(declaring(tmp_path, port)) as sandbox:
                await sandbox.open_host_ports()
                return await fetched(sandbox, f"http://{port}/")

        with serving() as port:
            pass
        assert asyncio.run(go(port)) == [""]

    def test_the_finding_names_the_ports(self, tmp_path: Path) -> None:
        async def go(ports: list[HostPort]) -> None:
            async with running(declaring(tmp_path, *ports)) as sandbox:
                assert found_in(sandbox) == []
                await sandbox.open_host_ports()
                (found,) = found_in(sandbox)
                assert found.code is FindingCode.HOST_PORTS_OPEN
                assert level_of(found.code) == "info"
                assert found.message == (
                    f"the agent could reach {ports[0]}, {ports[1]} on the host: --allow-host-port"
                )
                assert found.detail == {"ports": list(map(str, ports))}

        with serving() as one, serving("::1") as two:
            asyncio.run(go([one, two]))


# What is refused


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("8000", "expected ADDRESS:PORT, such as 127.0.0.1:8000 or [::1]:8000"),
        ("127.0.0.1", "expected ADDRESS:PORT"),
        ("127.0.0.1:0", "expected ADDRESS:PORT"),
        ("127.0.0.1:65536", "expected ADDRESS:PORT"),
        ("127.0.0.1:80/v1", "expected ADDRESS:PORT"),
        ("http://127.0.0.1:80", "expected ADDRESS:PORT"),
        ("::1:8000", "expected ADDRESS:PORT"),
        ("[127.0.0.1]:8000", "expected ADDRESS:PORT"),
        (":8000", "'' is not an IP address"),
        ("localhost:8000", "'localhost' is not an IP address; expected ADDRESS:PORT, such as 127."),
        ("127.1:8000", "'127.1' is not an IP address"),
        ("127.0.0.1:\N{FULLWIDTH DIGIT EIGHT}", "expected ADDRESS:PORT"),
        ("0.0.0.0:8000", "0.0.0.0 means all addresses; name one"),
        ("[::]:8000", ":: means all addresses"),
        ("[::ffff:127.0.0.1]:80", "this is an IPv4 address; write 127.0.0.1"),
        ("[fe80::1%lo]:80", "a link-local address"),
        ("10.0.2.2:80", "slirp4netns or pasta answers at 10.0.2.2"),
    ],
)
def test_what_is_not_one_address_and_one_port_is_refused(text: str, sentence: str) -> None:
    with pytest.raises(UnsupportedError) as refused:
        parse_host_port(text)
    assert str(refused.value).startswith(f"--allow-host-port {text}: {sentence}")


def test_spellings_of_one_port_are_one() -> None:
    ports = host_ports_of({"host_ports": ["[0:0::1]:08000", "[::1]:8000", "127.0.0.1:1"]})
    assert list(map(str, ports)) == ["[::1]:8000", "127.0.0.1:1"]
    assert host_ports_of({"host_ports": "127.0.0.1:1"}) == (HostPort("127.0.0.1", 1),)


@pytest.mark.parametrize("value", [8000, [8000], {"a": 1}])
def test_a_value_that_is_no_list_of_texts_is_refused(value: object) -> None:
    with pytest.raises(UnsupportedError, match="expected a list of ADDRESS:PORT"):
        host_ports_of({"host_ports": value})


def test_more_ports_than_a_sandbox_hands_out_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="17 ports; expected at most 16"):
        host_ports_of({"host_ports": [f"127.0.0.1:{n}" for n in range(1, 18)]})


@with_slirp
@pytest.mark.parametrize(
    "address", ["198.51.100.1", "[2001:db8::1]", "224.0.0.1", "255.255.255.255"]
)
def test_an_address_of_another_machine_is_refused_before_the_job(address: str) -> None:
    config = EnvironmentConfig(import_path=SANDBOX, kwargs={"host_ports": [f"{address}:80"]})
    with pytest.raises(UnsupportedError, match="is not an address of this machine"):
        check_options(config)


@with_slirp
def test_addresses_of_this_machine_will_do() -> None:
    ports = [HostPort(address, 80) for address in ("127.0.0.1", "::1", *host_addresses())]
    kwargs = {"host_ports": list(map(str, ports))}
    check_options(EnvironmentConfig(import_path=SANDBOX, kwargs=kwargs))


def test_without_a_helper_it_is_refused_because_every_port_would_be_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = EnvironmentConfig(import_path=SANDBOX, kwargs={"host_ports": ["127.0.0.1:80"]})
    with only_these(tmp_path / "bin", "sh") as path:
        monkeypatch.setenv("PATH", path)
        with pytest.raises(UnsupportedError, match=r"every port can be reached \(slirp4netns"):
            check_options(config)


@pytest.mark.usefixtures("cache")
async def test_a_task_without_a_network_keeps_having_none(tmp_path: Path) -> None:
    port = HostPort("127.0.0.1", 80)
    async with running(declaring(tmp_path, port, network=NO_NETWORK)) as sandbox:
        with pytest.raises(UnsupportedError, match="network_mode is 'no-network'; only tasks"):
            await sandbox.open_host_ports()


# Ordinary users


ORDINARY = """
import asyncio, json, sys
from pathlib import Path
from tests.environments.sandboxes import host_addresses, running
from tests.environments.test_host_ports import declaring, fetched, serving

async def main(place, addresses):
    for address in addresses:
        with serving(address) as port, serving(address) as other:
            async with running(declaring(place / address.replace(":", "-"), port)) as sandbox:
                await sandbox.open_host_ports()
                urls = [f"http://{each}/" for each in (port, other)]
                print(json.dumps([sandbox._choice.network, await fetched(sandbox, *urls)]))

asyncio.run(main(Path(sys.argv[1]), ["127.0.0.1", "::1", *host_addresses()]))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can furnish a machine")
@pytest.mark.parametrize("helper", ["slirp4netns", "pasta"])
def test_an_ordinary_users_sandbox_reaches_declared_ports_through_either_helper(
    helper: str,
) -> None:
    if shutil.which(helper) is None:
        pytest.skip(f"{helper} is not installed")
    with ExitStack() as stack:
        home = stack.enter_context(ordinary_user.ordinary_home())
        path = stack.enter_context(only_these(home / "bin", helper, "sh", "nsenter"))
        env = ordinary_user.environment(home, PATH=path, PROCTOR_CACHE=str(home / "cache"))
        ran = ordinary_user.run_as_ordinary_user(
            sys.executable, "-c", ORDINARY, home, home=home, env=env, machine=(TUN,)
        )
    assert ran.code == 0, ran.err
    seen = list(map(json.loads, ran.out.splitlines()))
    assert seen == [[helper, [ANSWER, ""]]] * (2 + len(host_addresses()))
