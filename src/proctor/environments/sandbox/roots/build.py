"""Builds the root file system of a task from its image, base and Dockerfile.

    docker_image was imported    that image, as in harbor, unless a build is forced
    there is a Dockerfile        its steps on the image of FROM, or on the base if not imported
    neither                      the base

The result of a Dockerfile is cached by everything that determines it, and built once even if many
trials need it at the same time.
"""

import asyncio
import atexit
import functools
import os
import platform
import posixpath
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import batched
from pathlib import Path

import msgspec

from proctor.digest import sha256_hex
from proctor.environments.sandbox.blueprint import Command
from proctor.environments.sandbox.box import Box
from proctor.environments.sandbox.privileges import is_all_powerful
from proctor.environments.sandbox.roots.context import Context, Selection, stage
from proctor.environments.sandbox.roots.dockerfile import Dockerfile, parse_dockerfile, plan_recipe
from proctor.environments.sandbox.roots.host_base import (
    HostBase,
    is_loaded,
    load_furnishing,
    load_host_base,
)
from proctor.environments.sandbox.roots.images import Image, ImageStore
from proctor.environments.sandbox.roots.layers import Layer, LayerCache, LayerStore, Parts, discard
from proctor.environments.sandbox.roots.recipe import (
    DEFAULT_PATH,
    Copy,
    MakeDirectory,
    Recipe,
    Run,
    Start,
    Step,
)
from proctor.environments.sandbox.roots.workplace import (
    Spawn,
    choose_for_build,
    open_workplace,
)
from proctor.environments.sandbox.scratch import cache_directory, find_fault
from proctor.environments.sandbox.subordinate import find_subordinate_ids
from proctor.errors import ImageError, UnsupportedError
from proctor.files import read_small
from proctor.harbor.configs import HOST_BASE
from proctor.sentence import reason_of
from proctor.trial.finding import Finding, FindingCode

# Running the steps of a Dockerfile in a sandbox


_LAST_LINES = 400
_LAST_CHARACTERS = 40_000
# Paths per chown, to stay below the kernel's limit for arguments.
_PATHS_AT_ONCE = 500
_DENIED = "Permission denied"
_HINT = (
    "an unprivileged user's sandbox cannot change the host's files, such as those below /usr; "
    "build on an imported image, or run as root"
)
_SCRIPT = "/tmp/.proctor-run"  # noqa: S108 - inside the sandbox


@dataclass(frozen=True, slots=True)
class Order:
    """A step with the files that it copies."""

    step: Step
    selection: Selection | None = None


async def run_in_thread[T](act: Callable[[], T]) -> T:
    """Run a slow function in a thread; a cancellation waits until it is done.

    Otherwise its files would be deleted while it still writes them.
    """
    task = asyncio.ensure_future(asyncio.to_thread(act))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise


class StepRunner:
    """Runs the steps of a Dockerfile in a sandbox."""

    def __init__(self, box: Box, where: str, staging: Path, hints: Sequence[str] = ()) -> None:
        """Prepare to run steps; `hints` are sentences to add to the output of one that fails."""
        self._box = box
        self._where = where
        self._staging = staging
        self._hints = hints
        self._n_staged = 0

    async def do(self, order: Order) -> None:
        """Run one step.

        Raises:
            RuntimeError: its command failed: `Build failed: RUN …` and the end of its output.
            ImageError: files cannot be copied.
        """
        match order.step:
            case Run() as run:
                await self._run(run)
            case MakeDirectory() as directory:
                await self._make_directory(directory)
            case Copy() as copy if order.selection is not None:
                await self._copy(copy, order.selection)

    async def _run(self, run: Run) -> None:
        argv = run.argv
        if run.script is not None:
            await self._put_text(run.script, _SCRIPT)
            argv = (_SCRIPT,)
        done = await self._box.run(Command(argv, run.cwd, dict(run.env), run.user))
        if run.script is not None:
            await self._box.run(Command(("rm", "-f", _SCRIPT), "/"))
        if done.return_code != 0:
            raise self._failure(run, done.return_code, done.output)

    def _failure(self, step: Step, code: int, output: bytes) -> RuntimeError:
        text = output.decode("utf-8", errors="replace")[-_LAST_CHARACTERS:]
        last = "".join(text.splitlines(keepends=True)[-_LAST_LINES:])
        denied = [_HINT] if _DENIED in last and not is_all_powerful() else []
        if hints := [*denied, *self._hints]:
            last = "\n".join([last.rstrip() or "(no output)", *(f"({each})" for each in hints), ""])
        error = RuntimeError(f"Build failed: {step.text}\n{last}")
        error.add_note(f"{self._where}:{step.line}: the command ended with exit code {code}")
        return error

    async def _make_directory(self, step: MakeDirectory) -> None:
        is_new = not await self._is_directory(step.path)
        if is_new:
            empty = self._staging / "empty"
            empty.mkdir(exist_ok=True)
            await self._box.put(empty, step.path)
        if is_new and step.user not in ("root", "0"):
            await self._chown(step, step.user, [step.path])

    async def _copy(self, step: Copy, selection: Selection) -> None:
        if not selection.items:
            return
        place = self._staging / str(self._n_staged)
        self._n_staged += 1
        try:
            await run_in_thread(lambda: stage(selection.items, place))
        except OSError as error:
            where = f"{self._where}:{step.line}"
            raise ImageError(
                f"{where}: {error.filename}: cannot be copied: {reason_of(error)}"
            ) from error
        is_there = await self._is_directory(step.target)
        if selection.is_file and not (step.is_directory or is_there):
            source, paths = place / selection.items[0].path, [step.target]
        else:
            source = place
            paths = [posixpath.join(step.target, item.path) for item in selection.items]
            paths += [] if is_there else [step.target]
        await self._box.put(source, step.target)
        if step.chown is not None:
            await self._chown(step, step.chown, paths)

    async def _put_text(self, text: str, target: str) -> None:
        path = self._staging / "script"
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)
        await self._box.put(path, target)

    async def _is_directory(self, path: str) -> bool:
        return await self._box.kind_of(path) == "directory"

    async def _chown(self, step: Step, owner: str, paths: Sequence[str]) -> None:
        if ":" not in owner:
            # Docker's rule without a group: a named user's own group, or the group of the number.
            owner = f"{owner}:{owner if owner.isdecimal() else ''}"
        for some in batched(paths, _PATHS_AT_ONCE):
            done = await self._box.run(Command(("chown", "-h", owner, *some), "/"))
            if done.return_code != 0:
                raise self._failure(step, done.return_code, done.output)


# Directory of layers: in the cache, or in the run's scratch if the cache's file system is unfit


def layers_directory(scratch: Path) -> tuple[Path, tuple[str, ...]]:
    """Return the directory of layers, and a note if it is not in the cache."""
    layers = cache_directory() / "layers"
    fault = _find_fault(layers)
    if fault is None:
        return layers, ()
    return _temporary_layers(scratch, os.getpid()), (f"{fault}; builds are kept for this run only",)


@functools.lru_cache(maxsize=8)
def _temporary_layers(scratch: Path, pid: int) -> Path:
    """Return a directory that is deleted when this process, not a fork of it, ends."""
    layers = scratch / "layers"
    atexit.register(lambda: discard(layers) if os.getpid() == pid else None)
    return layers


@functools.lru_cache(maxsize=8)
def _find_fault(directory: Path) -> str | None:
    """Cached: a cache does not move while a job runs."""
    return find_fault(directory)


_PHASE = "setup"
# Part of every key: increase it when layers are made differently, to invalidate old ones.
_FORMAT = 2
_MACHINES = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm"}


