"""Makes the sandboxes of one zygote, one of them ahead for the next trial.

    hold_new     make scratch, control groups and processes of a sandbox
    hold_ready   take the sandbox that was made ahead, if it fits

Making a sandbox is mostly waiting for the kernel. If two trials in a row need the same sandbox, a
third probably does too, and its sandbox is made while they run. It contains nothing of a trial.
"""

import asyncio
import time
import weakref
from collections.abc import Awaitable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import count
from pathlib import Path

from proctor.environments.forwarding import ModelPort
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
from proctor.environments.sandbox.link import settled
from proctor.environments.sandbox.network import Connection, resolver_for
from proctor.environments.sandbox.privileges import is_all_powerful
from proctor.environments.sandbox.reap import bring_in
from proctor.environments.sandbox.rootfs import StepError
from proctor.environments.sandbox.roots.layers import Parts
from proctor.environments.sandbox.scratch import Place, Run, find_place, open_run
from proctor.environments.sandbox.slots import Slot, Slots, stamp_again
from proctor.environments.sandbox.storage import find_obstacle
from proctor.environments.sandbox.subordinate import IdMap, find_subordinate_ids
from proctor.errors import SandboxError

_PATIENCE_SEC = 5.0


@dataclass(frozen=True, slots=True)
class PoolRequest:
    """Options of a sandbox that do not depend on the trial."""

    root: Parts
    network: Network
    limits: Limits
    directories: tuple[str, ...]
    host_ports: tuple[HostPort, ...] = ()
    model_port: int = 0
    """Port of the model gateway; 0 if there is none, or the sandbox is on the host's network."""
    is_frozen: bool = False
    """Its root contains a trial's files: only for that trial, and nothing is added to it."""


@dataclass(slots=True)
class Held:
    """Resources of a sandbox that have to be released."""

    slots: Slots | None = None
    slot: Slot | None = None
    groups: Groups = field(default_factory=lambda: Groups((), {}))
    box: Box | None = None
    connection: Connection | None = None
    relay: Relay | None = None
    model_port: ModelPort | None = None
    is_owed: bool = False
    """A download failed: salvage the evidence before the scratch is deleted."""
    ids_shared: str | None = None
    """If proctor runs as root: why its users share the host's ids; None if they do not."""
    unlimited: str | None = None
    """Why its storage is not limited; None if it is, or nobody asked."""

    async def release(self) -> None:
        """End its processes, then release everything else, even if one of these steps fails.

        Raises:
            SandboxError, OSError: something cannot be removed.
        """
        # All of them are ended even if one fails; the first failure is raised at the end.
        failed = await asyncio.gather(*self._end(), return_exceptions=True)
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

    def _end(self) -> Iterator[Awaitable[None]]:
        if self.connection is not None:
            yield self.connection.close()
        if self.relay is not None:
            yield self.relay.end()
        if self.model_port is not None:
            yield self.model_port.end()
        if self.box is not None:
            yield self.box.kill()


def _bring_in(slot: Slot) -> None:
    try:
        bring_in(slot.session.directory)
    finally:
        if slot.ids is not None:
            slot.ids.close()


