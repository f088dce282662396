"""Builds the stages of a Dockerfile, each instruction as a layer that is cached.

The key of a layer covers everything that is known to determine it: the layer below it, the
instruction with its variables, and the files that it copies. Dockerfiles that begin alike share
layers, a build that fails keeps those before the failure, and each is built once even if many
trials need it at the same time.
"""

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from proctor.digest import sha256_hex
from proctor.environments.sandbox.blueprint import Blueprint, Network, Part
from proctor.environments.sandbox.box import Box
from proctor.environments.sandbox.network import Choice, choose_network, connect, resolver_for
from proctor.environments.sandbox.pool import Held, why_ids_shared
from proctor.environments.sandbox.privileges import is_all_powerful
from proctor.environments.sandbox.ranges import Range, take_range
from proctor.environments.sandbox.roots.bases import Base, Bases
from proctor.environments.sandbox.roots.context import Context
from proctor.environments.sandbox.roots.dockerfile import Dockerfile, Stage
from proctor.environments.sandbox.roots.images import ImageStore
from proctor.environments.sandbox.roots.instructions import (
    Copy,
    MakeDirectory,
    Recipe,
    Run,
    Start,
    Step,
    plan_recipe,
)
from proctor.environments.sandbox.roots.layers import (
    Building,
    Layer,
    LayerCache,
    LayerStore,
    discard,
    layers_directory,
)
from proctor.environments.sandbox.roots.prune import prune_store, store_limit
from proctor.environments.sandbox.roots.steps import (
    BuildLog,
    Order,
    Spawn,
    StepRunner,
    run_in_thread,
)
from proctor.environments.sandbox.subordinate import find_subordinate_ids
from proctor.errors import ImageError, SandboxError
from proctor.sentence import reason_of
from proctor.task.network import NetworkMode, NetworkPolicy
from proctor.trial.finding import Finding, FindingCode

# The sandbox in which a Dockerfile is built, and its network
#
# Commands of a Dockerfile get the same network as a trial with a public network: their own,
# connected by a helper, or else the host's, which is reported with the result. Without commands
# there is none. As root, its users have their own ids as in a trial; on the disk, files have the
# same owners as inside.


_PUBLIC = NetworkPolicy(NetworkMode.PUBLIC)
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


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
        for target, _, upper, _ in self.building.parts:
            if target == "/":
                # Ignored if there is none, or if /etc became a symlink or belongs to another user.
                with suppress(OSError):
                    etc = os.open(upper / "etc", _DIRECTORY)
                    try:
                        os.unlink("resolv.conf", dir_fd=etc)
                    finally:
                        os.close(etc)

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


_PHASE = "setup"
# Part of every key: increase it when layers are made differently, to invalidate old ones.
_FORMAT = 3
# Directories of one overlay. The kernel accepts 500, but only a page of mount options: each takes
# up to 19 bytes of 4096. Instructions beyond this share the last layer.
_MOST_LOWERS = 150
# Line of a step that no instruction of the Dockerfile stands for.
_IMPLIED = 0


