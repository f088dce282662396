"""The sandbox as an environment of a trial: the embedded default.

    start   refuse what cannot be had · build the root · scratch · control groups · network ·
            spawn · log directories and working directory
    stop    end its processes · the network helper · the groups; the scratch is emptied

Everything that happens inside is in inside.py, everything below it in box.py and build.py.
"""

import asyncio
import os
import platform
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from proctor.environments.interior import DEVICES, MOST_DEVICES, lie_in_memory
from proctor.environments.sandbox.accounting import (
    changes_in_memory,
    find_surroundings,
    list_changes,
)
from proctor.environments.sandbox.blueprint import Command, Network
from proctor.environments.sandbox.box import Box, shared_zygote
from proctor.environments.sandbox.changes import LayeredChanges
from proctor.environments.sandbox.host_ports import OPTION, check_can_open, host_ports_of
from proctor.environments.sandbox.inside import Inside, Room, Running, check_user
from proctor.environments.sandbox.keeping import give_back, lookup_of
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
from proctor.environments.shells import find_shell
from proctor.environments.tools import Lookup, find_changed_tools, is_touched, mark_tools
from proctor.errors import SandboxError, UnsupportedError
from proctor.trial.changes import Change, LeftOut, Surroundings
from proctor.trial.environment import ChangedFile, Process, Snapshot
from proctor.trial.finding import Finding, FindingCode
from proctor.trial.order import EnvironmentOrder
from proctor.trial.paths import INSIDE, TrialPaths

# A sandbox's files as they were at one moment, for other sandboxes to begin with
#
# The directories that take what is written in a sandbox are copied. The copies lie in the sandbox's
# own scratch and go with it, whether it is stopped or reaped. A clean room begins with the image
# and with those of the copied files that are kept.


_FROZEN, _CLEAN = KEPT_STATES
_LITTLE = 64 << 20
"""Bytes that are copied in a thread; more take a process, which can be ended."""


async def freeze_slot(slot: Slot, n_bytes: int | None = None) -> Parts:
    """Copy what was written in a sandbox; the root file system with the copies on top.

    An earlier copy is deleted before. `n_bytes` is how much it is, where that is known.

    Raises:
        SandboxError: there is no room for it, or something of it cannot be copied.
        OSError: it cannot be deleted, or no process can be started.
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
    """The root file system with those of the frozen files on top that are not left out.

    Where there is much of them they are hard links, which shows in the number of their links.

    Raises:
        SandboxError, OSError: that cannot be made.
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


async def drop_clean(slot: Slot) -> None:
    """Delete what a clean room began with."""
    await asyncio.to_thread(delete_session, slot.session.directory / _CLEAN)


async def _empty_place(slot: Slot, name: str) -> Path:
    place = slot.session.directory / name
    await asyncio.to_thread(delete_session, place)
    place.mkdir(mode=0o700)
    return place


def _lay(root: Parts, tops: list[str]) -> Parts:
    return tuple((target, (top, *lowers)) for (target, lowers), top in zip(root, tops, strict=True))


_DIRECTORIES = tuple(map(str, (INSIDE.agent_dir, INSIDE.verifier_dir, INSIDE.artifacts_dir)))
_PHASE = "setup"
_GET_A_SHELL = ": import an image that has it, or install one there and import it again"
_SHELL_OF: dict[Parts, str] = {}
"""The shell of each root that was started."""
_WITH_WORKDIR: set[tuple[Parts, str]] = set()
"""Roots that were started, and working directories that are in them."""


