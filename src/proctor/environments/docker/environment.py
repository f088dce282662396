"""A container of a Docker engine as an environment of a trial.

    start   refuse what cannot be had · the engine · the image · run · log directories
    stop    remove the container and the verifier's rooms, in one call, and what was kept of it

Everything that happens inside is in inside.py, the verifier's room in room.py.
"""

import asyncio
import posixpath
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path, PurePosixPath

from proctor.environments.docker.changes import ChangedContainer
from proctor.environments.docker.containers import (
    TRIAL,
    Fill,
    name_container,
    remove_containers,
    start_container,
    words_of_labels,
    words_of_limits,
    words_of_rights,
)
from proctor.environments.docker.copies import CopiedFiles
from proctor.environments.docker.engine import BRIDGE, Engine, find_engine
from proctor.environments.docker.etc_files import ETC_FILES, EtcFiles
from proctor.environments.docker.files import Files
from proctor.environments.docker.image import Image, prepare_image
from proctor.environments.docker.inside import Running
from proctor.environments.docker.merged import MergedFiles, is_mounted_here
from proctor.environments.docker.program import run_docker
from proctor.environments.docker.reap import bring_in
from proctor.environments.docker.refusals import check_order
from proctor.environments.docker.room import SLEEP, Outside, Room, pause_container
from proctor.environments.interior import DEVICES, MEMORY, MOST_DEVICES, lie_in_memory
from proctor.environments.sandbox.blueprint import Part
from proctor.environments.sandbox.delete import delete_tree
from proctor.environments.sandbox.limits import limits_of
from proctor.environments.sandbox.mapped import run_mapped
from proctor.environments.sandbox.processes import (
    LONGEST_COMMAND,
    Lister,
    find_living,
    read_stat,
)
from proctor.environments.sandbox.reap import delete_session
from proctor.environments.sandbox.scratch import make_private, open_run, scratch_roots
from proctor.environments.shells import find_shell
from proctor.errors import DockerError, UnsupportedError
from proctor.task.network import NetworkMode
from proctor.trial.changes import LeftOut
from proctor.trial.environment import Environment, Process, Snapshot
from proctor.trial.finding import Finding, FindingCode
from proctor.trial.inside import empty_directories
from proctor.trial.order import EnvironmentOrder
from proctor.trial.paths import INSIDE, TrialPaths

# What runs in a container, as the engine or the kernel sees it: nothing in it is asked


_KEEPER = "sleep infinity"
_DEAD = ("Z", "X")
_FIELDS = "pid,ppid,stat,args"


@dataclass(frozen=True, slots=True)
class _Row:
    pid: int
    """For the engine."""
    parent: int
    process: Process
    """Its pid is that inside, where that is known."""


async def list_processes(container: str, first: int) -> list[Process]:
    """Everything but the first process and the one sleeper that it keeps; command lines alone.

    A process is listed while any of its threads lives. An engine whose `ps` lists no threads, such
    as busybox's, takes one whose first thread has ended for dead.

    Raises:
        DockerError: the container or the engine is gone.
    """
    told = await run_docker("top", container, "-eLo", _FIELDS, is_checked=False)
    if told.code != 0:
        told = await run_docker("top", container, "-eo", _FIELDS)
    fields = [line.split(None, 3) for line in told.out.splitlines()[1:]]
    rows: dict[int, _Row] = {}
    for pid, parent, state, command in (each for each in fields if len(each) == 4):
        if not state.startswith(_DEAD):
            shown = Process(int(pid), command[:LONGEST_COMMAND])
            rows.setdefault(int(pid), _Row(int(pid), int(parent), shown))
    return _without_own(list(rows.values()), first)


def list_processes_here(first: int) -> list[Process]:
    """The same, where the engine's processes are this machine's; looked for in /proc.

    Raises:
        OSError: the container is gone.
    """
    namespace = str(Path(f"/proc/{first}/ns/pid").readlink())
    lister = Lister(f"/proc/{first}/root")
    return _without_own(sorted(_find_in(namespace, lister), key=lambda row: row.pid), first)


