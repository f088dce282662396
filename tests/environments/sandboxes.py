"""Sandboxes for tests, as trials have them, and what there is of them on this machine."""

import asyncio
import os
import re
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from ipaddress import IPv6Address
from pathlib import Path

import pytest

from proctor.environments.sandbox.delete import delete_tree
from proctor.environments.sandbox.environment import SandboxEnvironment
from proctor.environments.sandbox.scratch import can_hold_upper, scratch_roots, this_run
from proctor.environments.sandbox.subordinate import find_subordinate_ids
from proctor.environments.sandbox.syscalls import unmount
from proctor.filesystems import file_system_of, list_mounts
from proctor.trial.environment import Environment, EnvironmentOrder, Watched
from proctor.trial.finding import Finding, FindingCode

_OVERLAYS_PREFIX = "pd-engine-"
"""How directories begin in which Docker engines and builders of tests mount overlays."""

several_users = pytest.mark.skipif(
    os.geteuid() != 0 and not find_subordinate_ids(),
    reason="the sandbox of an ordinary user without subordinate ids has one user",
)


@asynccontextmanager
async def running(order: EnvironmentOrder) -> AsyncIterator[SandboxEnvironment]:
    """A sandbox that was started; it is stopped afterwards."""
    sandbox = SandboxEnvironment(order)
    await sandbox.start(force_build=False)
    try:
        yield sandbox
    finally:
        await sandbox.stop(delete=True)


async def until_running(place: Watched, *commands: str, with_services: bool = False) -> None:
    """Wait until these are its processes.

    One that was just started has its parent's command line, and one that was killed dies later.
    """
    end = time.monotonic() + 10
    expected = [*commands]
    while True:
        listed = await place.list_processes(with_services=with_services)
        found = sorted(each.command for each in listed)
        if found == expected:
            return
        assert time.monotonic() < end, found
        await asyncio.sleep(0.02)


async def said(place: Environment, command: str, **options: object) -> str:
    """What a command prints."""
    done = await place.exec(command, **options)  # type: ignore[arg-type]
    return (done.stdout or "").strip()


def found_in(sandbox: SandboxEnvironment) -> list[Finding]:
    """What was found, but for what is so in every sandbox of an ordinary user on the host."""
    return [one for one in sandbox.findings if one.code is not FindingCode.USR_READ_ONLY]


def find_groups() -> list[Path]:
    """Control groups of sandboxes of this process."""
    name = f"proctor-{this_run()}-*"
    tops = {mount.target for mount in list_mounts() if mount.kind.startswith("cgroup")}
    return [found for top in sorted(tops) for found in Path(top).rglob(f"{name}/")]


def find_mounts() -> list[str]:
    """What is mounted on the host, but for what tests beside this one mount."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    # Engines of other tests lie in temporary directories too, some on a disk of their own.
    others = re.compile(rf"{_OVERLAYS_PREFIX}|/popen-(?!{worker}/)|/tmp\w+/disk(?:/|$)")
    return [mount.target for mount in list_mounts() if not others.search(mount.target)]


@contextmanager
def place_for_overlays() -> Iterator[Path]:
    """A directory in which a program can mount overlays; nothing is left of it."""
    # Not pytest's own: a socket's path must be short, and an overlay cannot lie on an overlay.
    places = [Path(tempfile.gettempdir()), Path("/dev/shm")]
    place = next(each for each in places if can_hold_upper(file_system_of(each)))
    top = Path(tempfile.mkdtemp(prefix=_OVERLAYS_PREFIX, dir=place))
    try:
        yield top
    finally:
        for target in reversed(find_mounts_below(top)):
            unmount(target)
        delete_tree(top)


def find_mounts_below(*tops: Path) -> list[str]:
    """What is mounted below directories just now."""
    starts = tuple(f"{top}/" for top in tops)
    return [mount.target for mount in list_mounts() if mount.target.startswith(starts)]


def find_scratch() -> list[Path]:
    """Scratch directories of sandboxes of this process."""
    run = scratch_roots()[0] / str(this_run())
    return [entry for entry in run.iterdir() if (entry / "session.json").exists()]


def find_helpers() -> list[int]:
    """Processes that connect sandboxes of this process to the network; pasta is passt's."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            before, _, after = status.read_text().rpartition(")")
        except OSError:
            continue
        state, parent = after.split()[:2]
        is_helper = any(name in before for name in ("slirp4netns", "passt", "pasta"))
        if is_helper and int(parent) == os.getpid() and state != "Z":
            found.append(int(status.parent.name))
    return found


def host_addresses() -> list[str]:
    """The addresses of this machine's interfaces, but for loopback, as the kernel lists them."""
    found, last = set(), ""
    for line in Path("/proc/net/fib_trie").read_text().splitlines():
        if line.strip().startswith("|-- "):
            last = line.split()[1]
        elif "/32 host LOCAL" in line and not last.startswith("127."):
            found.add(last)
    if Path("/proc/net/if_inet6").exists():
        lines = [line.split() for line in Path("/proc/net/if_inet6").read_text().splitlines()]
        # Scope 0 is global; addresses of one link are not routed.
        found |= {str(IPv6Address(bytes.fromhex(words[0]))) for words in lines if words[3] == "00"}
    return sorted(found)