class SandboxEnvironment(Inside):
    """A sandbox of our own: Linux namespaces over an overlay file system."""

    def __init__(self, order: EnvironmentOrder) -> None:
        """Take an order; the kwarg `base` names the root file system, `host` if it is not given.

        Raises:
            UnsupportedError: the task or the job asks for what the sandbox does not have.
        """
        super().__init__(order, room=0)
        self._base = check_order(order)
        self._limits = limits_of(order.config, order.task_env_config)
        self._choice = choose_network(order.network)
        self._host_ports = host_ports_of(order.config.kwargs)
        self._findings: list[Finding] = []
        self._snapshot: Snapshot | None = None
        self._held = Held()
        self._ending: asyncio.Task[None] | None = None
        self._frozen: Parts | None = None
        self._n_written: int | None = None
        """Bytes that were written, where somebody counted."""

    @property
    def snapshot(self) -> Snapshot:
        """What it runs on; known once it was started."""
        return self._snapshot or Snapshot(runtime_image="unknown", compute_backend="sandbox")

    @property
    def findings(self) -> Sequence[Finding]:
        """What a reader of the score should know of it, so far."""
        return tuple(self._findings)

    async def start(self, force_build: bool) -> None:  # noqa: FBT001 - harbor's signature
        """Build the root where that is needed, and bring the sandbox up.

        Raises:
            SandboxError, ImageError, UnsupportedError: it cannot be brought up.
        """
        self._held, self._ending = Held(), None
        try:
            await self._start(force_build=force_build)
        except BaseException:
            await self._end()
            raise

    async def _start(self, *, force_build: bool) -> None:
        order, zygote = self._order, await shared_zygote()
        pool = pool_of(zygote)
        if pool.place.note:
            order.logger.warning(pool.place.note)
        root = await build_root(
            order.environment_dir,
            order.task_env_config.docker_image,
            self._base,
            scratch=pool.run.directory,
            spawn=zygote.spawn,
            force=force_build,
        )
        self._heed(root)
        network = self._choice.network
        bound = self._host_ports if network in (Network.SLIRP, Network.PASTA) else ()
        request = PoolRequest(root.parts, network, self._limits, _DIRECTORIES, bound)
        box, session = await self._occupy(pool, request)
        self._held.connection = await connect(
            request.network, box.pid, box.namespaces, session.directory
        )
        await self._furnish(root, box)
        pool.expect(request)

    async def _occupy(self, pool: SandboxPool, request: PoolRequest) -> tuple[Box, Session]:
        """A sandbox with nothing in it, and in its scratch the note for whoever salvages."""
        if ready := await pool.hold_ready(request):
            self._held = ready
        else:
            await pool.hold_new(request, self.session_id, self._held)
        box, slot = self._check_made()
        self._heed_limits(self._held.groups.missing)
        self._heed_ids(self._held.ids_shared)
        slot.session.write_note(self.session_id, self.trial_paths.trial_dir, slot.uppers)
        return box, slot.session

    def _check_made(self) -> tuple[Box, Slot]:
        held = self._held
        if held.box is None or held.slot is None:
            raise SandboxError(f"{self.session_id}: the sandbox was not made")
        return held.box, held.slot

    def _heed(self, root: Root) -> None:
        """Keep what building the root found, and see that its user can be had."""
        self._findings += root.findings
        for note in (*(finding.message for finding in root.findings), *root.notes):
            self._order.logger.warning(note)
        check_user(root.user, only_root=self._only_root)
        tools = {"kernel": platform.release()}
        self._snapshot = Snapshot(root.pin, "sandbox", tools)
        if not is_all_powerful() and (usr := _find_hosts_usr(root.parts)):
            self._find_usr_read_only(usr)
        if self._choice.shared_because:
            self._find_network_shared(self._choice.shared_because)
        config, task = self._order.config, self._order.task_env_config
        if storage := config.override_storage_mb or task.storage_mb:
            reason = "the sandbox cannot limit how much a task stores"
            self._find_limits_missing({"storage": f"storage_mb = {storage}"}, {"storage": reason})

    @property
    def _only_root(self) -> bool:
        return not is_all_powerful() and not find_subordinate_ids()

    def _heed_limits(self, missing: dict[str, str]) -> None:
        asked = {name: text for name, text in self._limits.wanted.items() if name in missing}
        if asked:
            self._find_limits_missing(asked, missing)
        elif missing and is_all_powerful():
            reason = next(iter(missing.values()))
            self._order.logger.info("the number of processes is not limited: %s", reason)

    def _heed_ids(self, reason: str | None) -> None:
        # On the host's own network that is on record already.
        if reason and self._choice.network is not Network.HOST:
            message = f"users of the sandbox had the host's own ids: {reason}"
            self._order.logger.warning(message)
            self._findings.append(_finding(FindingCode.IDS_SHARED, message, {"reason": reason}))

    async def _furnish(self, root: Root, box: Box) -> None:
        """Make the working directory and find the shell."""
        shell = await _shell_of(root, box)
        workdir = self._order.task_env_config.workdir or root.workdir or "/"
        if not await _is_there(root, workdir, box):
            await _make_workdir(box, workdir)
        self._running = Running(
            box=box,
            shell=shell,
            workdir=workdir,
            env={**root.env, **self._order.persistent_env},
            user=root.user,
            only_root=self._only_root,
            findings=self._findings,
        )
        if root.upload_environment:
            await self.upload_dir(self._order.environment_dir, workdir)

    def _find_usr_read_only(self, usr: str) -> None:
        message = (
            "no directory below /usr could be changed, so that no package could be installed: they "
            "are the host's own, and this user is not root; an imported image, by --base, can be"
        )
        self._order.logger.warning(message)
        self._findings.append(_finding(FindingCode.USR_READ_ONLY, message, {"directory": usr}))

    def _find_network_shared(self, reason: str) -> None:
        message = f"the environment used the host's own network: {reason}"
        self._order.logger.warning(message)
        self._findings.append(_finding(FindingCode.NETWORK_SHARED, message, {"reason": reason}))

    def _find_limits_missing(self, asked: dict[str, str], missing: dict[str, str]) -> None:
        for controller, text in asked.items():
            message = f"{text} is not enforced: {missing[controller]}"
            self._order.logger.warning(message)
            detail: dict[str, object] = {"limit": text, "reason": missing[controller]}
            self._findings.append(_finding(FindingCode.LIMITS_NOT_ENFORCED, message, detail))

    async def open_host_ports(self) -> None:
        """Let programs inside reach the ports of the host that the job names; see Relaying.

        Raises:
            UnsupportedError: the sandbox has no network, or the host's own.
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
        self._find_ports_open()
        for problem in await relay.open():
            self._order.logger.warning(problem)

    async def close_host_ports(self) -> None:
        """Refuse them again, and end connections to them; see Relaying."""
        if self._held.relay is not None:
            await self._held.relay.close()

    def _find_ports_open(self) -> None:
        code, ports = FindingCode.HOST_PORTS_OPEN, list(map(str, self._host_ports))
        if not any(finding.code is code for finding in self._findings):
            message = f"the agent could reach {', '.join(ports)} on the host: {OPTION}"
            self._findings.append(_finding(code, message, {"ports": ports}))

    async def stop(self, delete: bool) -> None:  # noqa: FBT001 - harbor's signature
        """End everything in it; nothing of it is kept, and its scratch is nobody's any more.

        Raises:
            SandboxError, OSError: something of it does not go away.
        """
        await self._end()

    async def _end(self) -> None:
        """End it once; whoever is cancelled while waiting for that does not stop it."""
        if self._running is not None:
            self._held.is_owed = self._running.is_owed
        self._running = None
        if self._ending is None:
            self._ending = asyncio.ensure_future(self._held.let_go())
        await asyncio.shield(self._ending)

    async def list_processes(self) -> Sequence[Process]:
        """What runs in it besides its own PID 1."""
        return await self._now().box.list_processes()

    async def pause(self) -> int:
        """Stop the processes of the agent; see Pausing."""
        return await self._now().box.hold(is_still=True)

    async def resume(self) -> None:
        """Continue them; see Pausing."""
        await self._now().box.hold(is_still=False)

    async def open_room(self, fresh: Sequence[str]) -> Room:
        """A verifier's room; see Watched."""
        now, (box, slot) = self._now(), self._check_made()
        number = await box.open_room(fresh)
        places = {f"{slot.session.rooms}/{number}.{n}": path for n, path in enumerate(fresh)}
        return Room(self, now, number, places)

    async def holds_memory(self) -> bool:
        """Whether files lie in its memory; see Freezing."""
        return lie_in_memory(await self.list_files([DEVICES], MOST_DEVICES))

    async def freeze(self) -> None:
        """Keep its files as they are now; see Freezing.

        Raises:
            SandboxError, OSError: there is no room for them, or some cannot be copied.
        """
        self._now()
        self._frozen = None
        if self._held.slot is not None:
            self._frozen = await freeze_slot(self._held.slot, self._n_written)

    def surroundings(self) -> Surroundings:
        """How programs find their files in it; see Accounting."""
        now = self._now()
        return find_surroundings(self._changes(), now.env, now.workdir)

    async def list_written(
        self, known: Mapping[str, str], *, is_hashing: bool = True
    ) -> tuple[Sequence[Change], bool]:
        """Everything that differs from the image; see Accounting."""
        _, slot = self._check_made()
        changes, is_cut = await list_changes(slot.parts, known, is_hashing=is_hashing)
        self._n_written = sum(each.size or 0 for each in changes)
        in_memory = await self.list_files([DEVICES], MOST_DEVICES)
        return [*changes, *changes_in_memory(in_memory, known)], is_cut

    async def open_clean(self, paths: TrialPaths, left_out: LeftOut) -> "SandboxEnvironment":
        """Another sandbox: the image, and what is not left out; see Accounting.

        Raises:
            SandboxError, OSError: nothing was kept, or it cannot be brought up.
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
        """Another sandbox, with the files that were kept; see Freezing.

        Raises:
            SandboxError, OSError: nothing was kept, or it cannot be brought up.
        """
        if self._frozen is None:
            raise SandboxError(f"{self.session_id}: no state of this sandbox was kept")
        if self._held.slot is not None:
            await drop_clean(self._held.slot)
        other = SandboxEnvironment(replace(self._order, trial_paths=paths))
        await other.start_like(self._now(), self._frozen)
        return other

    async def start_like(self, model: Running, root: Parts) -> None:
        """Bring it up on what another sandbox has left, which is not built or furnished again.

        Raises:
            SandboxError, OSError: it cannot be brought up.
        """
        request = PoolRequest(root, self._choice.network, self._limits, (), is_frozen=True)
        held = self._held = Held()
        try:
            await pool_of(await shared_zygote()).hold_new(request, self.session_id, held)
            box, slot = self._check_made()
            self._heed_ids(held.ids_shared)
            held.connection = await connect(
                request.network, box.pid, box.namespaces, slot.session.directory
            )
        except BaseException:
            await self._end()
            raise
        self._running = replace(model, box=box, findings=self._findings, is_owed=False)

    async def find_changed_tools(self) -> Sequence[ChangedFile]:
        """What of the tools that tests rest on is not the image's; see Keeping."""
        changes, lookup = self._changes(), self._lookup()
        if not is_touched(changes, lookup):
            return ()
        return await asyncio.to_thread(find_changed_tools, changes, lookup)

    async def give_back_tools(self, changed: Sequence[ChangedFile]) -> None:
        """Give the tests the image's own tools; see Keeping."""
        await give_back(self._now().box, self._changes(), changed)

    async def mark_tools(self) -> Mapping[str, str]:
        """The image's tools that were written again; see Keeping."""
        changes, lookup = self._changes(), self._lookup()
        return mark_tools(changes, lookup) if is_touched(changes, lookup) else {}

    def _changes(self) -> LayeredChanges:
        return LayeredChanges(self._held.slot.parts if self._held.slot else ())

    def _lookup(self) -> Lookup:
        now = self._now()
        return lookup_of(now.env, now.workdir)