class SandboxPool:
    """Makes the sandboxes of one zygote."""

    def __init__(self, zygote: Zygote) -> None:
        self._zygote = zygote
        self._slots = Slots()
        self._numbers = count(1)
        self._last: PoolRequest | None = None
        self._ready: tuple[PoolRequest, asyncio.Task[Held | None]] | None = None
        # Roots on which sandboxes cannot have their own ids, with the reason.
        self._without_ids: dict[Parts, str] = {}
        zygote.at_close(self._close)

    @cached_property
    def place(self) -> Place:
        """File system for scratch directories."""
        return find_place()

    @cached_property
    def run(self) -> Run:
        """Scratch directory of this run."""
        return open_run(self.place.root)

    @cached_property
    def _hierarchies(self) -> list[Hierarchy]:
        return find_hierarchies()

    @cached_property
    def _subordinate(self) -> IdMap:
        return find_subordinate_ids()

    async def hold_new(self, request: PoolRequest, name: str, held: Held) -> None:
        """Make a sandbox; `held` contains what was made even if this fails."""
        held.slots = self._slots
        if not is_all_powerful():
            await self._make(request, name, held, has_ids=False)
            return
        held.ids_shared = why_ids_shared(request.network) or self._without_ids.get(request.root)
        if held.ids_shared is None:
            try:
                await self._make(request, name, held, has_ids=True)
            except SandboxError as error:
                await remove_groups(held.groups.directories)
                held.groups = Groups((), {})
                if held.slot is not None:
                    self._slots.drop(held.slot)
                    held.slot = None
                # Not every kernel and file system can map ids. Sharing the host's is reported as a
                # finding.
                held.ids_shared = str(error).rpartition("could not be built: ")[2]
            else:
                return
        await self._make(request, name, held, has_ids=False)
        if not request.is_frozen:
            self._without_ids[request.root] = held.ids_shared

    async def _make(self, request: PoolRequest, name: str, held: Held, *, has_ids: bool) -> None:
        slot = held.slot = await self._take(request, name, held, has_ids=has_ids)
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
            model_port=request.model_port,
            cgroups=held.groups.directories,
            storage=slot.device,
            directories=request.directories,
            subordinate=self._subordinate,
            first_id=0 if slot.ids is None else slot.ids.first,
        )
        held.box = await self._zygote.spawn(blueprint)
        held.relay = Relay(request.host_ports, held.box.bound[: len(request.host_ports)])
        if request.model_port:
            held.model_port = ModelPort(request.model_port, held.box.bound[-1])
        held.slot = stamp_again(slot)

    async def _take(self, request: PoolRequest, name: str, held: Held, *, has_ids: bool) -> Slot:
        options = {"is_for_one": request.is_frozen, "has_ids": has_ids}
        take = partial(self._slots.take, self.run, name, request.root, **options)
        if (storage_mb := request.limits.storage_mb) is None:
            return take()
        held.unlimited = find_obstacle(self.run.directory, storage_mb)
        if held.unlimited is None:
            # In a thread, because it starts a program; not as a task, because the end of the loop
            # cancels tasks, and what the thread mounts would be lost.
            limited = partial(take, storage_mb=storage_mb)
            taking = asyncio.get_running_loop().run_in_executor(None, limited)
            try:
                return await asyncio.shield(taking)
            except asyncio.CancelledError:
                try:
                    await settled(taking)
                finally:
                    if taking.exception() is None:
                        self._slots.drop(taking.result())
                raise
            except StepError as error:
                held.unlimited = str(error)
        return take()

    async def hold_ready(self, request: PoolRequest) -> Held | None:
        """Return the sandbox that was made ahead, or None."""
        if self._ready is None or self._ready[0] != request:
            return None
        _, making = self._ready
        self._ready = None
        try:
            # A cancelled trial must not leave half a sandbox: it is completed, then released.
            held = await asyncio.shield(making)
        except asyncio.CancelledError:
            making.add_done_callback(_release)
            raise
        if held is None or (held.box is not None and held.box.is_alive):
            return held
        await _release_quietly(held)
        return None

    def expect(self, request: PoolRequest) -> None:
        """Note a trial's request; make the same sandbox ahead if it is the second in a row."""
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
            # The next trial makes its own sandbox, and then reports the error.
            await _release_quietly(held)
            return None
        except BaseException:
            await _release_quietly(held)
            raise
        return held

    def _close(self) -> None:
        """Remove all scratch and control groups, after all processes have ended."""
        if self._ready is not None and self._ready[1].done() and not self._ready[1].cancelled():
            held = self._ready[1].result()
            if held is not None and held.slot is not None:
                until = time.monotonic() + _PATIENCE_SEC
                for group in held.groups.directories:
                    while not remove_group(Path(group)) and time.monotonic() < until:
                        time.sleep(0.001)
                self._slots.drop(held.slot)
        self._slots.close()


def why_ids_shared(network: Network) -> str | None:
    """Return why sandboxes on this network share the host's ids; None if they do not."""
    if network is Network.HOST:
        return "only the host's root may listen on ports below 1024 of the host's network"
    return None


# Keeps references: asyncio may garbage-collect a task that nothing refers to.
_RELEASING: set[asyncio.Task[None]] = set()


def _release(making: asyncio.Task[Held | None]) -> None:
    """Release a sandbox that no trial took."""
    held = None if making.cancelled() else making.result()
    if held is not None:
        task = asyncio.ensure_future(_release_quietly(held))
        _RELEASING.add(task)
        task.add_done_callback(_RELEASING.discard)


async def _release_quietly(held: Held) -> None:
    with suppress(SandboxError, OSError):
        await held.release()


def write_resolver(network: Network, uppers: Mapping[str, str]) -> None:
    """Write resolv.conf for a sandbox whose network helper is also its resolver."""
    text = resolver_for(network)
    if text is None:
        return
    if "/etc" in uppers:
        etc = Path(uppers["/etc"])
    else:
        etc = Path(uppers["/"]) / "etc"
        etc.mkdir(mode=0o755, exist_ok=True)
    (etc / "resolv.conf").write_text(text, encoding="utf-8")


_POOLS: weakref.WeakKeyDictionary[Zygote, SandboxPool] = weakref.WeakKeyDictionary()


def pool_of(zygote: Zygote) -> SandboxPool:
    """Return the pool of a zygote, which is closed with it."""
    if zygote not in _POOLS:
        _POOLS[zygote] = SandboxPool(zygote)
    return _POOLS[zygote]
