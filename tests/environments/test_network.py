"""The network of a sandbox: which it is, and that the host's loopback stays closed."""

import asyncio
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from proctor.environments.sandbox.blueprint import Network
from proctor.environments.sandbox.environment import SandboxEnvironment
from proctor.environments.sandbox.network import Choice, choose_network, connect, resolver_for
from proctor.environments.sandbox.reap import reap_dead_runs
from proctor.environments.sandbox.syscalls import mount, unmount
from proctor.errors import SandboxError, UnsupportedError
from proctor.task.network import NetworkMode, NetworkPolicy
from proctor.trial.finding import FindingCode
from tests.environments.orders import NO_NETWORK, PUBLIC, order_of
from tests.environments.sandboxes import (
    find_helpers,
    find_scratch,
    found_in,
    host_addresses,
    running,
    said,
)

HERE = Path(__file__).resolve().parent
TOLD = "of the host"
MS_SHARED = 1 << 20
# From which address packets to each of some others would be sent, or why not.
ASK_FOR_ROUTE = r"""/usr/bin/env python3 -c '
import socket, sys
for host in sys.argv[1:]:
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
            asking.connect((host, 9))
            print(asking.getsockname()[0])
    except OSError as error:
        print(error)
'"""

with_slirp = pytest.mark.skipif(
    shutil.which("slirp4netns") is None or not os.access("/dev/net/tun", os.W_OK),
    reason="slirp4netns is not installed, or /dev/net/tun cannot be opened",
)