def _find_hosts_usr(parts: Parts) -> str | None:
    """The host's /usr below a root, where it belongs to a user whom the sandbox does not have."""
    below = next((lowers[-1] for target, lowers in parts if target == "/usr"), None)
    return None if below is None or Path(below).stat().st_uid == os.geteuid() else below


async def _is_there(root: Root, workdir: str, box: Box) -> bool:
    """Whether a root has a working directory, looked for once if it has."""
    known = root.parts, workdir
    if known not in _WITH_WORKDIR and workdir != "/":
        if await box.kind_of(workdir) is None:
            return False
        _WITH_WORKDIR.add(known)
    return True


async def _make_workdir(box: Box, workdir: str) -> None:
    done = await box.run(Command(("mkdir", "-p", "--", workdir), "/"))
    if done.return_code != 0:
        said = done.output.decode(errors="replace").strip()
        raise SandboxError(f"workdir {workdir} cannot be made in the sandbox: {said}")


async def _shell_of(root: Root, box: Box) -> str:
    """The shell of a root, looked for once however many sandboxes have that root.

    Raises:
        ImageError: it has none.
    """
    if root.parts not in _SHELL_OF:
        path = root.env.get("PATH", "")
        _SHELL_OF[root.parts] = await find_shell(root.pin, path, box.kind_of, _GET_A_SHELL)
    return _SHELL_OF[root.parts]


def _finding(code: FindingCode, message: str, detail: dict[str, object]) -> Finding:
    return Finding(code=code, phase=_PHASE, message=message, detail=detail)
