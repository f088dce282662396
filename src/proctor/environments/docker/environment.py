"""A container of a Docker engine as an environment of a trial.

    start   check the options · find the engine · prepare the image · run · log directories
    stop    remove the container and the verifier's rooms in one call, and the frozen image

What happens inside is in inside.py, the verifier's room in room.py.
"""

import asyncio
import posixpath
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path, PurePosixPath

from proctor.environments.docker.changes import ChangedContainer
from proctor.environments.docker.containers import (
    TRIAL,
    Fill,
    Listed,
    list_processes,
    list_processes_here,
    name_container,
    remove_containers,
    start_container,
    wait_until_served,
    words_of_labels,
    words_of_limits,
    words_of_rights,
)
from proctor.environments.docker.copies import CopiedFiles
from proctor.environments.docker.files import ETC_FILES, EtcFiles, Files
from proctor.environments.docker.image import Image, prepare_image
from proctor.environments.docker.inside import Running
from proctor.environments.docker.merged import MergedFiles, is_mounted_here
from proctor.environments.docker.model_port import HOST, Container, open_model_port
from proctor.environments.docker.program import BRIDGE, Engine, find_engine, run_docker
from proctor.environments.docker.reap import bring_in
from proctor.environments.docker.refusals import check_order
from proctor.environments.docker.room import SLEEP, Outside, Room, pause_container
from proctor.environments.forwarding import ModelPort
from proctor.environments.image_config import COMMAND, find_shell
from proctor.environments.running import DEVICES, MEMORY, MOST_DEVICES, has_files_in_memory
from proctor.environments.sandbox.blueprint import Part
from proctor.environments.sandbox.delete import delete_tree
from proctor.environments.sandbox.limits import limits_of
from proctor.environments.sandbox.mapped import run_mapped
from proctor.environments.sandbox.reap import delete_session
from proctor.environments.sandbox.scratch import make_private, open_run, scratch_roots
from proctor.errors import DockerError, UnsupportedError
from proctor.task.network import NetworkMode
from proctor.trial.changes import LeftOut
from proctor.trial.environment import Environment, EnvironmentOrder, Process, Snapshot
from proctor.trial.finding import FindingCode
from proctor.trial.inside import empty_directories, run_healthcheck
from proctor.trial.paths import INSIDE, TrialPaths

# Frozen files of a container: an image from which other containers are started
#
# The image has no name. The labels of its run let the reaper find it after a kill, and it is
# removed with the container. A clean room is a container of the task's image into which, before it
# starts, the frozen files are copied that are not left out.


_UPPER = "{{if .GraphDriver.Data}}{{.GraphDriver.Data.UpperDir}}{{end}}"


async def keep_as_image(container: str, image: Image) -> Image:
    """Commit the files of a container to an image, with the settings of its original image.

    Raises:
        DockerError: they cannot be committed.
    """
    if image.has_volumes:
        raise UnsupportedError(f"{image.pin}: has volumes, whose files cannot be in an image")
    labels = [word for word in words_of_labels() if word != "--label"]
    # Containers inherit an image's labels. An empty TRIAL means that there is no evidence to
    # salvage from them.
    changes = [f"LABEL {label}" for label in (*labels, f"{TRIAL}=")]
    words = [word for change in changes for word in ("--change", change)]
    committed = await run_docker("commit", *words, container, patience_sec=None)
    return replace(image, id=committed.out.strip())


async def remove_image(image: Image) -> None:
    """Remove a frozen image."""
    await run_docker("image", "rm", image.id)


async def fill_from_kept(container: str, kept: Image, left_out: LeftOut) -> None:
    """Copy frozen files to a container that is not started yet, except those left out.

    The top layer of the frozen image is copied to the container's writable layer, which preserves
    deletions and replaced directories. Both are on this machine.
    """
    source = await _find_layer("image", "inspect", kept.id)
    target = await _find_layer("inspect", container)
    # The engine may have created the working directory in it, and will do so again.
    await asyncio.to_thread(delete_tree, Path(target))
    paths = [[path.lstrip("/") for path in each] for each in (left_out.paths, left_out.plain)]
    # In a process, which can be killed: there may be much to copy.
    await run_mapped("copy", [[source, target]], *paths, apart=True)


