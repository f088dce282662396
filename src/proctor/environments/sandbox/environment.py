"""The sandbox as an environment of a trial: the embedded default.

    start   check the options · build the root · scratch · control groups · network · spawn ·
            log directories and working directory
    stop    end its processes, the network helper and the groups; empty the scratch

What happens inside is in inside.py; box.py runs the processes, and roots/build.py builds the root.
"""

import asyncio
import os
import platform
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from proctor.environments.image_config import find_shell
from proctor.environments.running import (
    DEVICES,
    MOST_DEVICES,
    StartedEnvironment,
    has_files_in_memory,
)
from proctor.environments.sandbox.accounting import (
    changes_in_memory,
    find_surroundings,
    list_changes,
)
from proctor.environments.sandbox.blueprint import Command, Network
from proctor.environments.sandbox.box import Box, shared_zygote
from proctor.environments.sandbox.changes import LayeredChanges, give_back, lookup_of
from proctor.environments.sandbox.host_ports import OPTION, check_can_open, host_ports_of
from proctor.environments.sandbox.inside import (
    Inside,
    Room,
    Running,
    check_user,
    find_service,
    start_service,
)
from proctor.environments.sandbox.limits import limits_of
from proctor.environments.sandbox.mapped import run_mapped
from proctor.environments.sandbox.network import choose_network, connect
from proctor.environments.sandbox.pool import Held, PoolRequest, SandboxPool, pool_of
from proctor.environments.sandbox.privileges import is_all_powerful
from proctor.environments.sandbox.reap import delete_session
from proctor.environments.sandbox.refusals import check_order
from proctor.environments.sandbox.roots.build import Root, build_root
from proctor.environments.sandbox.roots.layers import Parts
from proctor.environments.sandbox.scratch import Session
from proctor.environments.sandbox.slots import KEPT_STATES, Slot
from proctor.environments.sandbox.subordinate import find_subordinate_ids
from proctor.environments.tools import Lookup, is_touched
from proctor.errors import SandboxError, UnsupportedError
from proctor.trial.changes import Change, LeftOut, Surroundings
from proctor.trial.environment import ChangedFile, EnvironmentOrder, Process, Snapshot
from proctor.trial.finding import FindingCode
from proctor.trial.inside import run_healthcheck
from proctor.trial.paths import INSIDE, TrialPaths

# Snapshots of a sandbox's files, from which other sandboxes start
#
# The overlays' upper directories are copied into the sandbox's scratch, and deleted with it when it
# is stopped or reaped. A clean room starts from the image and the copied files that are kept.


_FROZEN, _CLEAN = KEPT_STATES
# Bytes that are copied in a thread; more are copied in a process, which can be killed.
_LITTLE = 64 << 20


async def freeze_slot(slot: Slot, n_bytes: int | None = None) -> Parts:
    """Copy what was written in a sandbox; return the root file system with the copies on top.

    An earlier copy is deleted first. `n_bytes` is the size, if known.

    Raises:
        SandboxError: the disk is full, or a file cannot be copied.
        OSError: the earlier copy cannot be deleted, or no process can be started.
    """
    place = await _empty_place(slot, _FROZEN)
    copies = [str(place / str(number)) for number in range(len(slot.parts))]
    pairs = [(part.upper, copy) for part, copy in zip(slot.parts, copies, strict=True)]
    try:
        await run_mapped("copy", pairs, apart=n_bytes is None or n_bytes > _LITTLE)
    except BaseException:
        await asyncio.shield(asyncio.to_thread(delete_session, place))
        raise
    return _lay(slot.root, copies)


async def clean_parts(
    slot: Slot,
    frozen: Parts,
    left_out: Collection[str],
    plain: Collection[str],
    n_bytes: int | None = None,
) -> Parts:
    """Return the root file system with the frozen files on top, except those in `left_out`.

    Large trees are hard-linked instead of copied, which is visible in the files' link counts.
    """
    place = await _empty_place(slot, _CLEAN)
    clones = [str(place / str(number)) for number in range(len(slot.parts))]
    trees = []
    for (target, layers), clone in zip(frozen, clones, strict=True):
        prefix = f"{target.rstrip('/')}/"
        below = [
            [path.removeprefix(prefix) for path in paths if path.startswith(prefix)]
            for paths in (left_out, plain)
        ]
        trees.append([layers[0], clone, *below])
    await run_mapped("clone", trees, n_bytes is None or n_bytes > _LITTLE)
    return _lay(slot.root, clones)


async def _empty_place(slot: Slot, name: str) -> Path:
    place = slot.session.directory / name
    await asyncio.to_thread(delete_session, place)
    place.mkdir(mode=0o700)
    return place


