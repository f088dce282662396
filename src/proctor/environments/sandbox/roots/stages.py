"""Builds the stages of a Dockerfile, each instruction as a layer that is cached.

The key of a layer covers everything that is known to determine it: the layer below it, the
instruction with its variables, and the files that it copies. Dockerfiles that begin alike share
layers, a build that fails keeps those before the failure, and each is built once even if many
trials need it at the same time.
"""

import os
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from proctor.digest import sha256_hex
from proctor.environments.sandbox.roots.bases import Base, Bases
from proctor.environments.sandbox.roots.context import Context
from proctor.environments.sandbox.roots.dockerfile import Dockerfile, Stage
from proctor.environments.sandbox.roots.images import ImageStore
from proctor.environments.sandbox.roots.instructions import plan_recipe
from proctor.environments.sandbox.roots.layers import (
    Layer,
    LayerCache,
    LayerStore,
    layers_directory,
)
from proctor.environments.sandbox.roots.prune import prune_store, store_limit
from proctor.environments.sandbox.roots.recipe import Copy, MakeDirectory, Recipe, Run, Start, Step
from proctor.environments.sandbox.roots.steps import (
    BuildLog,
    Order,
    Spawn,
    StepRunner,
    run_in_thread,
)
from proctor.environments.sandbox.roots.workplace import choose_for_build, open_workplace
from proctor.environments.sandbox.subordinate import find_subordinate_ids
from proctor.errors import ImageError
from proctor.sentence import reason_of
from proctor.trial.finding import Finding, FindingCode

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
        return Built(
            last,
            self._list_pins(last, plans),
            tuple(self._list_findings(plans, last)),
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

    def _list_pins(self, last: Base, plans: list[_StagePlan]) -> tuple[str, ...]:
        return tuple(dict.fromkeys((last.pin, *(one.pin for one in self._list_images(plans)))))

    def _list_findings(self, plans: list[_StagePlan], last: Base) -> list[Finding]:
        found: list[Finding] = []
        for base in (*self._list_images(plans), last):
            found += [one for one in base.findings if one not in found]
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
        key = _key(base, orders)
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
        choice = choose_for_build(has_commands=any(isinstance(one.step, Run) for one in orders))
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


def _key(base: Base, orders: list[Order]) -> str:
    # Root's overlays use trusted.* attributes, other users' overlays user.* attributes.
    who = "root" if os.geteuid() == 0 else f"user {os.geteuid()} {find_subordinate_ids()}"
    steps = [_decisive(order) for order in orders]
    return sha256_hex(msgspec.json.encode((_FORMAT, who, base.identity, steps)))


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