def _find_in(namespace: str, lister: Lister) -> Iterator[_Row]:
    for place in Path("/proc").iterdir():
        # One that ends meanwhile is none.
        with suppress(OSError, ValueError):
            if place.name.isdecimal() and str((place / "ns/pid").readlink()) == namespace:
                yield from _describe(int(place.name), lister)


def _describe(pid: int, lister: Lister) -> Iterator[_Row]:
    name, fields = read_stat(f"/proc/{pid}")
    place = find_living(pid, fields)
    if place is None:
        return
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace")
    facts = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    seen = lister.describe(place, name, int(facts["Uid"].split()[0]))
    inside = int(facts["NSpid"].split()[-1])
    yield _Row(pid, int(fields[1]), Process(inside, **seen._asdict()))


def _without_own(rows: Sequence[_Row], first: int) -> list[Process]:
    found, has_keeper = [], False
    for row in rows:
        if row.pid == first:
            continue
        if row.parent == first and row.process.command == _KEEPER and not has_keeper:
            # Exactly one: another process that takes this name is listed.
            has_keeper = True
            continue
        found.append(row.process)
    return found


# What an agent left in a container, kept as an image that other containers are started from
#
# Such an image has no name. It carries the labels of its run, by which it is found again after a
# kill, and goes with the container that it was made of. A clean room is a container of the task's
# own image that is given, before it is started, the part of the kept files that is not left out.


_UPPER = "{{if .GraphDriver.Data}}{{.GraphDriver.Data.UpperDir}}{{end}}"


async def keep_as_image(container: str, image: Image) -> Image:
    """The files of a container as they are now, with all else as in the image it was started from.

    Raises:
        DockerError: they cannot be kept.
    """
    if image.has_volumes:
        raise UnsupportedError(f"{image.pin}: has volumes, and what lies in those is in no image")
    labels = [word for word in words_of_labels() if word != "--label"]
    # Containers inherit an image's labels; one that begins with this has no evidence to bring in.
    changes = [f"LABEL {label}" for label in (*labels, f"{TRIAL}=")]
    words = [word for change in changes for word in ("--change", change)]
    told = await run_docker("commit", *words, container, patience_sec=None)
    return replace(image, id=told.out.strip())


async def remove_image(image: Image) -> None:
    """Remove what was kept.

    Raises:
        DockerError: it cannot be removed.
    """
    await run_docker("image", "rm", image.id)


async def fill_from_kept(container: str, kept: Image, left_out: LeftOut) -> None:
    """Give a container that was not started yet what was kept, but for what is left out.

    The topmost layer of what was kept is copied to the layer that takes what the container writes,
    so that deletions and replaced directories stay what they are. Both lie on this machine.

    Raises:
        DockerError, SandboxError, OSError: that cannot be done.
    """
    source = await _find_layer("image", "inspect", kept.id)
    target = await _find_layer("inspect", container)
    # The engine has made the working directory in it, if the image has none, and will again.
    await asyncio.to_thread(delete_tree, Path(target))
    paths = [[path.lstrip("/") for path in each] for each in (left_out.paths, left_out.plain)]
    # A process does it, which can be ended: there may be much to copy.
    await run_mapped("copy", [[source, target]], *paths, apart=True)


async def _find_layer(*words: str) -> str:
    """Where the topmost layer of something lies on this machine."""
    layer = (await run_docker(*words[:-1], "--format", _UPPER, words[-1])).out.strip()
    if not posixpath.isabs(layer) or not Path(layer).is_dir():
        raise UnsupportedError(f"{words[-1]}: its topmost layer is not on this machine: {layer!r}")
    return layer


_LOGS = tuple(map(str, (INSIDE.agent_dir, INSIDE.verifier_dir, INSIDE.artifacts_dir)))
_PHASE = "setup"
_SHELL_OF: dict[str, str] = {}
"""The shell of each image that was started, by its Id."""
_HOST = "host"
_LOOK = "\n".join(
    (
        "{{.State.Pid}}",
        *(
            f"{{{{if .GraphDriver.Data}}}}{{{{.GraphDriver.Data.{name}}}}}{{{{end}}}}"
            for name in ("MergedDir", "UpperDir", "LowerDir")
        ),
        *("{{.HostsPath}}", "{{.HostnamePath}}", "{{.ResolvConfPath}}"),
    )
)
_N_LINES = 7


