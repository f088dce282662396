"""The network of a Dockerfile's commands: a trial's public one, never the host's loopback."""

import json
import sys
from pathlib import Path

import pytest

from proctor.trial.finding import FindingCode
from tests.become_user import TUN
from tests.environments.sandbox.sites import OnSite, Site
from tests.environments.test_network import TOLD, loopback_service, only_these, with_slirp
from tests.ordinary_user import environment, ordinary_home, run_as_ordinary_user
from tests.task.trees import write


def knocking(port: int) -> str:
    """A Dockerfile that keeps what a service on the host's loopback tells, in its own build."""
    knock = f"timeout 1 bash -c 'cat < /dev/tcp/$0/{port}' $host 2>/dev/null"
    hosts = "127.0.0.1 ::1 10.0.2.2 10.0.2.3 localhost"
    shell = 'SHELL ["/bin/bash", "-c"]'
    return f"FROM scratch\n{shell}\nRUN for host in {hosts}; do {knock}; done > /told; true\n"


@with_slirp
def test_a_build_does_not_reach_the_hosts_loopback(on_site: OnSite) -> None:
    async def act(site: Site) -> None:
        root = await site.build(knocking(port), base="host")
        assert await site.said(root, "cat /told") == ""
        assert FindingCode.NETWORK_SHARED not in {finding.code for finding in root.findings}

    with loopback_service() as port:
        on_site(act)


@with_slirp
def test_a_build_has_a_way_out_and_a_resolver_that_it_does_not_leave_behind(
    on_site: OnSite,
) -> None:
    async def act(site: Site) -> None:
        root = await site.build(
            "FROM small\n"
            "RUN cat /etc/resolv.conf > /resolver && cat /proc/net/route > /route\n"
            "RUN chown -R root /etc && touch /etc/new\n"
        )
        assert await site.said(root, "cat /resolver") == "nameserver 10.0.2.3"
        assert "tap0\t00000000" in await site.said(root, "cat /route")
        said = await site.said(root, "cat /etc/resolv.conf; ls /etc/new")
        assert "10.0.2.3" not in said
        assert said.endswith("/etc/new")

    on_site(act)


def test_a_build_on_the_hosts_network_is_a_finding_of_every_use_of_it(
    on_site: OnSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def act(site: Site) -> None:
        write(site.task, {"Dockerfile": knocking(port)})
        with monkeypatch.context() as patch:
            patch.setenv("PATH", path)
            made = await site.build(base="host")
        kept = await site.build(base="host")
        assert site.n_spawned == 1
        assert await site.said(kept, "cat /told") == TOLD * 2
        for root in (made, kept):
            (found,) = (one for one in root.findings if one.code is FindingCode.NETWORK_SHARED)
            said = "the Dockerfile was built on the host's network: slirp4netns"
            assert found.message.startswith(said)
            assert found.detail["during"] == "build"

    with loopback_service() as port, only_these(tmp_path / "bin", "sh") as path:
        on_site(act)


def test_a_build_without_commands_has_no_network_and_no_finding(
    on_site: OnSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def act(site: Site) -> None:
        write(site.task, {"a": "a"})
        root = await site.build("FROM small\nCOPY --chown=0 a /deep/a\n")
        assert (root.findings, site.n_spawned) == ((), 1)

    with only_these(tmp_path / "bin", "sh") as path:
        monkeypatch.setenv("PATH", path)
        on_site(act)


ORDINARY = """
import asyncio, json, sys
from pathlib import Path
from tests.environments.sandbox.sites import site_at
from tests.environments.sandbox.test_build_network import knocking
from tests.environments.test_network import loopback_service

async def main(root):
    async with site_at(root) as site:
        with loopback_service() as port:
            text = knocking(port) + "RUN cat /etc/resolv.conf > /resolver\\n"
            made = await site.build(text, base="host")
        codes = [finding.code for finding in made.findings]
        print(json.dumps([codes, await site.said(made, "cat /told /resolver")]))

asyncio.run(main(Path(sys.argv[1])))
"""


@with_slirp
@pytest.mark.parametrize(
    ("helpers", "resolver"), [(("slirp4netns",), "10.0.2.3"), (("pasta",), "169.254.0.1")]
)
def test_an_ordinary_users_build_goes_through_either_helper(
    tmp_path: Path, helpers: tuple[str, ...], resolver: str
) -> None:
    tools = ("sh", "nsenter", "newuidmap", "newgidmap", *helpers)
    with ordinary_home() as home, only_these(home / "bin", *tools) as path:
        env = environment(home, PATH=path, PROCTOR_CACHE=str(home / "cache"))
        ran = run_as_ordinary_user(
            sys.executable, "-c", ORDINARY, home, home=home, env=env, machine=(TUN,)
        )
        assert ran.code == 0, ran.err
        said = json.loads(ran.out)
    assert said == [["base-substituted"], f"nameserver {resolver}"]
