"""What sandboxes of one zygote have in common, and one that waits ready for the next trial.

    hold_new     scratch, control groups and processes of a sandbox
    hold_ready   the same, made ahead where the last trial wanted just such a one

Much of the making of a sandbox is waiting for the kernel. Where two trials in a row want the same,
a third will, and its sandbox is made while they run. Nothing of a trial is in it until it is taken.
"""

import asyncio
import time
import weakref
from collections.abc import Awaitable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count
from pathlib import Path

from proctor.environments.sandbox.blueprint import Blueprint, Network
from proctor.environments.sandbox.box import Box, Zygote
from proctor.environments.sandbox.host_ports import HostPort, Relay
from proctor.environments.sandbox.limits import (
    PREFIX,
    Groups,
    Hierarchy,
    Limits,
    find_hierarchies,
    make_groups,
    remove_group,
    remove_groups,
)
from proctor.environments.sandbox.network import Connection, resolver_for
from proctor.environments.sandbox.privileges import is_all_powerful
from proctor.environments.sandbox.reap import bring_in
from proctor.environments.sandbox.roots.layers import Parts
from proctor.environments.sandbox.scratch import Place, Run, find_place, open_run
from proctor.environments.sandbox.slots import Slot, Slots, stamp_again
from proctor.environments.sandbox.subordinate import IdMap, find_subordinate_ids
from proctor.errors import SandboxError

_PATIENCE_SEC = 5.0


@dataclass(frozen=True, slots=True)
class PoolRequest:
    """What decides a sandbox before there is anything of a trial in it."""

    root: Parts
    network: Network
    limits: Limits
    directories: tuple[str, ...]
    host_ports: tuple[HostPort, ...] = ()
    is_frozen: bool = False
    """Its root is what a trial has left: it is for that trial alone, and nothing is put there."""


@dataclass(slots=True)
class Held:
    """All that a sandbox holds of the machine."""

    slots: Slots | None = None
    slot: Slot | None = None
    groups: Groups = field(default_factory=lambda: Groups((), {}))
    box: Box | None = None
    connection: Connection | None = None
    relay: Relay | None = None
    is_owed: bool = False
    """The trial did not get all that it asked for: what is evidence is brought to it at the end."""
    ids_shared: str | None = None
    """As root: why its users have the host's ids, where they have."""

    async def let_go(self) -> None:
        """End its processes, then give back what they held; one that fails keeps no other back.

        Raises:
            SandboxError, OSError: something does not go away.
        """
        ends: list[Awaitable[None]] = []
        if self.connection is not None:
            ends.append(self.connection.close())
        if self.relay is not None:
            ends.append(self.relay.end())
        if self.box is not None:
            ends.append(self.box.kill())
        failed = await asyncio.gather(*ends, return_exceptions=True)
        traces: list[Awaitable[None]] = [remove_groups(self.groups.directories)]
        if self.slots is not None and self.slot is not None:
            if self.is_owed:
                traces.append(asyncio.to_thread(_bring_in, self.slot))
            else:
                traces.append(self.slots.give(self.slot))
        failed += await asyncio.gather(*traces, return_exceptions=True)
        for failure in failed:
            if failure is not None:
                raise failure


def _bring_in(slot: Slot) -> None:
    try:
        bring_in(slot.session.directory)
    finally:
        if slot.ids is not None:
            slot.ids.close()


