"""The sandbox in which a Dockerfile is built, and its network.

Commands of a Dockerfile get what a trial with a public network gets: one of its own that a helper
connects, or else the host's, which whoever uses the result is told. Without commands there is none.
Nothing here does any step.
"""

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from proctor.environments.sandbox.blueprint import Blueprint, Network, Part
from proctor.environments.sandbox.box import Box
from proctor.environments.sandbox.network import Choice, choose_network, connect, resolver_for
from proctor.environments.sandbox.premises import Held
from proctor.environments.sandbox.roots.layers import Building
from proctor.environments.sandbox.subordinate import find_subordinate_ids
from proctor.errors import SandboxError
from proctor.task.network import NetworkMode, NetworkPolicy

type Spawn = Callable[[Blueprint], Awaitable[Box]]

_PUBLIC = NetworkPolicy(NetworkMode.PUBLIC)
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def choose_for_build(*, has_commands: bool) -> Choice:
    """The network for the build of a Dockerfile."""
    return choose_network(_PUBLIC) if has_commands else Choice(Network.NONE)


@asynccontextmanager
async def workplace(
    building: Building, name: str, network: Network, spawn: Spawn
) -> AsyncIterator[Box]:
    """A sandbox that writes into a layer that is being made; all of it has ended afterwards.

    Raises:
        SandboxError: it cannot be made or connected, or its connection broke meanwhile.
    """
    held = Held()
    try:
        box = held.box = await spawn(_draw(building, name, network))
        held.connection = await connect(network, box.pid, box.namespaces, building.stage)
        yield box
    except BaseException:
        with suppress(SandboxError, OSError):
            await held.let_go()
        raise
    await held.let_go()
    _forget_resolver(building)


def _draw(building: Building, name: str, network: Network) -> Blueprint:
    above = _lay_resolver(building, network)
    return Blueprint(
        session=name,
        root=str(building.session.root),
        parts=tuple(
            Part(target, (*above, *lowers) if target == "/" else lowers, str(upper), str(work))
            for target, lowers, upper, work in building.parts
        ),
        network=network,
        subordinate=find_subordinate_ids(),
        guarded=(),
    )


def _lay_resolver(building: Building, network: Network) -> tuple[str, ...]:
    """A layer with the helper's resolver; not what is written, or it would be kept."""
    text = resolver_for(network)
    if text is None:
        return ()
    layer = building.session.directory / "resolver"
    for directory in (layer, layer / "etc"):
        directory.mkdir()
        directory.chmod(0o755)
    path = layer / "etc" / "resolv.conf"
    path.write_text(text, encoding="utf-8")
    path.chmod(0o644)
    return (str(layer),)


def _forget_resolver(building: Building) -> None:
    """Drop what commands made of /etc/resolv.conf: it is each sandbox's own, as in Docker."""
    for target, _, upper, _ in building.parts:
        if target == "/":
            # Where there is none, or /etc became a link or somebody else's, it stays as it is.
            with suppress(OSError):
                _remove(upper)


def _remove(upper: Path) -> None:
    etc = os.open(upper / "etc", _DIRECTORY)
    try:
        os.unlink("resolv.conf", dir_fd=etc)
    finally:
        os.close(etc)