@dataclass(frozen=True, slots=True)
class Built:
    """A Dockerfile that was built."""

    base: Base
    """Its last stage."""
    pins: tuple[str, ...]
    """Pins of the images that were used; that of the last stage first."""
    findings: tuple[Finding, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _StagePlan:
    """A stage with its steps, before they are run."""

    stage: Stage
    base: Base | None
    """What it is FROM; None: an earlier stage."""
    recipe: Recipe
    orders: tuple[Order, ...]


@dataclass(frozen=True, slots=True)
class Builder:
    """Builds one Dockerfile, or finds its layers in the cache."""

    dockerfile: Dockerfile
    bases: Bases
    environment_dir: Path
    spawn: Spawn
    hints: tuple[str, ...]
    """What was used in place of images, in sentences: it may be why a command fails."""

    async def build(self, scratch: Path, *, force: bool) -> Built:
        """Build the stages that the last one needs."""
        plans = await self._plan()
        root, notes = layers_directory(scratch)
        worker = _LayerBuilder(self, LayerStore(root), force=force)
        stages: dict[int, Base] = {}
        for plan in plans:
            base = plan.base or stages[_number(plan.stage)]
            orders = [self._with_origin(order, stages) for order in plan.orders]
            for group in _group(orders, base):
                base = await worker.lay(base, group)
            stages[plan.stage.number] = replace(base, start=plan.recipe.result)
        last = stages[plans[-1].stage.number]
        recipe_notes = [note for plan in plans for note in plan.recipe.notes]
        has_layers = any(plan.orders for plan in plans)
        found: list[Finding] = []
        for base in (*self._list_images(plans), last):
            found += [one for one in base.findings if one not in found]
        return Built(
            last,
            tuple(dict.fromkeys((last.pin, *(one.pin for one in self._list_images(plans))))),
            tuple(found),
            (*(notes if has_layers else ()), *recipe_notes),
        )

    async def _plan(self) -> list[_StagePlan]:
        """Plan everything before anything is run, so that what is not supported is known first."""

        def plan() -> list[_StagePlan]:
            starts: dict[int, Start] = {}
            plans = []
            context = Context(self.environment_dir)
            for stage in self.dockerfile.needed:
                base = None
                if stage.source.stage is None:
                    base = self.bases.under(self.dockerfile, stage)
                start = base.start if base else starts[_number(stage)]
                recipe = plan_recipe(self.dockerfile, stage, start)
                starts[stage.number] = recipe.result
                # An image may name a working directory that does not exist; Docker creates it.
                first = MakeDirectory(
                    _IMPLIED, f"WORKDIR {start.workdir}", start.workdir, start.user
                )
                is_new = base is not None and start.workdir != "/" and recipe.steps
                steps = ((first,) if is_new else ()) + recipe.steps
                orders = tuple(self._order(step, context) for step in steps)
                plans.append(_StagePlan(stage, base, recipe, orders))
            return plans

        # Without files to read, it is faster than starting a thread.
        keywords = {one.keyword for stage in self.dockerfile.needed for one in stage.statements}
        return await run_in_thread(plan) if keywords & {"COPY", "ADD"} else plan()

    def _order(self, step: Step, context: Context) -> Order:
        if not isinstance(step, Copy):
            return Order(step)
        try:
            if step.source is None:
                return Order(step, context.select(step))
            if step.source.image is not None:
                self.bases.to_copy(step.source)
            return Order(step)
        except (ImageError, OSError) as error:
            reason = reason_of(error) if isinstance(error, OSError) else str(error)
            place = f"{self.dockerfile.where}:{step.line}"
            raise ImageError(f"{place}: {step.text.partition(' ')[0]}: {reason}") from error

    def _with_origin(self, order: Order, stages: dict[int, Base]) -> Order:
        """Add the root file system that a COPY --from copies from."""
        source = order.step.source if isinstance(order.step, Copy) else None
        if source is None:
            return order
        if source.stage is not None:
            base = stages[source.stage]
        else:
            base = self.bases.of_image(self.bases.to_copy(source))
        parts = self.bases.without_furnishing(base.parts)
        return replace(order, origin=parts, origin_identity=base.identity)

    def _list_images(self, plans: list[_StagePlan]) -> list[Base]:
        """Return the images of all stages, and those that are copied from."""
        found = [plan.base for plan in plans if plan.base is not None]
        for plan in plans:
            for step in plan.recipe.steps:
                source = step.source if isinstance(step, Copy) else None
                if source is not None and source.image is not None:
                    found.append(self.bases.of_image(self.bases.to_copy(source)))
        return found


def _number(stage: Stage) -> int:
    if stage.source.stage is None:
        raise ImageError(f"line {stage.line}: FROM an image, not an earlier stage")
    return stage.source.stage


def _group(orders: list[Order], base: Base) -> list[list[Order]]:
    """Return the steps of each layer: one, but those beyond the depth of an overlay together."""
    room = max(1, _MOST_LOWERS - max(len(lowers) for _, lowers in base.parts))
    groups = [[order] for order in orders]
    if orders and orders[0].step.line == _IMPLIED:
        groups[:2] = [orders[:2]]
    if len(groups) <= room:
        return groups
    return [*groups[: room - 1], [order for group in groups[room - 1 :] for order in group]]


@dataclass(frozen=True, slots=True)
class _LayerBuilder:
    """Builds layers of one Dockerfile, or finds them in the store."""

    builder: Builder
    store: LayerStore
    force: bool

    async def lay(self, base: Base, orders: list[Order]) -> Base:
        """Return the base with the layer of these steps on top."""
        # Root's overlays use trusted.* attributes, other users' overlays user.* attributes.
        who = "root" if os.geteuid() == 0 else f"user {os.geteuid()} {find_subordinate_ids()}"
        steps = [_decisive(order) for order in orders]
        key = sha256_hex(msgspec.json.encode((_FORMAT, who, base.identity, steps)))
        found = None if self.force else self.store.find(key, base.parts)
        if found is None:
            async with self.store.locked(key):
                again = self.store.is_wanted_again(key, force=self.force)
                found = None if again else self.store.find(key, base.parts)
                if found is None:
                    await self._build(base, key, orders)
                    found = self.store.find(key, base.parts)
        if found is None:
            raise ImageError(f"{key}: the layer that was just built cannot be read")
        findings = [one for one in _build_findings(found) if one not in base.findings]
        return replace(
            base,
            parts=found.parts,
            identity=found.id,
            layer=found.id,
            findings=(*base.findings, *findings),
        )

    async def _build(self, base: Base, key: str, orders: list[Order]) -> None:
        limit = store_limit()
        choice = (
            choose_network(_PUBLIC)
            if any(isinstance(one.step, Run) for one in orders)
            else Choice(Network.NONE)
        )
        place = await open_workplace(
            lambda: self.store.open(key, base.parts),
            f"build-{key[:12]}",
            choice.network,
            self.builder.spawn,
        )
        try:
            async with place.connected() as box:
                runner = StepRunner(
                    box,
                    self.builder.dockerfile.where,
                    place.building.stage,
                    self.builder.spawn,
                    BuildLog(self.store.log(key)),
                    self.builder.hints,
                )
                for order in orders:
                    await runner.do(order)
            layer = Layer(
                base.pin,
                tuple(order.step.text for order in orders),
                parent=base.layer,
                shared_because=choice.shared_because,
                ids_shared=place.ids_shared,
            )
            await run_in_thread(lambda: self.store.keep(key, place.building, layer))
        finally:
            place.clear()
        with suppress(ImageError):
            # Not this one: its lock is held.
            await run_in_thread(lambda: prune_store(ImageStore(), self.store, limit))


def _decisive(order: Order) -> list[object]:
    names = order.step.__dataclass_fields__
    # A stage may have another number in another Dockerfile: what it is copied from counts.
    step = {name: getattr(order.step, name) for name in names if name not in ("line", "source")}
    files = None if order.selection is None else order.selection.digest
    return [type(order.step).__name__, step, files, order.origin_identity]


def _build_findings(kept: LayerCache) -> tuple[Finding, ...]:
    """Return findings about a layer that was built with the host's network or ids."""
    if reason := kept.shared_because:
        # The host's network implies its ids, so one finding is enough.
        code = FindingCode.NETWORK_SHARED
        message = f"the Dockerfile was built on the host's network: {reason}"
    elif reason := kept.ids_shared:
        code = FindingCode.IDS_SHARED
        message = f"the Dockerfile was built with the host's ids: {reason}"
    else:
        return ()
    detail: dict[str, object] = {"reason": reason, "during": "build"}
    return (Finding(code=code, phase=_PHASE, message=message, detail=detail),)