class SandboxPool:
    """Where the sandboxes of one zygote are made."""

    def __init__(self, zygote: Zygote) -> None:
        self._zygote = zygote
        self._slots = Slots()
        self._numbers = count(1)
        self._last: PoolRequest | None = None
        self._ready: tuple[PoolRequest, asyncio.Task[Held | None]] | None = None
        self._without_ids: dict[Parts, str] = {}
        """Roots on which no sandbox can have ids of its own, with the reason."""
        zygote.at_close(self._close)

    @cached_property
    def place(self) -> Place:
        """Where sandboxes write."""
        return find_place()

    @cached_property
    def run(self) -> Run:
        """The scratch of this run."""
        return open_run(self.place.root)

    @cached_property
    def _hierarchies(self) -> list[Hierarchy]:
        return find_hierarchies()

    @cached_property
    def _subordinate(self) -> IdMap:
        return find_subordinate_ids()

    async def hold_new(self, request: PoolRequest, name: str, held: Held) -> None:
        """Make a sandbox; what it has so far is in `held`, whatever becomes of it.

        Raises:
            SandboxError, OSError: it cannot be made.
        """
        held.slots = self._slots
        if not is_all_powerful():
            await self._make(request, name, held, has_ids=False)
            return
        held.ids_shared = why_ids_shared(request.network) or self._without_ids.get(request.root)
        if held.ids_shared is None:
            try:
                await self._make(request, name, held, has_ids=True)
            except SandboxError as error:
                await self._take_back(held)
                held.ids_shared = str(error).rpartition("could not be built: ")[2]
            else:
                return
        await self._make(request, name, held, has_ids=False)
        if not request.is_frozen:
            self._without_ids[request.root] = held.ids_shared

    async def _make(self, request: PoolRequest, name: str, held: Held, *, has_ids: bool) -> None:
        slot = held.slot = self._slots.take(
            self.run, name, request.root, is_for_one=request.is_frozen, has_ids=has_ids
        )
        group = f"{PREFIX}{self.run.id}-{id(self):x}-{next(self._numbers)}"
        held.groups = make_groups(group, request.limits, self._hierarchies)
        if not request.is_frozen:
            write_resolver(request.network, slot.uppers)
        blueprint = Blueprint(
            session=name,
            root=str(slot.session.root),
            parts=slot.parts,
            network=request.network,
            host_ports=request.host_ports,
            cgroups=held.groups.directories,
            directories=request.directories,
            subordinate=self._subordinate,
            first_id=0 if slot.ids is None else slot.ids.first,
        )
        held.box = await self._zygote.spawn(blueprint)
        held.relay = Relay(request.host_ports, held.box.bound)
        held.slot = stamp_again(slot)

    async def _take_back(self, held: Held) -> None:
        """Undo what was made for a sandbox that could not be built."""
        await remove_groups(held.groups.directories)
        held.groups = Groups((), {})
        if held.slot is not None:
            self._slots.drop(held.slot)
            held.slot = None

    async def hold_ready(self, request: PoolRequest) -> Held | None:
        """A sandbox that was made ahead; None where there is none."""
        if self._ready is None or self._ready[0] != request:
            return None
        _, making = self._ready
        self._ready = None
        try:
            held = await asyncio.shield(making)
        except asyncio.CancelledError:
            making.add_done_callback(_release)
            raise
        if held is None or (held.box is not None and held.box.is_alive):
            return held
        await _let_go(held)
        return None

    def expect(self, request: PoolRequest) -> None:
        """A trial has what it wished for; make the same ahead if it is the second in a row."""
        is_repeated, self._last = request == self._last, request
        if not is_repeated or (self._ready and self._ready[0] == request):
            return
        if self._ready is not None:
            self._ready[1].add_done_callback(_release)
        self._ready = request, asyncio.ensure_future(self._make_ahead(request))

    async def _make_ahead(self, request: PoolRequest) -> Held | None:
        held = Held()
        try:
            await self.hold_new(request, "ready", held)
        except (SandboxError, OSError):
            # Whoever makes one for a trial hears of it.
            await _let_go(held)
            return None
        except BaseException:
            await _let_go(held)
            raise
        return held

    def _close(self) -> None:
        """Leave nothing; every process is dead."""
        if self._ready is not None and self._ready[1].done() and not self._ready[1].cancelled():
            held = self._ready[1].result()
            if held is not None and held.slot is not None:
                _remove_dead(held.groups.directories)
                self._slots.drop(held.slot)
        self._slots.close()


def why_ids_shared(network: Network) -> str | None:
    """Why no sandbox on such a network can have ids of its own."""
    if network is Network.HOST:
        return "only the host's own root may listen on the ports of its network below 1024"
    return None


def _remove_dead(groups: Sequence[str]) -> None:
    until = time.monotonic() + _PATIENCE_SEC
    for group in groups:
        while not remove_group(Path(group)) and time.monotonic() < until:
            time.sleep(0.001)


_RELEASING: set[asyncio.Task[None]] = set()
"""What is being given back; a task that nobody holds may vanish."""


def _release(making: asyncio.Task[Held | None]) -> None:
    """Give back what nobody took."""
    held = None if making.cancelled() else making.result()
    if held is not None:
        task = asyncio.ensure_future(_let_go(held))
        _RELEASING.add(task)
        task.add_done_callback(_RELEASING.discard)


async def _let_go(held: Held) -> None:
    with suppress(SandboxError, OSError):
        await held.let_go()


def write_resolver(network: Network, uppers: Mapping[str, str]) -> None:
    """Give a sandbox that a helper connects the resolver that the helper is."""
    text = resolver_for(network)
    if text is None:
        return
    if "/etc" in uppers:
        etc = Path(uppers["/etc"])
    else:
        etc = Path(uppers["/"]) / "etc"
        etc.mkdir(mode=0o755, exist_ok=True)
    (etc / "resolv.conf").write_text(text, encoding="utf-8")


_PREMISES: weakref.WeakKeyDictionary[Zygote, SandboxPool] = weakref.WeakKeyDictionary()


def pool_of(zygote: Zygote) -> SandboxPool:
    """Where a zygote's sandboxes are made; nothing of it is left when the zygote is closed."""
    if zygote not in _PREMISES:
        _PREMISES[zygote] = SandboxPool(zygote)
    return _PREMISES[zygote]