@dataclass(frozen=True, slots=True)
class Root:
    """A root file system, to be mounted below an upper directory."""

    parts: Parts
    """(target, layers on the host, topmost first) of each overlay; the first is `/`."""
    env: Mapping[str, str]
    """Variables of every command."""
    workdir: str
    user: str
    pin: str
    """Name of the image or host, with its digest."""
    findings: tuple[Finding, ...] = ()
    upload_environment: bool = False
    """Whether to copy the task's environment directory to the working directory, as harbor does
    for a task with an image but no Dockerfile."""
    notes: tuple[str, ...] = ()
    """Messages about instructions that have no effect here."""


@dataclass(frozen=True, slots=True)
class _Base:
    """The root file system that steps start from."""

    parts: Parts
    start: Start
    pin: str


async def build_root(
    environment_dir: Path,
    docker_image: str | None,
    base: str,
    *,
    scratch: Path,
    spawn: Spawn,
    force: bool = False,
) -> Root:
    """Build the root file system of a task; `scratch` is a directory of this run.

    Raises:
        UnsupportedError: it needs Docker Compose.
        ImageError: an image is missing, or the Dockerfile is not supported.
        RuntimeError: a command of the Dockerfile failed.
    """
    _check_no_compose(environment_dir)
    if base == HOST_BASE and not is_loaded(scratch):
        # Copying the host's files takes time, so do it in a thread. Errors are ignored here,
        # because they matter only if the host is needed below.
        with suppress(ImageError):
            await run_in_thread(lambda: _load_host(scratch))
    bases = _Bases(base, scratch)
    dockerfile = _load_dockerfile(environment_dir)
    image = bases.find(docker_image) if docker_image else None
    if image is not None and not (force and dockerfile):
        return _rooted(bases.of_image(image), upload=_is_uploaded(environment_dir, dockerfile))
    if dockerfile is None:
        return _on_base(bases, docker_image, environment_dir)
    findings = _findings_of(dockerfile, docker_image if image is None else None, bases)
    base_root = bases.under(dockerfile)
    recipe = plan_recipe(dockerfile, base_root.start)
    hints = tuple(finding.message for finding in findings)
    maker = _Maker(base_root, dockerfile, recipe, spawn, hints)
    kept, notes = await maker.make(environment_dir, scratch, force=force)
    return Root(
        parts=kept.parts,
        env=recipe.env,
        workdir=recipe.workdir,
        user=recipe.user,
        pin=base_root.pin,
        findings=(*findings, *_build_findings(kept)),
        notes=(*notes, *recipe.notes, *_platform_notes(dockerfile)),
    )


def find_image_pin(
    environment_dir: Path, docker_image: str | None, base: str, *, force: bool = False
) -> str | None:
    """Return the image, with its digest, of which a task's root would be made; None for the host.

    Raises:
        ImageError: the Dockerfile, or the name of an image, is invalid.
    """
    store = ImageStore()
    dockerfile = _load_dockerfile(environment_dir)
    image = store.find(docker_image) if docker_image else None
    if dockerfile is not None and (image is None or force):
        image = store.find(dockerfile.image)
    if image is None and base != HOST_BASE:
        image = store.find(base)
    return image.pin if image else None


def _check_no_compose(environment_dir: Path) -> None:
    path = environment_dir / "docker-compose.yaml"
    if path.exists():
        raise UnsupportedError(
            f"{path}: the sandbox does not support Docker Compose; use an environment that does, "
            "with --environment-import-path"
        )


def _load_dockerfile(environment_dir: Path) -> Dockerfile | None:
    path = environment_dir / "Dockerfile"
    try:
        text = read_small(str(path)).decode("utf-8")
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        raise ImageError(f"{path}: not UTF-8 text: {error.reason} at {error.start}") from error
    except OSError as error:
        raise ImageError(f"{path}: cannot be read: {reason_of(error)}") from error
    return parse_dockerfile(text, str(path), _machine())


def _machine() -> str:
    return _MACHINES.get(platform.machine(), platform.machine())


def _is_uploaded(environment_dir: Path, dockerfile: Dockerfile | None) -> bool:
    return dockerfile is None and environment_dir.is_dir() and any(environment_dir.iterdir())


