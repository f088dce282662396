"""Messages of a trial that come when it has ended already: the link and the task race.

Without a cluster: the actor is an object of the test, and so is the worker.
"""

import asyncio
import io
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from ray.exceptions import WorkerCrashedError

from proctor.cluster.archive import pack
from proctor.cluster.executor import RayExecutor
from proctor.cluster.link import Began, Line, Link, Live, Phase
from proctor.cluster.live import LiveTarget
from proctor.cluster.nodes import Node
from proctor.cluster.worker import Returned
from proctor.digest import sha256_hex
from proctor.harbor.configs import JobConfig
from proctor.job.local_executor import LocalExecutor
from proctor.job.options import ExecutorOrder
from proctor.trial.executor import TrialOutcome
from proctor.trial.spec import TrialSpec
from proctor.trial.trial import run_trial
from tests.executors.test_contract import make_spec
from tests.job.jobs import agent

LOG = Live("agent/trajectory.jsonl", b"late\n", 0)
type Work = Callable[["Worker"], Awaitable[bytes]]


class Handle:
    """An actor, as others call it."""

    def __init__(self, actor: Link) -> None:
        self.actor = actor

    def __getattr__(self, name: str) -> SimpleNamespace:
        called = getattr(self.actor, name)
        return SimpleNamespace(remote=lambda *given: asyncio.ensure_future(called(*given)))


class Worker:
    """A worker of one trial, which has ended with these files."""

    def __init__(self, handle: Handle, key: str, packed: bytes) -> None:
        self.line, self.packed = Line(handle, key), packed
        self.saying: asyncio.Future[None] | None = None

    async def say(self, *messages: Any, after: float = 0) -> None:
        await asyncio.sleep(after)
        for message in messages:
            await self.line.deliver(message)
        # Until the driver has had every opportunity to take them.
        await asyncio.sleep(0.2)

    def value(self, n_sent: int) -> bytes:
        digest = sha256_hex(self.packed)
        return msgspec.msgpack.encode(Returned(len(self.packed), digest, self.packed, n_sent))


@pytest.fixture
def spec(tmp_path: Path) -> TrialSpec:
    """A trial."""
    return make_spec(tmp_path, agent("Echoing"))


@pytest.fixture
def run(
    spec: TrialSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Work, list[str]], TrialOutcome]:
    """Runs the trial with a worker that does so."""
    node = [Node("1", "node", 4, 8000)]
    monkeypatch.setattr(RayExecutor, "_find_nodes", lambda _: node)
    monkeypatch.setattr(RayExecutor, "_make_link", lambda _: Handle(Link()))
    made = asyncio.run(LocalExecutor(tmp_path / "node", 1).run(spec, lambda _: None))
    packed = io.BytesIO()
    pack(made.directory, packed)
    order = ExecutorOrder(
        trials_dir=tmp_path / "trials",
        config=JobConfig(job_name="job"),
        tasks=(),
        n_concurrent=1,
        host={},
    )

    async def act(work: Work, phases: list[str]) -> TrialOutcome:
        executor = RayExecutor(order)

        async def submit(_: RayExecutor, running: Any) -> Any:
            worker = Worker(executor._link, running.key, packed.getvalue())
            return asyncio.ensure_future(work(worker))

        monkeypatch.setattr(RayExecutor, "_submit", submit)
        receiving = asyncio.ensure_future(executor._receive())
        outcome = await executor.run(spec, phases.append)
        receiving.cancel()
        # The actor has forgotten the trial.
        await asyncio.sleep(0)
        assert executor._link.actor._trials == {}
        return outcome

    return lambda work, phases: asyncio.run(act(work, phases))


def test_messages_that_the_tasks_value_overtakes_are_waited_for(
    run: Callable[[Work, list[str]], TrialOutcome], tmp_path: Path
) -> None:
    async def work(worker: Worker) -> bytes:
        messages = Began("node", "1", 1), Phase("agent"), LOG, Phase("record")
        worker.saying = asyncio.ensure_future(worker.say(*messages, after=0.2))
        return worker.value(n_sent=4)

    phases: list[str] = []
    outcome = run(work, phases)
    assert phases == ["agent", "record"]
    made = tmp_path / "node" / outcome.directory.name
    assert read(outcome.directory) == read(made)


def test_a_message_cannot_change_what_a_trial_left(
    run: Callable[[Work, list[str]], TrialOutcome],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    workers: list[Worker] = []

    async def work(worker: Worker) -> bytes:
        workers.append(worker)
        loops.append(asyncio.get_running_loop())
        return worker.value(n_sent=0)

    loops: list[asyncio.AbstractEventLoop] = []
    clear = LiveTarget.clear

    def clear_late(target: LiveTarget, keep: Any = ()) -> None:
        clear(target, keep)
        late = workers[0].say(LOG, Live("record.json", b"late"))
        asyncio.run_coroutine_threadsafe(late, loops[0]).result()

    monkeypatch.setattr(LiveTarget, "clear", clear_late)
    outcome = run(work, [])
    made = tmp_path / "node" / outcome.directory.name
    assert read(outcome.directory) == read(made)


def test_a_message_cannot_change_what_is_on_record_of_a_lost_trial(
    run: Callable[[Work, list[str]], TrialOutcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    workers: list[Worker] = []

    async def work(worker: Worker) -> bytes:
        workers.append(worker)
        raise WorkerCrashedError

    async def run_late(*given: Any) -> Any:
        result = await run_trial(*given)
        await workers[0].say(LOG, Live("record.json", b"late"))
        return result

    monkeypatch.setattr("proctor.cluster.executor.run_trial", run_late)
    outcome = run(work, [])
    assert outcome.is_lost
    assert not (outcome.directory / "agent" / "trajectory.jsonl").exists()
    assert b"late" not in (outcome.directory / "record.json").read_bytes()


def read(directory: Path) -> dict[str, bytes]:
    files = [path for path in directory.rglob("*") if path.is_file()]
    return {str(path.relative_to(directory)): path.read_bytes() for path in files}
