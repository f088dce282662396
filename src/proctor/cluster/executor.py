"""Runs trials on the nodes of a Ray cluster; see Executor.

A trial is one Ray task without retries of Ray's own: a worker or node that dies is an attempt of
its own, on record. Cancelling a trial interrupts its task, which ends its environment and returns
what it left.
"""

import asyncio
import contextlib
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, BinaryIO, Final, NoReturn, cast
from uuid import uuid4

import msgspec
import ray
from ray.exceptions import RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from proctor import __version__
from proctor.cluster.connection import connect, disconnect, find_address
from proctor.cluster.link import (
    Asked,
    Began,
    Link,
    Live,
    Message,
    Phase,
    Piece,
    Stream,
    call_again,
    decode,
)
from proctor.cluster.live import LiveTarget
from proctor.cluster.models import ModelRouter
from proctor.cluster.nodes import (
    Demand,
    Node,
    NodeReport,
    check_fit,
    check_portable,
    check_reports,
    count_trials,
    find_demand,
    read_nodes,
)
from proctor.cluster.shipping import (
    Shipping,
    find_images,
    find_missing,
    find_variables,
    put_image,
    receive_image,
)
from proctor.cluster.worker import (
    Returned,
    TrialOrder,
    collect_left,
    inspect_node,
    reap_node,
    run_remote,
)
from proctor.digest import sha256_file
from proctor.errors import ClusterError, ProctorError, TrialError, WorkerLostError
from proctor.files import read_small
from proctor.gateway.gateway import Gateway
from proctor.harbor.configs import EnvironmentConfig
from proctor.harbor.env import resolve_env
from proctor.harbor.trial_result import parse_trial_result
from proctor.job.attempts import RESULT
from proctor.job.local_executor import LocalExecutor
from proctor.job.options import ExecutorOrder
from proctor.trial.agent import AgentOrder, Kinds
from proctor.trial.environment import EnvironmentOrder
from proctor.trial.executor import TrialOutcome, is_cancelled
from proctor.trial.spec import TrialSpec, render_spec
from proctor.trial.trial import run_trial
from proctor.trial.trial_run import Watch

_INSPECT_SEC: Final = 120.0
_WATCH_SEC: Final = 1.0
# After this, a cancelled worker is killed; what it would have returned is lost.
_CANCEL_SEC: Final = 30.0
# Time in which the last pieces of an archive and the last messages arrive, each.
_PIECE_SEC: Final = 120.0
_IMAGE_SEC: Final = 3600.0
_LEFT_SEC: Final = 20.0
_END_SEC: Final = 5.0
_MEBI: Final = 1 << 20
_HEAD: Final = "node:__internal_head__"


@dataclass(kw_only=True)
class _Running:
    """One attempt at a trial, on the driver."""

    key: str
    spec: TrialSpec
    watch: Watch
    target: LiveTarget
    spool: BinaryIO
    """Pieces of the archive that have arrived."""
    router: ModelRouter | None
    """Its way to the model gateway; None without one."""
    began: Began | None = None
    phase: str = ""
    n_taken: int = 0
    """Messages of its worker that were taken, without questions."""
    n_spooled: int = 0
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    broken: asyncio.Future[NoReturn] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )
    """Set to an exception if it cannot go on."""

    def describe(self) -> str:
        """Say where it runs."""
        return f"{self.began.node}" if self.began else "no node yet"

    def has_all(self, returned: Returned) -> bool:
        """Whether everything that its worker had sent has been taken."""
        return self.n_taken >= returned.n_sent and self.n_spooled >= returned.size


