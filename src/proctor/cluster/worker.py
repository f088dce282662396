"""What runs on the nodes of a cluster, as Ray tasks.

    run_remote      one trial, from the arrival of its files to the archive of what it left
    inspect_node    whether trials can run there
    collect_left    what a killed worker left of its trial
    reap_node       removes what killed workers left there

A worker process runs one trial at a time. Ray cancels a task by an interrupt that only running
Python code notices, so the event loop wakes four times a second.
"""

import asyncio
import contextlib
import os
import platform
import shutil
import socket
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any, Final

import msgspec
import ray
from ray._private.authentication.authentication_utils import is_token_auth_enabled

from proctor import __version__
from proctor.cluster.archive import pack
from proctor.cluster.home import NodeHome, sweep
from proctor.cluster.link import Began, Line, Phase, Piece
from proctor.cluster.live import LiveSource
from proctor.cluster.models import remote_models
from proctor.cluster.nodes import NodeReport
from proctor.cluster.shipping import Parcels, Tree, write_parcel
from proctor.digest import sha256_file
from proctor.errors import ProctorError, TrialError, WorkerLostError
from proctor.harbor.configs import EnvironmentConfig, JobConfig
from proctor.harbor.env import is_sensitive
from proctor.job.classes import check_classes
from proctor.job.local_executor import KINDS, LocalExecutor
from proctor.trial.spec import TrialSpec, parse_spec

TICK_SEC: Final = 0.25
LARGEST_INLINE: Final = 1 << 20
"""Archives up to this size are the value of the task; larger ones come in pieces."""
LARGEST_LEFT: Final = 64 << 20
"""Most bytes that are fetched of what a killed worker left."""
_PIECE: Final = 1 << 20
_LIVE_SEC: Final = 0.5


class TrialOrder(msgspec.Struct, frozen=True):
    """A trial for a worker. Contains secrets: it is the argument of a task, never anything else."""

    key: str
    """Of this attempt."""
    spec: str
    """As `render_spec` has it."""
    trees: Sequence[Tree]
    """What it reads; first of all its task."""
    host: Mapping[str, str]
    """Variables of the driver's machine that it may ask for."""
    proctor: str
    """Version of the driver."""
    is_inside: bool | None = None
    """Whether programs in environments use the driver's model gateway; None: it has none."""


class Returned(msgspec.Struct, frozen=True):
    """What a worker returns: the archive of what the trial left."""

    size: int
    digest: str
    archive: bytes | None
    """None: it came in pieces."""
    n_sent: int
    """Messages that the worker had sent before, which may come later than this."""


encode = msgspec.msgpack.Encoder().encode


def run_remote(packed: bytes, parcels: Parcels, link: Any) -> bytes:
    """Run a trial in this worker; returns Returned or None, encoded."""
    order = msgspec.msgpack.decode(packed, type=TrialOrder)
    # One event loop for all trials of this process: the sandbox's helper belongs to it.
    return encode(_find_runner().run(_run(order, parcels, Line(link, order.key))))


@cache
def _find_runner() -> asyncio.Runner:
    return asyncio.Runner()