def _rooted(base_root: _Base, findings: tuple[Finding, ...] = (), *, upload: bool) -> Root:
    start = base_root.start
    env = {"PATH": DEFAULT_PATH, **start.env}
    return Root(
        parts=base_root.parts,
        env=env,
        workdir=start.workdir,
        user=start.user,
        pin=base_root.pin,
        findings=findings,
        upload_environment=upload,
    )


def _on_base(bases: "_Bases", docker_image: str | None, environment_dir: Path) -> Root:
    if docker_image is None:
        return _rooted(bases.of_base(), upload=False)
    finding = _substituted(f"task.toml names {docker_image}", bases)
    return _rooted(bases.of_base(), (finding,), upload=_is_uploaded(environment_dir, None))


def _load_host(scratch: Path) -> HostBase:
    return load_host_base(scratch, cache=cache_directory() / "host")


class _Bases:
    """Images and the chosen base."""

    def __init__(self, base: str, scratch: Path) -> None:
        self._base = base
        self._scratch = scratch
        self._store = ImageStore()

    def find(self, name: str) -> Image | None:
        return self._store.find(name)

    def of_image(self, image: Image) -> _Base:
        lowers = (str(load_furnishing(self._scratch)), str(self._store.rootfs(image)))
        return _Base((("/", lowers),), Start(image.env, image.workdir, image.user), image.pin)

    def of_base(self) -> _Base:
        if self._base == HOST_BASE:
            host = _load_host(self._scratch)
            return _Base(host.parts, Start({}), host.pin)
        return self.of_image(self._store.load_base(self._base))

    def under(self, dockerfile: Dockerfile) -> _Base:
        image = self._find_from(dockerfile)
        return self.of_base() if image is None else self.of_image(image)

    def is_there(self, dockerfile: Dockerfile) -> bool:
        """Whether the image of FROM was imported."""
        return self._find_from(dockerfile) is not None

    def _find_from(self, dockerfile: Dockerfile) -> Image | None:
        try:
            return self.find(dockerfile.image)
        except ImageError as error:
            raise ImageError(f"{dockerfile.where}:{dockerfile.from_line}: FROM {error}") from error


def _findings_of(
    dockerfile: Dockerfile, docker_image: str | None, bases: _Bases
) -> tuple[Finding, ...]:
    findings = []
    if docker_image is not None:
        message = (
            f"task.toml names the image {docker_image}, which was not imported; the task's "
            "Dockerfile was built instead"
        )
        detail: dict[str, object] = {"wanted": docker_image, "used": "Dockerfile"}
        findings.append(_finding(message, detail))
    if not bases.is_there(dockerfile):
        findings.append(_substituted(f"The Dockerfile is FROM {dockerfile.image}", bases))
    return tuple(findings)


def _substituted(who: str, bases: _Bases) -> Finding:
    wanted, used = who.rpartition(" ")[2], bases.of_base().pin
    remedy = "use -e docker"
    if wanted != "scratch":
        remedy += f", or import it with `proctor image import {wanted} TAR`"
    system = used.partition("@")[0]
    if system.startswith("host:"):
        system = f"the host's system ({system.removeprefix('host:')})"
    message = f"{who}, which was not imported; {system} was used instead: {remedy}"
    return _finding(message, {"wanted": wanted, "used": used})


def _finding(message: str, detail: dict[str, object]) -> Finding:
    return Finding(code=FindingCode.BASE_SUBSTITUTED, phase=_PHASE, message=message, detail=detail)


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


def _platform_notes(dockerfile: Dockerfile) -> tuple[str, ...]:
    wanted, ours = dockerfile.platform, f"linux/{_machine()}"
    if wanted is None or wanted == ours or wanted.startswith(f"{ours}/"):
        return ()
    place = f"{dockerfile.where}:{dockerfile.from_line}"
    return (f"{place}: FROM asks for the platform {wanted}; this machine is {ours}",)