async def _find_layer(*words: str) -> str:
    """Return the directory of the top layer of an image or container on this machine."""
    layer = (await run_docker(*words[:-1], "--format", _UPPER, words[-1])).out.strip()
    if not posixpath.isabs(layer) or not Path(layer).is_dir():
        raise UnsupportedError(f"{words[-1]}: its top layer is not on this machine: {layer!r}")
    return layer


_LOGS = tuple(map(str, (INSIDE.agent_dir, INSIDE.verifier_dir, INSIDE.artifacts_dir)))
# Shell of each image, by its Id, found once per process.
_SHELL_OF: dict[str, str] = {}
_LOOK = "\n".join(
    (
        "{{.State.Pid}}",
        "{{.Id}}",
        *(
            f"{{{{if .GraphDriver.Data}}}}{{{{.GraphDriver.Data.{name}}}}}{{{{end}}}}"
            for name in ("MergedDir", "UpperDir", "LowerDir")
        ),
        *("{{.HostsPath}}", "{{.HostnamePath}}", "{{.ResolvConfPath}}"),
    )
)
_N_LINES = 8


class DockerEnvironment(ChangedContainer):
    """A container, and for the verifier another one next to it."""

    _backend = "docker"

    def __init__(self, order: EnvironmentOrder) -> None:
        """Take the trial's options; the kwarg `network` names the network of public tasks."""
        super().__init__(order)
        self._settings = check_order(order)
        self._limits = limits_of(order.config, order.task_env_config)
        # Root directory of the container on the engine's machine; empty if unknown.
        self._merged = ""
        # Names of all containers that were started.
        self._names: list[str] = []
        # Directories for the files of rooms.
        self._scratch: list[Path] = []
        # Image with its frozen files; see Freezing.
        self._frozen: Image | None = None
        # Changed files among those that Docker mounts in /etc, when it was frozen.
        self._frozen_etc: Mapping[str, bytes] = {}
        self._model_port: ModelPort | None = None
        # Processes that the image's ENTRYPOINT had started before the container was handed over.
        self._services: frozenset[tuple[int, int | str]] = frozenset()

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
            network=self._settings.network,
        )
        tools = {"kernel": engine.kernel, "docker": engine.version}
        self._snapshot = Snapshot(image.pin, "docker", tools)
        self._report_storage()
        name = await self._run_container(image, network, self.trial_paths.trial_dir)
        files = await self._find_files(engine, name, image, network)
        await files.open_directories(_LOGS)
        workdir = task.workdir or image.workdir
        if image.id not in _SHELL_OF:
            path = image.env.get("PATH", "")
            _SHELL_OF[image.id] = await find_shell(image.pin, path, files.kind_of)
        self._running = Running(
            container=name,
            image=image,
            shell=_SHELL_OF[image.id],
            workdir=workdir,
            env=dict(order.persistent_env),
            files=files,
            findings=self._findings,
        )
        if image.entrypoint and task.workdir:
            # The engine creates that of other containers, but an ENTRYPOINT starts in the image's.
            await self.exec(f"mkdir -p {shlex.quote(workdir)}", cwd="/", user="root")
        if _is_uploaded(order.environment_dir, has_image=task.docker_image is not None):
            await self.upload_dir(order.environment_dir, workdir)
        await self._wait_for_services(image)

    async def _run_container(
        self, image: Image, network: str, trial: Path | None, fill: Fill | None = None
    ) -> str:
        """Start the container; `trial` is where the reaper puts its evidence after a kill."""
        name = name_container(self.session_id)
        self._names.append(name)
        workdir = self._order.task_env_config.workdir or image.workdir
        words = ["--name", name, "--pull", "never"]
        # Shareable, so that the verifier's room can join the IPC namespace.
        words += ["--log-driver", "none", "--ipc", "shareable", "--network", network]
        words += [*words_of_labels(trial), *words_of_limits(self._limits)]
        # The image's HEALTHCHECK is run here, so that no process of it comes and goes later.
        words += [*words_of_rights(), "--no-healthcheck"]
        if image.entrypoint:
            await start_container([*words, image.id, *COMMAND], name, fill)
            await wait_until_served(name)
        else:
            words += ["--workdir", workdir, "--entrypoint", SLEEP[0]]
            await start_container([*words, image.id, *SLEEP[1:]], name, fill)
        return name

    async def _wait_for_services(self, image: Image) -> None:
        """Wait for the image's HEALTHCHECK, as harbor's `docker compose up --wait` does."""
        if image.healthcheck is not None:
            await run_healthcheck(self, image.healthcheck)
        if image.entrypoint:
            self._services = frozenset(row.identity for row in await self._list_rows())

    async def _find_files(self, engine: Engine, name: str, image: Image, network: str) -> Files:
        """Open the model port; return the fastest way to access the files of the container."""
        inspected = await run_docker("inspect", "--format", _LOOK, name)
        lines = inspected.out.removesuffix("\n").split("\n")
        pid, number, merged, upper, lowers, *etc = [*lines, *[""] * (_N_LINES - len(lines))]
        self._first = int(pid)
        if port := self._order.model_port:
            self._model_port = open_model_port(Container(number, self._first, network), port)
        self._merged = merged if posixpath.isabs(merged) else ""
        if posixpath.isabs(upper) and posixpath.isabs(lowers):
            self._layers = (Part("/", tuple(lowers.split(":")), upper, ""),)
        # Volumes are not below the merged root, and with mapped ids the owners would differ.
        is_plain = not image.has_volumes and not engine.is_mapped
        if is_plain and is_mounted_here(self._merged):
            self._etc_files = EtcFiles(dict(zip(ETC_FILES, etc, strict=True)))
            return MergedFiles(self._merged)
        return CopiedFiles(name)

    def _choose_network(self, engine: Engine) -> str:
        """Choose the network; report a finding if it is the host's."""
        if self._order.network.mode is NetworkMode.NO_NETWORK:
            return "none"
        chosen = self._settings.network or BRIDGE
        if chosen not in engine.networks:
            raise DockerError(
                f"network_mode is public, but the Docker engine has no network {chosen!r}; it has "
                f"{', '.join(sorted(engine.networks))}: choose one with --ek network=NAME (host is "
                "the host's network)"
            )
        if chosen == HOST:
            self._warn(
                FindingCode.NETWORK_SHARED,
                "the environment used the host's network: --ek network=host",
                reason="--ek network=host",
            )
        return chosen

    def _report_storage(self) -> None:
        config, task = self._order.config, self._order.task_env_config
        if storage := config.override_storage_mb or task.storage_mb:
            reason = "Docker cannot limit how much a task stores"
            text = f"storage_mb = {storage}"
            self._warn(
                FindingCode.STORAGE_NOT_ENFORCED,
                f"{text} is not enforced: {reason}",
                limit=text,
                reason=reason,
            )

    async def _end(self) -> None:
        """End the container once; a cancelled caller does not interrupt this."""
        owed, self._running = self._running, None
        if self._ending is None:
            is_owed = owed is not None and owed.is_owed
            self._ending = asyncio.ensure_future(self._release(is_owed=is_owed))
        await asyncio.shield(self._ending)

    async def _release(self, *, is_owed: bool) -> None:
        names, self._names = self._names, []
        scratch, self._scratch = self._scratch, []
        frozen, self._frozen = self._frozen, None
        model_port, self._model_port = self._model_port, None
        try:
            if model_port is not None:
                await model_port.end()
            if is_owed:
                # The first is the agent's, which is removed after its evidence was copied.
                await asyncio.to_thread(bring_in, names.pop(0), self.trial_paths.trial_dir)
            await remove_containers(names)
            if frozen is not None:
                await remove_image(frozen)
        finally:
            for directory in scratch:
                await asyncio.to_thread(delete_session, directory)

    async def open_model_port(self) -> None:
        """Let programs inside reach the model gateway; see ModelReaching."""
        self._now()
        if self._model_port is not None:
            self._model_port.open()

    async def close_model_port(self) -> None:
        """End connections to the model gateway; see ModelReaching."""
        if self._model_port is not None:
            await self._model_port.close()

    async def list_processes(self, *, with_services: bool = False) -> Sequence[Process]:
        """List its processes, without the two that keep it running; see Watched."""
        hidden = frozenset() if with_services else self._services
        return [row.process for row in await self._list_rows() if row.identity not in hidden]

    async def _list_rows(self) -> list[Listed]:
        now = self._now()
        if isinstance(now.files, MergedFiles):
            with suppress(OSError):
                return list_processes_here(self._first, self._order.model_port or 0)
        return await list_processes(now.container, self._first)

    async def pause(self) -> int:
        """Pause the container if it has processes; see Pausing."""
        if await self.list_processes(with_services=True):
            await pause_container(self._now().container, self._limits)
            self._is_paused = True
        return 0

    async def holds_memory(self) -> bool:
        """Whether it has files in memory, which cannot be frozen; see Freezing."""
        now = self._now()
        if isinstance(now.files, MergedFiles):
            # Through /proc, which includes the container's mounts; the merged root does not.
            whole = MergedFiles(f"/proc/{self._first}/root")
            return has_files_in_memory(await whole.list_files([DEVICES], MOST_DEVICES))
        listed = await self.exec(f"ls -A {MEMORY}", user="root")
        return bool((listed.stdout or "").strip())

    async def freeze(self) -> None:
        """Commit its files as they are now to an image; see Freezing."""
        now = self._now()
        before, self._frozen = self._frozen, None
        if before is not None:
            await remove_image(before)
        self._frozen = await keep_as_image(now.container, now.image)
        self._frozen_etc = self._etc_files.find_changed()

    async def open_frozen(self, paths: TrialPaths) -> "DockerEnvironment":
        """Start another container with the frozen files; see Freezing."""
        kept = self._check_kept()
        other = DockerEnvironment(replace(self._order, trial_paths=paths))
        await other.start_like(self._now(), kept, self._frozen_etc)
        return other

    async def open_clean(self, paths: TrialPaths, left_out: LeftOut) -> "DockerEnvironment":
        """Start another container from the image and the frozen files not left out.

        See Accounting.

        Raises:
            UnsupportedError: this engine does not support clean rooms.
            DockerError, SandboxError, OSError: nothing was frozen, or it cannot be started.
        """
        kept, now = self._check_kept(), self._now()
        if not self._has_layers_here():
            raise UnsupportedError(
                "a clean room in Docker requires root on the engine's machine, and an engine with "
                "the overlay2 storage driver or a compatible one"
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
        """Start with the files of another container, and with its shell and directories.

        `etc` contains files of /etc that are in no layer.

        Raises:
            DockerError, OSError: it cannot be started.
        """
        self._ending = None
        async with self._ended_on_error():
            engine = await find_engine()
            network = self._choose_network(engine)
            name = await self._run_container(image, network, None, fill)
            files = await self._find_files(engine, name, image, network)
            self._etc_files.write(etc)
            self._running = replace(
                model,
                container=name,
                image=image,
                files=files,
                findings=self._findings,
                is_owed=False,
            )
            await self._wait_for_services(image)

    async def open_room(self, fresh: Sequence[str]) -> Environment:
        """Open a verifier's room; see Watched."""
        now = self._now()
        if not self._merged:
            return await self._open_none(fresh)
        scratch = None
        if isinstance(now.files, MergedFiles):
            root = scratch_roots()[0]
            make_private(root)
            scratch = open_run(root).open_session(self.session_id).directory
            self._scratch.append(scratch)
        else:
            self._warn(
                FindingCode.ROOM_IN_PARTS,
                "the tests could not rename files from one top-level directory to another: proctor "
                "is not root on the engine's machine, so each of them was mounted separately",
                phase="verify",
            )
        outside = Outside(now, self._first, self._merged, self._limits, tuple(fresh), scratch)
        room = Room(self, outside, self._names)
        await room.open()
        return room

    async def _open_none(self, fresh: Sequence[str]) -> Environment:
        """Empty the directories `fresh`, because a room is not possible."""
        self._warn(
            FindingCode.VERIFIER_NOT_APART,
            "the verifier ran among the agent's processes: the Docker engine does not report where "
            "a container's files are, so its directories could only be emptied",
            phase="verify",
            directories=list(fresh),
        )
        await empty_directories(self, list(map(PurePosixPath, fresh)), open_to_all=True)
        return self


def _is_uploaded(environment_dir: Path, *, has_image: bool) -> bool:
    """Whether a task's directory is copied to the working directory, as harbor does."""
    if not has_image or not environment_dir.is_dir() or (environment_dir / "Dockerfile").exists():
        return False
    return any(environment_dir.iterdir())