@contextmanager
def loopback_service() -> Iterator[int]:
    """A service on the host's loopback that tells a secret to whoever connects; its port."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.05)
        over = threading.Event()

        def serve() -> None:
            while not over.is_set():
                try:
                    with server.accept()[0] as caller:
                        caller.sendall(TOLD.encode())
                except TimeoutError:
                    continue

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            over.set()
            thread.join()


@contextmanager
def only_these(place: Path, *programs: str) -> Iterator[str]:
    """A PATH with nothing else on it."""
    place.mkdir()
    for program in programs:
        (place / program).symlink_to(shutil.which(program) or "")
    yield str(place)


def test_no_network_is_none() -> None:
    assert choose_network(NO_NETWORK) == Choice(Network.NONE)


def test_a_list_of_hosts_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="cannot restrict a task to a list of hosts"):
        choose_network(NetworkPolicy(NetworkMode.ALLOWLIST, ("packages.example.org",)))


def test_public_is_the_hosts_own_where_no_helper_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with only_these(tmp_path / "bin", "sh") as path:
        monkeypatch.setenv("PATH", path)
        choice = choose_network(PUBLIC)
    assert choice.network is Network.HOST
    assert "slirp4netns" in (choice.shared_because or "")


@with_slirp
def test_public_goes_through_slirp4netns_where_it_is_installed() -> None:
    assert choose_network(PUBLIC) == Choice(Network.SLIRP)


def test_a_helpers_own_resolver_is_used_and_else_the_hosts() -> None:
    assert resolver_for(Network.SLIRP) == "nameserver 10.0.2.3\n"
    assert resolver_for(Network.HOST) is None
    assert resolver_for(Network.NONE) is None


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize("policy", [NO_NETWORK, pytest.param(PUBLIC, marks=with_slirp)])
def test_the_hosts_loopback_is_closed(tmp_path: Path, policy: NetworkPolicy) -> None:
    async def go(port: int) -> str:
        async with running(order_of(tmp_path, network=policy)) as sandbox:
            assert not found_in(sandbox)
            knock = f"(exec 3<>/dev/tcp/$host/{port} && timeout 2 cat <&3) 2>/dev/null"
            hosts = "127.0.0.1 ::1 10.0.2.2 10.0.2.3 localhost"
            return await said(sandbox, f"for host in {hosts}; do {knock}; done; echo end")

    with loopback_service() as port:
        assert asyncio.run(go(port)) == "end"


@with_slirp
@pytest.mark.usefixtures("cache")
@pytest.mark.skipif(not host_addresses(), reason="this machine has no address but loopback")
def test_the_hosts_own_addresses_are_refused_and_the_rest_is_not(tmp_path: Path) -> None:
    hosts = [*host_addresses(), "10.0.2.2"]

    async def go(port: int) -> tuple[str, str, str]:
        async with running(order_of(tmp_path, network=PUBLIC)) as sandbox:
            knock = f"(exec 3<>/dev/tcp/$host/{port}) 2>/dev/null && echo reached $host"
            reached = await said(sandbox, f"for host in {' '.join(hosts)}; do {knock}; done; true")
            routes = await said(sandbox, "awk '$2 == \"00000000\" {print $1}' /proc/net/route")
            return reached, routes, await said(sandbox, f"{ASK_FOR_ROUTE} {hosts[0]} 198.51.100.1")

    with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as server:
        port = server.getsockname()[1]
        for host in host_addresses():
            socket.create_connection((host, port), timeout=5).close()
        assert asyncio.run(go(port)) == ("", "tap0", "[Errno 113] No route to host\n10.0.2.100")


@with_slirp
@pytest.mark.usefixtures("cache")
@pytest.mark.skipif(shutil.which("ip") is None, reason="ip is not installed")
async def test_nobody_inside_can_remove_the_routes(tmp_path: Path) -> None:
    async with running(order_of(tmp_path, network=PUBLIC)) as sandbox:
        before = await said(sandbox, "ip route; ip -6 route")
        for kind in ("-4", "-6"):
            await sandbox.exec(f"ip {kind} route flush type unreachable; ip {kind} route flush all")
        after = await said(sandbox, "ip route; ip -6 route")
    assert before.count("unreachable") == after.count("unreachable") == len(host_addresses())


@pytest.mark.usefixtures("cache")
def test_the_hosts_own_network_is_a_finding_and_reaches_its_loopback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def go(port: int) -> tuple[str, list[FindingCode]]:
        async with running(order_of(tmp_path, network=PUBLIC)) as sandbox:
            text = await said(sandbox, f"exec 3<>/dev/tcp/127.0.0.1/{port} && cat <&3")
            return text, [finding.code for finding in found_in(sandbox)]

    with loopback_service() as port, only_these(tmp_path / "bin", "sh") as path:
        monkeypatch.setenv("PATH", path)
        assert asyncio.run(go(port)) == (TOLD, [FindingCode.NETWORK_SHARED])


@with_slirp
@pytest.mark.usefixtures("cache")
async def test_a_connected_sandbox_has_a_way_out_and_a_resolver_and_its_helper_ends_with_it(
    tmp_path: Path,
) -> None:
    async with running(order_of(tmp_path, network=PUBLIC)) as sandbox:
        assert len(find_helpers()) == 1
        lines = "cat /etc/resolv.conf; awk '$2 == \"00000000\" {print $1}' /proc/net/route"
        assert (await said(sandbox, lines)) == "nameserver 10.0.2.3\ntap0"
    assert find_helpers() == []


@with_slirp
@pytest.mark.usefixtures("cache")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount something to be unmounted")
def test_what_the_host_has_mounted_stays_mounted(tmp_path: Path) -> None:
    # As Docker's containers are: below a mount whose changes others see as well.
    top, below = tmp_path / "top", tmp_path / "top" / "below"
    top.mkdir()
    mount("tmpfs", str(top), "tmpfs")
    try:
        mount("", str(top), flags=MS_SHARED)
        below.mkdir()
        mount("tmpfs", str(below), "tmpfs")

        async def go() -> bool:
            async with running(order_of(tmp_path, network=PUBLIC)):
                return below.is_mount()

        assert asyncio.run(go())
        assert below.is_mount()
    finally:
        unmount(str(top))


@with_slirp
def test_a_helper_ends_when_its_runner_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    argv = [sys.executable, str(HERE / "ordinary_trial.py"), str(tmp_path), "public", "--wait"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as runner:
        assert runner.stdout is not None
        assert '"helpers": 1' in runner.stdout.readline()
        (helper,) = Path(f"/proc/{runner.pid}/task/{runner.pid}").glob("children")
        children = [int(pid) for pid in helper.read_text().split()]
        assert len(children) == 2  # the zygote, and the helper
        ends = [os.pidfd_open(pid) for pid in children]
        runner.send_signal(signal.SIGKILL)
        wait_for_end(ends)
    monkeypatch.setenv("PROCTOR_CACHE", str(tmp_path / "cache"))
    assert len(reap_dead_runs().sessions) == 1


def wait_for_end(handles: list[int]) -> None:
    """Wait until processes are dead, whoever their parent is."""
    for handle in handles:
        assert select.select([handle], [], [], 30)[0]
        os.close(handle)


@pytest.mark.usefixtures("cache")
@pytest.mark.skipif(not os.access("/dev/net/tun", os.W_OK), reason="/dev/net/tun cannot be opened")
def test_a_helper_that_fails_is_an_error_with_its_own_words_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with only_these(tmp_path / "bin", "sh", "nsenter", "unshare") as path:
        helper = tmp_path / "bin" / "slirp4netns"
        helper.write_text("#!/bin/sh\necho no network today\nexit 1\n")
        helper.chmod(0o755)
        monkeypatch.setenv("PATH", path)
        sandbox = SandboxEnvironment(order_of(tmp_path, network=PUBLIC))
        with pytest.raises(SandboxError, match=r"slirp4netns could not .*: no network today; with"):
            asyncio.run(sandbox.start(force_build=False))
    assert find_scratch() == []


def test_a_sandbox_that_needs_no_helper_gets_none(tmp_path: Path) -> None:
    for network in (Network.NONE, Network.HOST):
        assert asyncio.run(connect(network, 1, (), tmp_path)) is None