class DockerEnvironment(ChangedContainer):
    """A container, and for the verifier another one beside it."""

    def __init__(self, order: EnvironmentOrder) -> None:
        """Take an order; the kwarg `network` names the network of tasks that may have one.

        Raises:
            UnsupportedError: the task or the job asks for what the docker environment has not.
        """
        super().__init__(order)
        self._wishes = check_order(order)
        self._limits = limits_of(order.config, order.task_env_config)
        self._findings: list[Finding] = []
        self._snapshot: Snapshot | None = None
        self._merged = ""
        """Where the container's root lies, for the engine; empty where it does not say."""
        self._names: list[str] = []
        """Every container that was begun."""
        self._scratch: list[Path] = []
        """Every directory for a room's files."""
        self._frozen: Image | None = None
        """Its files as they were kept; see Freezing."""
        self._frozen_etc: Mapping[str, bytes] = {}
        """Of the files that Docker mounts, those that were changed when its files were kept."""
        self._ending: asyncio.Task[None] | None = None

    @property
    def snapshot(self) -> Snapshot:
        """What it runs on; known once it was started."""
        return self._snapshot or Snapshot(runtime_image="unknown", compute_backend="docker")

    @property
    def findings(self) -> Sequence[Finding]:
        """What a reader of the score should know of it, so far."""
        return tuple(self._findings)

    async def start(self, force_build: bool) -> None:  # noqa: FBT001 - harbor's signature
        """Have the image where that is needed, and bring the container up.

        Raises:
            DockerError, ImageError: it cannot be brought up.
            RuntimeError: the Dockerfile could not be built.
        """
        self._ending = None
        try:
            await self._start(force_build=force_build)
        except BaseException:
            await self._end()
            raise

    async def _start(self, *, force_build: bool) -> None:
        order, task = self._order, self._order.task_env_config
        engine = await find_engine()
        network = self._choose_network(engine)
        image = await prepare_image(
            order.environment_dir,
            task.docker_image,
            order.environment_name,
            order.logger,
            force=force_build,
        )
        tools = {"kernel": engine.kernel, "docker": engine.version}
        self._snapshot = Snapshot(image.pin, "docker", tools)
        self._heed_storage()
        name = await self._run_container(image, network, self.trial_paths.trial_dir)
        files = await self._find_files(engine, name, image)
        await files.open_directories(_LOGS)
        workdir = task.workdir or image.workdir
        self._running = Running(
            container=name,
            image=image,
            shell=await _shell_of(image, files),
            workdir=workdir,
            env=dict(order.persistent_env),
            files=files,
            findings=self._findings,
        )
        if _is_uploaded(order.environment_dir, has_image=task.docker_image is not None):
            await self.upload_dir(order.environment_dir, workdir)

    async def _run_container(
        self, image: Image, network: str, trial: Path | None, fill: Fill | None = None
    ) -> str:
        """Start the container; `trial` gets what it holds if nobody is left to fetch it."""
        name = name_container(self.session_id)
        self._names.append(name)
        workdir = self._order.task_env_config.workdir or image.workdir
        words = ["--name", name, "--pull", "never"]
        words += ["--log-driver", "none", "--ipc", "shareable", "--network", network]
        words += [*words_of_labels(trial), *words_of_limits(self._limits)]
        words += [*words_of_rights(), "--workdir", workdir, "--entrypoint", SLEEP[0]]
        await start_container([*words, image.id, *SLEEP[1:]], name, fill)
        return name

    async def _find_files(self, engine: Engine, name: str, image: Image) -> Files:
        """How the files of the container are best reached."""
        told = await run_docker("inspect", "--format", _LOOK, name)
        lines = told.out.removesuffix("\n").split("\n")
        pid, merged, upper, lowers, *etc = [*lines, *[""] * (_N_LINES - len(lines))]
        self._first = int(pid)
        self._merged = merged if posixpath.isabs(merged) else ""
        if posixpath.isabs(upper) and posixpath.isabs(lowers):
            self._layers = (Part("/", tuple(lowers.split(":")), upper, ""),)
        is_plain = not image.has_volumes and not engine.is_mapped
        if is_plain and is_mounted_here(self._merged):
            self._etc_files = EtcFiles(dict(zip(ETC_FILES, etc, strict=True)))
            return MergedFiles(self._merged)
        return CopiedFiles(name)

    def _choose_network(self, engine: Engine) -> str:
        """The network for what the task may reach; said aloud where it is the host's.

        Raises:
            DockerError: the engine has none for it.
        """
        if self._order.network.mode is NetworkMode.NO_NETWORK:
            return "none"
        chosen = self._wishes.network or BRIDGE
        if chosen not in engine.networks:
            raise DockerError(
                f"network_mode is public, and the Docker engine has no network {chosen!r}; it has "
                f"{', '.join(sorted(engine.networks))}: name one by --ek network=NAME, where host "
                "is the host's own"
            )
        if chosen == _HOST:
            self._find(
                FindingCode.NETWORK_SHARED,
                "the environment used the host's own network: --ek network=host",
                reason="--ek network=host",
            )
        return chosen

    def _heed_storage(self) -> None:
        config, task = self._order.config, self._order.task_env_config
        if storage := config.override_storage_mb or task.storage_mb:
            reason = "Docker cannot limit how much a task stores"
            text = f"storage_mb = {storage}"
            self._find(
                FindingCode.LIMITS_NOT_ENFORCED,
                f"{text} is not enforced: {reason}",
                limit=text,
                reason=reason,
            )

    def _find(self, code: FindingCode, message: str, phase: str = _PHASE, **detail: object) -> None:
        self._order.logger.warning(message)
        self._findings.append(Finding(code=code, phase=phase, message=message, detail=detail))

    async def stop(self, delete: bool) -> None:  # noqa: FBT001 - harbor's signature
        """End everything in it and remove it; its image stays for the next trial.

        Raises:
            DockerError, OSError: something of it does not go away.
        """
        await self._end()

    async def _end(self) -> None:
        """End it once; whoever is cancelled while waiting for that does not stop it."""
        owed, self._running = self._running, None
        if self._ending is None:
            is_owed = owed is not None and owed.is_owed
            self._ending = asyncio.ensure_future(self._let_go(is_owed=is_owed))
        await asyncio.shield(self._ending)

    async def _let_go(self, *, is_owed: bool) -> None:
        names, self._names = self._names, []
        scratch, self._scratch = self._scratch, []
        frozen, self._frozen = self._frozen, None
        try:
            if is_owed:
                # The first one is the agent's; it goes once its evidence is in the trial.
                await asyncio.to_thread(bring_in, names.pop(0), self.trial_paths.trial_dir)
            await remove_containers(names)
            if frozen is not None:
                await remove_image(frozen)
        finally:
            for directory in scratch:
                await asyncio.to_thread(delete_session, directory)

    async def list_processes(self) -> Sequence[Process]:
        """What runs in it besides the two processes that keep it up."""
        now = self._now()
        if isinstance(now.files, MergedFiles):
            with suppress(OSError):
                return list_processes_here(self._first)
        return await list_processes(now.container, self._first)

    async def pause(self) -> int:
        """Pause the container if there is anything to stop; see Pausing."""
        if await self.list_processes():
            await pause_container(self._now().container, self._limits)
            self._is_paused = True
        return 0

    async def holds_memory(self) -> bool:
        """Whether files lie in its memory; see Freezing."""
        now = self._now()
        if isinstance(now.files, MergedFiles):
            # Its own root, with what is mounted there; the one on the disk has nothing of that.
            whole = MergedFiles(f"/proc/{self._first}/root")
            return lie_in_memory(await whole.list_files([DEVICES], MOST_DEVICES))
        told = await self.exec(f"ls -A {MEMORY}", user="root")
        return bool((told.stdout or "").strip())

    async def freeze(self) -> None:
        """Keep its files as they are now, as an image; see Freezing.

        Raises:
            DockerError: they cannot be kept.
        """
        now = self._now()
        before, self._frozen = self._frozen, None
        if before is not None:
            await remove_image(before)
        self._frozen = await keep_as_image(now.container, now.image)
        self._frozen_etc = self._etc_files.find_changed()

    async def open_frozen(self, paths: TrialPaths) -> "DockerEnvironment":
        """Another container, with the files that were kept; see Freezing.

        Raises:
            DockerError: nothing was kept, or it cannot be started.
        """
        kept = self._check_kept()
        other = DockerEnvironment(replace(self._order, trial_paths=paths))
        await other.start_like(self._now(), kept, self._frozen_etc)
        return other

    async def open_clean(self, paths: TrialPaths, left_out: LeftOut) -> "DockerEnvironment":
        """Another container: the image, and what is not left out; see Accounting.

        Raises:
            UnsupportedError: there are no clean rooms on this engine.
            DockerError, SandboxError, OSError: nothing was kept, or it cannot be brought up.
        """
        kept, now = self._check_kept(), self._now()
        if not self._has_layers_here():
            raise UnsupportedError(
                "a clean room in Docker takes root on the engine's machine, and an engine that "
                "keeps the layers of containers as overlay2 does"
            )
        etc = {path: data for path, data in self._frozen_etc.items() if path not in left_out.paths}
        other = DockerEnvironment(replace(self._order, trial_paths=paths))
        fill = partial(fill_from_kept, kept=kept, left_out=left_out)
        await other.start_like(now, now.image, etc, fill)
        return other

    def _check_kept(self) -> Image:
        if self._frozen is None:
            raise DockerError(f"{self.session_id}: no state of this container was kept")
        return self._frozen

    async def start_like(
        self, model: Running, image: Image, etc: Mapping[str, bytes], fill: Fill | None = None
    ) -> None:
        """Bring it up on what another container has left, which is not furnished again.

        `etc` has files of /etc that are in no layer.

        Raises:
            DockerError, OSError: it cannot be brought up.
        """
        self._ending = None
        try:
            engine = await find_engine()
            name = await self._run_container(image, self._choose_network(engine), None, fill)
            files = await self._find_files(engine, name, image)
            self._etc_files.write(etc)
        except BaseException:
            await self._end()
            raise
        self._running = replace(
            model,
            container=name,
            image=image,
            files=files,
            findings=self._findings,
            is_owed=False,
        )

    async def open_room(self, fresh: Sequence[str]) -> Environment:
        """A verifier's room; see Watched."""
        now = self._now()
        if not self._merged:
            return await self._open_none(fresh)
        scratch = None
        if isinstance(now.files, MergedFiles):
            root = scratch_roots()[0]
            make_private(root)
            scratch = open_run(root).open_session(self.session_id).directory
            self._scratch.append(scratch)
        outside = Outside(now, self._merged, self._limits, tuple(fresh), scratch)
        room = Room(self, outside, self._names)
        await room.open()
        return room

    async def _open_none(self, fresh: Sequence[str]) -> Environment:
        """Where there can be no room: what is to be fresh is emptied, and that is all."""
        self._find(
            FindingCode.VERIFIER_NOT_APART,
            "the verifier ran among the agent's processes: the Docker engine does not say where a "
            "container's files lie, so that its directories could only be emptied",
            phase="verify",
            directories=list(fresh),
        )
        await empty_directories(self, list(map(PurePosixPath, fresh)), open_to_all=True)
        return self


def _is_uploaded(environment_dir: Path, *, has_image: bool) -> bool:
    """Whether a task's directory is put into the working directory, as harbor does it."""
    if not has_image or not environment_dir.is_dir() or (environment_dir / "Dockerfile").exists():
        return False
    return any(environment_dir.iterdir())


async def _shell_of(image: Image, files: Files) -> str:
    """The shell of an image, looked for once however many containers there are of it.

    Raises:
        ImageError: it has none.
    """
    if image.id not in _SHELL_OF:
        path = image.env.get("PATH", "")
        _SHELL_OF[image.id] = await find_shell(image.pin, path, files.kind_of)
    return _SHELL_OF[image.id]