def _lay(root: Parts, tops: list[str]) -> Parts:
    return tuple((target, (top, *lowers)) for (target, lowers), top in zip(root, tops, strict=True))


_DIRECTORIES = tuple(map(str, (INSIDE.agent_dir, INSIDE.verifier_dir, INSIDE.artifacts_dir)))
_GET_A_SHELL = ": import an image that has it, or install one there and import it again"
# Shell of each root, found once per process.
_SHELL_OF: dict[Parts, str] = {}
# Roots and the working directories they are known to contain.
_WITH_WORKDIR: set[tuple[Parts, str]] = set()


class SandboxEnvironment(Inside, StartedEnvironment):
    """A sandbox of our own: Linux namespaces over an overlay file system."""

    _backend = "sandbox"

    def __init__(self, order: EnvironmentOrder) -> None:
        """Take the trial's options; the kwarg `base` names the root file system, default `host`."""
        super().__init__(order, room=0)
        self._options = check_order(order)
        self._limits = limits_of(order.config, order.task_env_config)
        self._choice = choose_network(order.network)
        self._host_ports = host_ports_of(order.config.kwargs)
        self._held = Held()
        self._frozen: Parts | None = None
        # Bytes that were written, if they were counted.
        self._n_written: int | None = None

    async def _start(self, *, force_build: bool) -> None:
        self._held = Held()
        order, zygote = self._order, await shared_zygote()
        pool = pool_of(zygote)
        if pool.place.note:
            order.logger.warning(pool.place.note)
        root = await build_root(
            order.environment_dir,
            order.task_env_config.docker_image,
            self._options,
            scratch=pool.run.directory,
            spawn=zygote.spawn,
            force=force_build,
        )
        self._findings += root.findings
        for note in (*(finding.message for finding in root.findings), *root.notes):
            self._order.logger.warning(note)
        check_user(root.user, only_root=self._only_root)
        tools = {"kernel": platform.release()}
        self._snapshot = Snapshot(root.pin, "sandbox", tools)
        if not is_all_powerful() and (usr := _find_hosts_usr(root.parts)):
            message = (
                "/usr is read-only, so no package can be installed: it is the host's, and this "
                "user is not root; pass --base with an imported image to have a writable one"
            )
            self._warn(FindingCode.USR_READ_ONLY, message, directory=usr)
        if reason := self._choice.shared_because:
            message = f"the environment used the host's network: {reason}"
            self._warn(FindingCode.NETWORK_SHARED, message, reason=reason)
        network = self._choice.network
        bound = self._host_ports if network in (Network.SLIRP, Network.PASTA) else ()
        request = PoolRequest(
            root.parts, network, self._limits, _DIRECTORIES, bound, self._find_model_port()
        )
        box, session = await self._acquire(pool, request)
        self._held.connection = await connect(
            request.network, box.pid, box.namespaces, session.directory
        )
        await self._prepare(root, box)
        pool.expect(request)
        await self._start_services()

    async def _acquire(self, pool: SandboxPool, request: PoolRequest) -> tuple[Box, Session]:
        """Take or make an empty sandbox; write the note that salvage.py reads after a kill."""
        if ready := await pool.hold_ready(request):
            self._held = ready
        else:
            await pool.hold_new(request, self.session_id, self._held)
        box, slot = self._check_made()
        self._report_limits(self._held.groups.missing)
        self._report_shared_ids(self._held.ids_shared)
        if self._held.unlimited:
            limit = f"storage_mb = {self._limits.storage_mb}"
            message = f"{limit} is not enforced: {self._held.unlimited}"
            # Every task of some benchmarks asks for it, so it is no warning.
            self._order.logger.info(message)
            reason = self._held.unlimited
            self._note(FindingCode.STORAGE_NOT_ENFORCED, message, limit=limit, reason=reason)
        slot.session.write_note(self.session_id, self.trial_paths.trial_dir, slot.uppers)
        return box, slot.session

    def _check_made(self) -> tuple[Box, Slot]:
        held = self._held
        if held.box is None or held.slot is None:
            raise SandboxError(f"{self.session_id}: the sandbox was not made")
        return held.box, held.slot

    @property
    def _only_root(self) -> bool:
        return not is_all_powerful() and not find_subordinate_ids()

    def _report_limits(self, missing: dict[str, str]) -> None:
        asked = {name: text for name, text in self._limits.wanted.items() if name in missing}
        if asked:
            for controller, text in asked.items():
                reason = missing[controller]
                message = f"{text} is not enforced: {reason}"
                self._warn(FindingCode.LIMITS_NOT_ENFORCED, message, limit=text, reason=reason)
        elif missing and is_all_powerful():
            reason = next(iter(missing.values()))
            self._order.logger.info("the number of processes is not limited: %s", reason)

    def _report_shared_ids(self, reason: str | None) -> None:
        # On the host's network there is a finding about that already, which includes this.
        if reason and self._choice.network is not Network.HOST:
            message = f"users of the sandbox had the host's own ids: {reason}"
            self._warn(FindingCode.IDS_SHARED, message, reason=reason)

    async def _prepare(self, root: Root, box: Box) -> None:
        """Find the shell and create the working directory."""
        if root.parts not in _SHELL_OF:
            path = root.env.get("PATH", "")
            _SHELL_OF[root.parts] = await find_shell(root.pin, path, box.kind_of, _GET_A_SHELL)
        shell = _SHELL_OF[root.parts]
        workdir = self._order.task_env_config.workdir or root.workdir or "/"
        if not await _is_there(root, workdir, box):
            done = await box.run(Command(("mkdir", "-p", "--", workdir), "/"))
            if done.return_code != 0:
                said = done.output.decode(errors="replace").strip()
                raise SandboxError(f"workdir {workdir} cannot be created in the sandbox: {said}")
        self._running = Running(
            box=box,
            shell=shell,
            workdir=workdir,
            env={**root.env, **self._order.persistent_env},
            user=root.user,
            only_root=self._only_root,
            findings=self._findings,
            service=find_service(root),
            healthcheck=root.healthcheck,
        )
        if root.upload_environment:
            await self.upload_dir(self._order.environment_dir, workdir)

    async def _start_services(self) -> None:
        """Start the image's ENTRYPOINT, and wait for its HEALTHCHECK.

        As `docker compose up --wait`, with which harbor starts containers.
        """
        now = self._now()
        if now.service is not None:
            await start_service(now.box, now.service)
        if now.healthcheck is not None:
            await run_healthcheck(self, now.healthcheck)
        if now.service is not None:
            await now.box.note_services()

    async def open_host_ports(self) -> None:
        """Let programs inside reach the host ports that the job names; see Relaying.

        Raises:
            UnsupportedError: the sandbox has no network, or uses the host's.
        """
        ports, relay = self._host_ports, self._held.relay
        if not ports:
            return
        if self._choice.network is Network.NONE:
            raise UnsupportedError(
                f"{OPTION} {ports[0]}: network_mode is 'no-network'; only tasks with 'public' can "
                "reach a port of the host"
            )
        check_can_open(ports, self._choice.shared_because)
        if relay is None:
            raise SandboxError(f"{self.session_id}: the sandbox does not run: start it first")
        code, named = FindingCode.HOST_PORTS_OPEN, list(map(str, ports))
        if not any(finding.code is code for finding in self._findings):
            message = f"the agent could reach {', '.join(named)} on the host: {OPTION}"
            self._note(code, message, ports=named)
        for problem in relay.open():
            self._order.logger.warning(problem)

    async def close_host_ports(self) -> None:
        """Close the host ports and their connections; see Relaying."""
        if self._held.relay is not None:
            await self._held.relay.close()

    def _find_model_port(self) -> int:
        """Return the port to forward; 0 if there is none, or the host's network is shared."""
        return 0 if self._choice.network is Network.HOST else self._order.model_port or 0

    async def open_model_port(self) -> None:
        """Let programs inside reach the model gateway; see ModelReaching."""
        self._now()
        if self._held.model_port is not None:
            self._held.model_port.open()

    async def close_model_port(self) -> None:
        """End connections to the model gateway; see ModelReaching."""
        if self._held.model_port is not None:
            await self._held.model_port.close()

    async def _end(self) -> None:
        """End the sandbox once; a cancelled caller does not interrupt this."""
        if self._running is not None:
            self._held.is_owed = self._running.is_owed
        self._running = None
        if self._ending is None:
            self._ending = asyncio.ensure_future(self._held.release())
        await asyncio.shield(self._ending)

    async def list_processes(self, *, with_services: bool = False) -> Sequence[Process]:
        """List its processes, without PID 1; see Watched."""
        return await self._now().box.list_processes(with_services=with_services)

    async def pause(self) -> int:
        """Stop the processes of the agent; see Pausing."""
        return await self._now().box.hold(is_still=True)

    async def resume(self) -> None:
        """Continue them; see Pausing."""
        await self._now().box.hold(is_still=False)

    async def open_room(self, fresh: Sequence[str]) -> Room:
        """Open a verifier's room; see Watched."""
        now, (box, slot) = self._now(), self._check_made()
        number = await box.open_room(fresh)
        places = {f"{slot.session.rooms}/{number}.{n}": path for n, path in enumerate(fresh)}
        return Room(self, now, number, places)

    async def holds_memory(self) -> bool:
        """Whether it has files in memory, which cannot be frozen; see Freezing."""
        return has_files_in_memory(await self.list_files([DEVICES], MOST_DEVICES))

    async def freeze(self) -> None:
        """Keep a copy of its files as they are now; see Freezing."""
        self._now()
        self._frozen = None
        if self._held.slot is not None:
            self._frozen = await freeze_slot(self._held.slot, self._n_written)

    def surroundings(self) -> Surroundings:
        """Return how programs in it find their files; see Accounting."""
        now = self._now()
        return find_surroundings(self._changes(), now.env, now.workdir)

    async def list_written(
        self, known: Mapping[str, str], *, is_hashing: bool = True
    ) -> tuple[Sequence[Change], bool]:
        """List everything that differs from the image; see Accounting."""
        _, slot = self._check_made()
        changes, is_cut = await list_changes(slot.parts, known, is_hashing=is_hashing)
        self._n_written = sum(each.size or 0 for each in changes)
        is_touched = self._now().box.is_touched
        in_memory = await self.list_files([DEVICES], MOST_DEVICES) if is_touched else ()
        return [*changes, *changes_in_memory(in_memory, known)], is_cut

    async def open_clean(self, paths: TrialPaths, left_out: LeftOut) -> "SandboxEnvironment":
        """Start another sandbox from the image and the frozen files not left out; see Accounting.

        Raises:
            SandboxError, OSError: nothing was frozen, or it cannot be started.
        """
        _, slot = self._check_made()
        if self._frozen is None:
            raise SandboxError(f"{self.session_id}: no state of this sandbox was kept")
        root = await clean_parts(
            slot, self._frozen, left_out.paths, left_out.plain, self._n_written
        )
        other = SandboxEnvironment(replace(self._order, trial_paths=paths))
        await other.start_like(self._now(), root)
        return other

    async def open_frozen(self, paths: TrialPaths) -> "SandboxEnvironment":
        """Start another sandbox with the frozen files; see Freezing.

        Raises:
            SandboxError, OSError: nothing was frozen, or it cannot be started.
        """
        if self._frozen is None:
            raise SandboxError(f"{self.session_id}: no state of this sandbox was kept")
        if self._held.slot is not None:
            await asyncio.to_thread(delete_session, self._held.slot.session.directory / _CLEAN)
        other = SandboxEnvironment(replace(self._order, trial_paths=paths))
        await other.start_like(self._now(), self._frozen)
        return other

    async def start_like(self, model: Running, root: Parts) -> None:
        """Start on a root that another sandbox left, with that sandbox's shell and directories.

        Raises:
            SandboxError, OSError: it cannot be started.
        """
        request = PoolRequest(
            root,
            self._choice.network,
            self._limits,
            (),
            model_port=self._find_model_port(),
            is_frozen=True,
        )
        held = self._held = Held()
        async with self._ended_on_error():
            await pool_of(await shared_zygote()).hold_new(request, self.session_id, held)
            box, slot = self._check_made()
            self._report_shared_ids(held.ids_shared)
            held.connection = await connect(
                request.network, box.pid, box.namespaces, slot.session.directory
            )
            self._running = replace(model, box=box, findings=self._findings, is_owed=False)
            await self._start_services()

    async def restore_tools(self, changed: Sequence[ChangedFile]) -> None:
        """Restore the image's tools for the tests; see ToolRestoring."""
        await give_back(self._now().box, self._changes(), changed)

    def _changes(self) -> LayeredChanges:
        return LayeredChanges(self._held.slot.parts if self._held.slot else ())

    def _look_at_tools(self) -> tuple[LayeredChanges, Lookup] | None:
        now, changes = self._now(), self._changes()
        lookup = lookup_of(now.env, now.workdir)
        return (changes, lookup) if is_touched(changes, lookup) else None


def _find_hosts_usr(parts: Parts) -> str | None:
    """Return the host's /usr of a root, if it belongs to a user who is not in the sandbox."""
    below = next((lowers[-1] for target, lowers in parts if target == "/usr"), None)
    return None if below is None or Path(below).stat().st_uid == os.geteuid() else below


async def _is_there(root: Root, workdir: str, box: Box) -> bool:
    """Whether a root contains its working directory; a positive answer is cached."""
    known = root.parts, workdir
    if known not in _WITH_WORKDIR and workdir != "/":
        if await box.kind_of(workdir) is None:
            return False
        _WITH_WORKDIR.add(known)
    return True