async def _run(order: TrialOrder, parcels: Parcels, line: Line) -> Returned | None:
    running = asyncio.ensure_future(_run_whole(order, parcels, line))
    # The driver's own word: an interrupt of Ray's is lost while a worker starts.
    stopping = asyncio.ensure_future(line.wait_stop())
    while not running.done():
        is_interrupted = False
        try:
            waiting = {running} if stopping.done() else {running, stopping}
            await asyncio.wait(waiting, timeout=TICK_SEC, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            is_interrupted = True
        # Once is enough: what is cancelled again would not write its files.
        if (is_interrupted or stopping.done()) and not running.cancelling():
            running.cancel()
    try:
        return running.result()
    except (asyncio.CancelledError, WorkerLostError):
        return None


async def _run_whole(order: TrialOrder, parcels: Parcels, line: Line) -> Returned:
    if order.proctor != __version__:
        raise TrialError(
            f"{socket.gethostname()} has proctor {__version__}, and the driver {order.proctor}"
        )
    here = ray.get_runtime_context().get_node_id()
    line.post(Began(socket.gethostname(), here, os.getpid()))
    home = NodeHome()
    with _host_variables(order.host), home.open_trial(order.key) as place:
        spec = await asyncio.to_thread(_place, home, order, parcels)
        async with remote_models(line, is_inside=order.is_inside) as models:
            executor = LocalExecutor(place, 1, replace(KINDS, models=models))
            mirror = asyncio.ensure_future(_send_live(place / spec.name, line))
            try:
                await executor.run(spec, lambda phase: line.post(Phase(phase)))
            finally:
                mirror.cancel()
        # Raises if the driver is lost: nobody stopped the trial then, whatever its result says.
        await line.flush()
        return await _hand_over(place, spec.name, line)


def _place(home: NodeHome, order: TrialOrder, parcels: Parcels) -> TrialSpec:
    """Fetch what a trial reads, and return the trial with the places of it here."""
    places = {}
    for tree in order.trees:
        name = Path(tree.path).name or "tree"
        fetch = partial(write_parcel, parcels[tree.digest])
        found = home.find_tree(tree.digest, name, fetch)
        places[tree.path] = str(found / name if tree.is_file else found)
    spec = parse_spec(order.spec)
    task = Path(places.pop(order.trees[0].path))
    record = replace(spec.record, node=socket.gethostname())
    return replace(spec.move_task(task), places=places, record=record)


@contextlib.contextmanager
def _host_variables(given: Mapping[str, str]) -> Iterator[None]:
    """Let templates and agents find the variables of the driver's machine, not the node's keys."""
    before = dict(os.environ)
    for name in before:
        if is_sensitive(name) and not name.startswith("RAY_"):
            del os.environ[name]
    os.environ.update(given)
    try:
        yield
    finally:
        for name in set(os.environ).difference(before):
            del os.environ[name]
        os.environ.update(before)


async def _send_live(directory: Path, line: Line) -> None:
    source = LiveSource(directory)
    # A trial that lost its driver is ended by `_run`.
    with contextlib.suppress(WorkerLostError):
        while True:
            await asyncio.sleep(_LIVE_SEC)
            for live in source.find_changes():
                await line.deliver(live)


async def _hand_over(place: Path, name: str, line: Line) -> Returned:
    """Pack everything that the trial left, and send it if it is large."""
    with tempfile.TemporaryFile(dir=place) as file:
        await asyncio.to_thread(pack, place / name, file)
        file.flush()
        size = file.tell()
        digest = await asyncio.to_thread(sha256_file, Path(f"/proc/self/fd/{file.fileno()}"))
        file.seek(0)
        if size <= LARGEST_INLINE:
            return Returned(size, digest, file.read(), line.n_sent)
        while data := await asyncio.to_thread(file.read, _PIECE):
            await line.deliver(Piece(data))
        return Returned(size, digest, None, line.n_sent)


def inspect_node(environment: str, job: str) -> bytes:
    """Return the NodeReport of this node, encoded."""
    problem = None
    try:
        check_classes(JobConfig.model_validate_json(job))
        executor = LocalExecutor(Path("/nowhere"), 1)
        _find_runner().run(executor.check(EnvironmentConfig.model_validate_json(environment)))
        NodeHome()
    except (ProctorError, OSError) as error:
        problem = str(error)
    return encode(
        NodeReport(
            socket.gethostname(),
            __version__,
            platform.python_version(),
            problem,
            needs_token=bool(is_token_auth_enabled()),
        )
    )


def collect_left(key: str, environment: str) -> bytes | None:
    """Return the archive of what a killed worker left here, which is removed; None if nothing.

    Its environment is ended, and what it had written inside goes to its files. What is too much to
    be returned stays, until a `sweep`.
    """
    _reap(environment)
    with NodeHome().claim_left(key) as left, tempfile.TemporaryFile() as file:
        if left is None:
            return None
        try:
            pack(left, file, LARGEST_LEFT)
        except TrialError:
            return None
        file.seek(0)
        packed = file.read()
        shutil.rmtree(left.parent, ignore_errors=True)
        return packed


def reap_node(environment: str) -> list[str]:
    """Remove what killed workers left on this node; returns sentences about what stays."""
    here = socket.gethostname()
    kept = (*_reap(environment), *sweep().kept)
    return [f"{here}: {sentence}" for sentence in kept]


def _reap(environment: str) -> Sequence[str]:
    executor = LocalExecutor(Path("/nowhere"), 1)
    config = EnvironmentConfig.model_validate_json(environment)
    return _find_runner().run(executor.reap(config))