@dataclass(frozen=True, slots=True)
class _Maker:
    """Builds the layer of one Dockerfile, or finds it in the cache."""

    base_root: _Base
    dockerfile: Dockerfile
    recipe: Recipe
    spawn: Spawn
    hints: tuple[str, ...]
    """What was used in place of images, in sentences: it may be why a command fails."""

    async def make(
        self, environment_dir: Path, scratch: Path, *, force: bool
    ) -> tuple[LayerCache, tuple[str, ...]]:
        """Return the parts with the layer on top, and notes about it."""
        if not self.recipe.steps:
            return LayerCache(self.base_root.parts), ()
        orders, key = await self._decide(environment_dir)
        root, notes = layers_directory(scratch)
        store = LayerStore(root)
        found = None if force else store.find(key, self.base_root.parts)
        if found is not None:
            return found, notes
        async with store.locked(key):
            again = store.is_wanted_again(key, force=force)
            found = None if again else store.find(key, self.base_root.parts)
            if found is None:
                await self._build(store, key, orders)
                found = store.find(key, self.base_root.parts)
        if found is None:
            raise ImageError(f"{root / key}: the layer that was just built cannot be read")
        return found, notes

    async def _decide(self, environment_dir: Path) -> tuple[tuple[Order, ...], str]:
        """Return the steps with their files, and the key of the result."""

        def decide() -> tuple[tuple[Order, ...], str]:
            orders = self._orders(Context(environment_dir))
            return orders, self._key(orders)

        # Without files to read, it is faster than starting a thread.
        has_files = any(isinstance(step, Copy) for step in self.recipe.steps)
        return await run_in_thread(decide) if has_files else decide()

    def _orders(self, context: Context) -> tuple[Order, ...]:
        start = self.base_root.start
        # An image may name a working directory that does not exist; Docker creates it.
        first = MakeDirectory(0, f"WORKDIR {start.workdir}", start.workdir, start.user)
        steps = ((first,) if start.workdir != "/" else ()) + self.recipe.steps
        return tuple(self._order(step, context) for step in steps)

    def _order(self, step: Step, context: Context) -> Order:
        if not isinstance(step, Copy):
            return Order(step)
        try:
            return Order(step, context.select(step))
        except (ImageError, OSError) as error:
            reason = reason_of(error) if isinstance(error, OSError) else str(error)
            place = f"{self.dockerfile.where}:{step.line}"
            raise ImageError(f"{place}: {step.text.partition(' ')[0]}: {reason}") from error

    def _key(self, orders: tuple[Order, ...]) -> str:
        """Return a digest of everything that is known to determine the result."""
        # Root's overlays use trusted.* attributes, other users' overlays user.* attributes.
        who = "root" if os.geteuid() == 0 else f"user {os.geteuid()} {find_subordinate_ids()}"
        steps = [_decisive(order) for order in orders]
        return sha256_hex(msgspec.json.encode((_FORMAT, who, self.base_root.pin, steps)))

    async def _build(self, store: LayerStore, key: str, orders: tuple[Order, ...]) -> None:
        choice = choose_for_build(has_commands=any(isinstance(one.step, Run) for one in orders))
        place = await open_workplace(
            lambda: store.open(key, self.base_root.parts),
            f"build-{key[:12]}",
            choice.network,
            self.spawn,
        )
        try:
            async with place.connected() as box:
                runner = StepRunner(box, self.dockerfile.where, place.building.stage, self.hints)
                for order in orders:
                    await runner.do(order)
            layer = Layer(
                self.base_root.pin,
                tuple(order.step.text for order in orders),
                shared_because=choice.shared_because,
                ids_shared=place.ids_shared,
            )
            store.keep(key, place.building, layer)
        finally:
            place.clear()


def _decisive(order: Order) -> list[object]:
    lines = [] if order.selection is None else [item.line for item in order.selection.items]
    step = {name: value for name, value in _fields(order.step) if name != "line"}
    # Names of files may not be valid text, so hash their bytes.
    return [type(order.step).__name__, step, sha256_hex(os.fsencode("\0\0".join(lines)))]


def _fields(step: Step) -> list[tuple[str, object]]:
    return [(name, getattr(step, name)) for name in step.__dataclass_fields__]