class RayExecutor:
    """Runs trials on a cluster that this process is connected to."""

    def __init__(self, order: ExecutorOrder, *, is_insecure: bool = False) -> None:
        self._trials_dir, self._job, self._host = order.trials_dir, order.config, order.host
        self._gateway = order.models if isinstance(order.models, Gateway) else None
        self._is_insecure = is_insecure
        self._tasks, environment = order.tasks, order.config.environment
        self._demands = {task.name: find_demand(task, environment) for task in order.tasks}
        held = count_trials(self._find_nodes(), self._demands.values() or [Demand(1, 1)])
        self.capacity = held if order.n_concurrent is None else min(held, order.n_concurrent)
        self._shipping = Shipping()
        self._shipping_lock = asyncio.Lock()
        self._runs: dict[str, _Running] = {}
        self._broken: ClusterError | None = None
        self._run_trial = ray.remote(max_retries=0, max_calls=0)(run_remote)
        self._link = self._make_link()

    def _find_nodes(self) -> list[Node]:
        return read_nodes(ray.nodes())

    def _make_link(self) -> Any:
        """Make the actor on the head node, where the driver is or which it cannot do without."""
        heads = [each["NodeID"] for each in ray.nodes() if _HEAD in each["Resources"]]
        # Not soft: a busy head node would pass it on to a node whose death would end the job.
        pinned = NodeAffinitySchedulingStrategy(heads[0], soft=False) if heads else "DEFAULT"
        made = ray.remote(num_cpus=0, max_restarts=0)(Link)
        return made.options(scheduling_strategy=pinned, max_concurrency=10_000).remote()

    @contextlib.asynccontextmanager
    async def receiving(self) -> AsyncIterator[None]:
        """Take messages of trials, and watch the nodes, inside the context."""
        tasks = [asyncio.create_task(self._receive()), asyncio.create_task(self._watch_nodes())]
        try:
            yield
        finally:
            tasks[1].cancel()
            # Ends the call that waits for messages: Ray's client does not like it to be cancelled.
            with contextlib.suppress(RayError):
                ray.kill(self._link)
            await asyncio.wait(tasks, timeout=_END_SEC)

    async def check(self, environment: EnvironmentConfig) -> None:
        """See Executor: asks every node."""
        check_portable(environment)
        nodes = await asyncio.to_thread(self._find_nodes)
        check_fit(nodes, self._demands)
        await self._send_images(nodes, environment)
        config = (environment.model_dump_json(), self._job.model_dump_json())
        reports = await self._ask_nodes(nodes, inspect_node, config)
        check_reports(
            [msgspec.msgpack.decode(report, type=NodeReport) for report in reports],
            is_insecure=self._is_insecure,
        )

    async def _send_images(self, nodes: Sequence[Node], environment: EnvironmentConfig) -> None:
        """Send the images that the job's tasks run on to the nodes that lack them."""
        images = await asyncio.to_thread(find_images, environment, self._tasks)
        if not images:
            return
        described = msgspec.json.encode(images).decode()
        missing = await self._ask_nodes(nodes, find_missing, (described,))
        for image in images:
            lacking = [
                node
                for node, digests in zip(nodes, missing, strict=True)
                if image.digest in digests
            ]
            if lacking:
                pieces = await asyncio.to_thread(put_image, image)
                arguments = (msgspec.json.encode(image).decode(), pieces, described)
                await self._ask_nodes(lacking, receive_image, arguments, _IMAGE_SEC)

    async def reap(self, environment: EnvironmentConfig) -> Sequence[str]:
        """See Executor: on every node, and here, where the job may have been begun."""
        here = await LocalExecutor(self._trials_dir, 1).reap(environment)
        try:
            nodes = await asyncio.to_thread(self._find_nodes)
            kept = await self._ask_nodes(nodes, reap_node, (environment.model_dump_json(),))
        except (ClusterError, RayError) as error:
            return [*here, f"what killed runs left on nodes could not be removed: {error}"]
        return [*here, *(sentence for sentences in kept for sentence in sentences)]

    async def _ask_nodes(
        self, nodes: Sequence[Node], ask: Any, arguments: Any, seconds: float = _INSPECT_SEC
    ) -> list[Any]:
        """Run a function on each of these nodes."""
        asked = ray.remote(num_cpus=0, max_retries=0)(ask)
        refs = [
            asked.options(
                scheduling_strategy=NodeAffinitySchedulingStrategy(node.node_id, soft=False)
            ).remote(*arguments)
            for node in nodes
        ]
        answers = []
        for node, ref in zip(nodes, refs, strict=True):
            try:
                answers.append(await asyncio.wait_for(_get(ref), seconds))
            except TimeoutError as error:
                raise ClusterError(
                    f"node {node.name} does not answer within {seconds:.0f} s; is something "
                    "else running there? `ray list nodes` and `ray status` show it"
                ) from error
            except (RayError, ImportError) as error:
                raise ClusterError(_explain_node(node, error)) from error
        return answers

    async def run(self, spec: TrialSpec, watch: Watch) -> TrialOutcome:
        """See Executor."""
        if self._broken is not None:
            raise self._broken
        key = uuid4().hex
        try:
            await call_again(lambda: _get(self._link.begin.remote(key)))
        except RayError as error:
            raise _explain_link(error) from error
        target = LiveTarget(self._trials_dir / spec.name)
        with tempfile.TemporaryFile(prefix="proctor-archive-") as spool:
            router = self._open_router(key, spec, target.directory)
            running = _Running(
                key=key, spec=spec, watch=watch, target=target, spool=spool, router=router
            )
            self._runs[key] = running
            try:
                target.begin(spec, self._host)
                return await self._run(running)
            finally:
                self._give_up(running)
                await _close(router)
                self._link.end.remote(key)

    def _give_up(self, running: _Running) -> None:
        """Take no more messages of a trial: they would change the files that it ends with."""
        self._runs.pop(running.key, None)

    def _open_router(self, key: str, spec: TrialSpec, directory: Path) -> ModelRouter | None:
        turn, numbers = asyncio.Lock(), count()

        async def push(message: bytes) -> None:
            # One after the other: a message that is late would be taken for one that came twice.
            async with turn:
                number = next(numbers)
                await call_again(lambda: _get(self._link.push.remote(key, number, [message])))

        if self._gateway is None:
            return None
        return ModelRouter(self._gateway, spec, self._host, directory, push)

    def _is_served(self, spec: TrialSpec) -> bool:
        """Whether the gateway stands between the agent of a trial and its model."""
        if self._gateway is None:
            return False
        env = resolve_env(spec.config.agent.env, self._host)
        return bool(self._gateway.find_upstreams(spec.config.agent, env, spec.replay))

    async def _run(self, running: _Running) -> TrialOutcome:
        began = time.monotonic()
        ref = await self._submit(running)
        value = _watched(asyncio.ensure_future(_get(ref)))
        try:
            await asyncio.wait({value, running.broken}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await self._cancel(running, ref, value)
        try:
            if not value.done():
                ray.cancel(ref, force=True)
                await running.broken
            return await self._take_over(running, await value)
        except (RayError, WorkerLostError) as error:
            if isinstance(error, RayTaskError):
                raise
            if is_cancelled():
                self._drop_unbegun(running)
                raise asyncio.CancelledError from error
            return await self._lose(running, error, time.monotonic() - began)

    async def _submit(self, running: _Running) -> Any:
        spec = running.spec
        # One at a time: trials of one task share its archive.
        async with self._shipping_lock:
            trees, parcels = await asyncio.to_thread(self._shipping.send, spec)
        order = TrialOrder(
            key=running.key,
            spec=render_spec(spec),
            trees=trees,
            host=find_variables(spec, self._host, is_served=self._is_served(spec)),
            proctor=__version__,
            is_inside=self._gateway.port is not None if self._gateway is not None else None,
        )
        demand = find_demand(spec.task, spec.config.environment)
        task = self._run_trial.options(
            num_cpus=demand.cpus,
            memory=demand.memory_mb * _MEBI,
            num_gpus=demand.gpus,
            name=f"proctor {spec.name}",
        )
        packed = msgspec.msgpack.encode(order)
        return task.remote(packed, parcels, self._link)

    async def _cancel(self, running: _Running, ref: Any, value: asyncio.Future[bytes]) -> None:
        """End a trial, and wait for what it left."""
        self._link.stop.remote(running.key)
        if running.began is None:
            # It may still wait for a node. Not recursive: its messages to the driver would end.
            ray.cancel(ref, recursive=False)
        _, waiting = await asyncio.wait({value}, timeout=_CANCEL_SEC)
        if waiting:
            ray.cancel(ref, force=True)
            await asyncio.wait({value}, timeout=_CANCEL_SEC)
        if not value.done():
            value.cancel()
            raise asyncio.CancelledError

    def _drop_unbegun(self, running: _Running) -> None:
        """Remove the directory of a trial that no worker has taken."""
        if running.began is None:
            running.target.drop()

    async def _take_over(self, running: _Running, packed: bytes) -> TrialOutcome:
        returned = msgspec.msgpack.decode(packed, type=Returned | None)
        if returned is None:
            if not is_cancelled():
                raise WorkerLostError("it lost its connection to the driver")
            self._drop_unbegun(running)
            raise asyncio.CancelledError
        await self._complete(running, returned)
        directory = running.target.directory
        running.spool.seek(0)
        await asyncio.to_thread(running.target.replace, running.spool)
        result = parse_trial_result(read_small(str(directory / RESULT)))
        return TrialOutcome(result, directory)

    async def _complete(self, running: _Running, returned: Returned) -> None:
        """Wait until the whole archive is in the spool, and everything before it was taken."""
        if returned.archive is not None:
            running.spool.write(returned.archive)
            running.n_spooled = len(returned.archive)
        # Messages come by another way than the task's value, which may be there first. Without the
        # last of them a trial is complete: they are only shown.
        with contextlib.suppress(TimeoutError):
            while not running.has_all(returned):
                running.arrived.clear()
                await asyncio.wait_for(running.arrived.wait(), _PIECE_SEC)
        self._give_up(running)
        if running.n_spooled < returned.size:
            raise WorkerLostError("what the trial left did not arrive")
        running.spool.flush()
        spooled = Path(f"/proc/self/fd/{running.spool.fileno()}")
        if await asyncio.to_thread(sha256_file, spooled) != returned.digest:
            raise WorkerLostError("what the trial left arrived damaged")

    async def _lose(self, running: _Running, error: Exception, seconds: float) -> TrialOutcome:
        """Put a lost attempt on record, with what it had sent until then."""
        phase = f" in phase {running.phase}" if running.phase else ""
        said = str(error).strip().splitlines()
        why = f": {said[0]}" if said else ""
        lost = WorkerLostError(
            f"the worker on {running.describe()} was lost after {seconds:.1f} s{phase} "
            f"({type(error).__name__}{why})"
        )

        # What its phase had used until then is recorded before its files are.
        await _close(running.router)
        left = await self._fetch_left(running)
        self._give_up(running)
        if left is not None:
            # An agent left what is refused: the loss is on record anyway.
            with contextlib.suppress(TrialError, OSError):
                await asyncio.to_thread(running.target.add_left, left)
        spec = running.spec
        if running.began is not None:
            spec = replace(spec, record=replace(spec.record, node=running.began.node))

        def refuse(_order: AgentOrder | EnvironmentOrder) -> NoReturn:
            raise lost from error

        directory = running.target.directory
        result = await run_trial(spec, directory, Kinds(refuse, refuse), lambda _: None)
        return TrialOutcome(result, directory, is_lost=True)

    async def _fetch_left(self, running: _Running) -> bytes | None:
        """Fetch what a killed worker left, if its node lives."""
        nodes = await asyncio.to_thread(self._find_nodes)
        began = running.began
        node = next((each for each in nodes if began and each.node_id == began.node_id), None)
        if node is None:
            return None
        arguments = running.key, running.spec.config.environment.model_dump_json()
        try:
            [left] = await self._ask_nodes([node], collect_left, arguments, _LEFT_SEC)
        except ClusterError:
            # The node died too.
            return None
        return cast(bytes | None, left)

    async def _receive(self) -> None:
        """Take messages of trials until the executor is closed."""
        for number in count():
            try:
                batch = await call_again(partial(self._receive_batch, number))
            except RayError as error:
                self._break(_explain_link(error))
                return
            for key, data in batch:
                running = self._runs.get(key)
                # Messages of a lost worker may come after it was given up.
                if running is not None:
                    await self._take(running, decode(data))

    async def _receive_batch(self, number: int) -> list[tuple[str, bytes]]:
        batch: list[tuple[str, bytes]] = await _get(self._link.receive.remote(number))
        return batch

    async def _take(self, running: _Running, message: Message) -> None:
        match message:
            case Began():
                running.began = message
            case Phase(name):
                running.phase = name
                running.watch(name)
            case Live():
                with contextlib.suppress(OSError):
                    # It is only shown: what counts comes at the end.
                    running.target.write(message)
            case Piece(data):
                # The disk is full, or the trial has ended meanwhile: then pieces are missing.
                with contextlib.suppress(OSError, ValueError):
                    await asyncio.to_thread(running.spool.write, data)
                    running.n_spooled += len(data)
            case Stream():
                if running.router is not None:
                    running.router.take(message)
            case Asked():
                _watched(asyncio.ensure_future(self._answer(running, message)))
                return
        running.n_taken += 1
        running.arrived.set()

    async def _answer(self, running: _Running, asked: Asked) -> None:
        if running.router is not None:
            reply = await running.router.answer(asked.question)
            await call_again(lambda: _get(self._link.answer.remote(asked.number, reply)))

    async def _watch_nodes(self) -> None:
        """End the trials that wait for a node if none is left that fits."""
        n_missed = 0
        while True:
            await asyncio.sleep(_WATCH_SEC)
            waiting = [each for each in self._runs.values() if each.began is None]
            if not waiting:
                continue
            try:
                nodes = await asyncio.to_thread(self._find_nodes)
                check_fit(
                    nodes,
                    {
                        each.spec.name: find_demand(each.spec.task, each.spec.config.environment)
                        for each in waiting
                    },
                )
                n_missed = 0
            except (ClusterError, RayError) as error:
                n_missed += 1
                if n_missed > 1:
                    self._break(ClusterError(f"no node is left for the trials that wait: {error}"))

    def _break(self, error: ClusterError) -> None:
        """End all trials: those that run, and those that would begin."""
        self._broken = error
        for running in self._runs.values():
            if not running.broken.done():
                running.broken.set_exception(error)


def _explain_link(error: RayError) -> ClusterError:
    why = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return ClusterError(
        f"the cluster's head node no longer passes messages on ({why}); it died, or lacks memory"
    )


def _explain_node(node: Node, error: Exception) -> str:
    text = str(error)
    if "No module named" in text:
        return (
            f"node {node.name}: proctor cannot be imported there; install it: "
            f"pip install 'proctor[ray]=={__version__}'"
        )
    cause = error.cause if isinstance(error, RayTaskError) else None
    if isinstance(cause, ProctorError):
        return f"node {node.name}: {cause}"
    last = text.strip().splitlines()[-1:] or [type(error).__name__]
    return f"node {node.name} does not answer: {last[0]}"


async def _close(router: ModelRouter | None) -> None:
    if router is not None:
        await router.close()


async def _get(ref: Any) -> Any:
    """Wait for a value of Ray's, which is not cancelled if the caller is."""

    async def get() -> Any:
        return await ref

    return await asyncio.shield(_watched(asyncio.ensure_future(get())))


def _watched[T](waiting: asyncio.Future[T]) -> asyncio.Future[T]:
    """Let a future fail in silence if nobody waits for it any more."""
    waiting.add_done_callback(lambda each: each.cancelled() or each.exception())
    return waiting


@dataclass(frozen=True, slots=True)
class OnCluster:
    """Runs the trials of a job on a cluster; see OpenExecutor."""

    on: str
    """`ray`, or an address."""
    is_insecure: bool = False

    @contextlib.asynccontextmanager
    async def __call__(self, order: ExecutorOrder) -> AsyncIterator[RayExecutor]:
        """Connect, and yield the executor."""
        address = find_address(self.on, order.host)
        was_connected = ray.is_initialized()
        # Not in a thread: Ray wants the main one.
        connect(address, is_insecure=self.is_insecure)
        try:
            executor = RayExecutor(order, is_insecure=self.is_insecure)
            async with executor.receiving():
                yield executor
        finally:
            if not was_connected:
                await asyncio.to_thread(disconnect)
