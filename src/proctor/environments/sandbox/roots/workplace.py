"""The sandbox in which a Dockerfile is built, and its network.

Commands of a Dockerfile get the same network as a trial with a public network: their own, connected
by a helper, or else the host's, which is reported with the result. Without commands there is none.
As root, its users have their own ids as in a trial; on the disk, files have the same owners as
inside.
"""

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from proctor.environments.sandbox.blueprint import Blueprint, Network, Part
from proctor.environments.sandbox.box import Box
from proctor.environments.sandbox.network import Choice, choose_network, connect, resolver_for
from proctor.environments.sandbox.pool import Held, why_ids_shared
from proctor.environments.sandbox.privileges import is_all_powerful
from proctor.environments.sandbox.ranges import Range, take_range
from proctor.environments.sandbox.roots.layers import Building, discard
from proctor.environments.sandbox.roots.steps import Spawn
from proctor.environments.sandbox.subordinate import find_subordinate_ids
from proctor.errors import SandboxError
from proctor.task.network import NetworkMode, NetworkPolicy

_PUBLIC = NetworkPolicy(NetworkMode.PUBLIC)
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def choose_for_build(*, has_commands: bool) -> Choice:
    """Choose the network for building a Dockerfile."""
    return choose_network(_PUBLIC) if has_commands else Choice(Network.NONE)


@dataclass(frozen=True, slots=True)
class Workplace:
    """A sandbox that writes a new layer."""

    building: Building
    box: Box
    network: Network
    ids: Range | None
    """Host ids of its users; None: the same as inside."""
    ids_shared: str | None = None
    """If proctor runs as root: why its users share the host's ids; None if they do not."""

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[Box]:
        """Connect the sandbox to its network; end both afterwards.

        Raises:
            SandboxError: it cannot be connected, or the connection broke meanwhile.
        """
        held, box = Held(box=self.box), self.box
        stage = self.building.stage
        try:
            held.connection = await connect(self.network, box.pid, box.namespaces, stage)
            yield box
        except BaseException:
            with suppress(SandboxError, OSError):
                await held.release()
            raise
        await held.release()
        _forget_resolver(self.building)

    def clear(self) -> None:
        """Delete its scratch, after its processes have ended and the layer was moved away."""
        _clear(self.building, self.ids)


async def open_workplace(
    open_building: Callable[[], Building], name: str, network: Network, spawn: Spawn
) -> Workplace:
    """Make a sandbox for a build, with its own ids if possible."""
    if not is_all_powerful():
        return await _open(open_building, name, network, spawn, None)
    ids_shared = why_ids_shared(network)
    if ids_shared is None:
        try:
            return await _open(open_building, name, network, spawn, take_range())
        except SandboxError as error:
            ids_shared = str(error).rpartition("could not be built: ")[2]
    # In a new directory: overlayfs refuses an upper directory that was in use.
    place = await _open(open_building, name, network, spawn, None)
    return replace(place, ids_shared=ids_shared)


async def _open(
    open_building: Callable[[], Building],
    name: str,
    network: Network,
    spawn: Spawn,
    ids: Range | None,
) -> Workplace:
    building = open_building()
    try:
        box = await spawn(_draw(building, name, network, ids))
    except BaseException:
        _clear(building, ids)
        raise
    return Workplace(building, box, network, ids)


def _clear(building: Building, ids: Range | None) -> None:
    try:
        discard(building.session.directory)
    finally:
        if ids is not None:
            ids.close()


def _draw(building: Building, name: str, network: Network, ids: Range | None) -> Blueprint:
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
        first_id=0 if ids is None else ids.first,
        guarded=(),
    )


def _lay_resolver(building: Building, network: Network) -> tuple[str, ...]:
    """Make a read-only layer with the helper's resolv.conf, so that the result does not have it."""
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
    """Remove changes of /etc/resolv.conf, which belongs to each sandbox, as in Docker."""
    for target, _, upper, _ in building.parts:
        if target == "/":
            # Ignored if there is none, or if /etc became a symlink or belongs to another user.
            with suppress(OSError):
                _remove(upper)


def _remove(upper: Path) -> None:
    etc = os.open(upper / "etc", _DIRECTORY)
    try:
        os.unlink("resolv.conf", dir_fd=etc)
    finally:
        os.close(etc)
