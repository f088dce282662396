"""The change record of a trial, and what its clean room costs.

The files are written by commands in a real sandbox, as an agent writes them. What is measured is
the step of a trial that lists, classifies and records them: the whole of it, repeated on the same
files. They were just written, so that they are in the page cache for every reader.

How fast `sha256sum` is depends on how it was built: not every one uses the processor's own
instructions. Therefore the bare hashing of as many bytes in memory, by ours, is a row too.
"""

import asyncio
import shlex
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.bench import Bench, BenchmarkError, check_same
from benchmarks.row import Row, share_of
from benchmarks.runner import (
    GREET,
    OUR_SANDBOX,
    WITH_CLEAN_ROOM,
    each_further,
    our_seconds,
    place_for_jobs,
)
from benchmarks.sizes import name_of_size
from proctor.agents.kinds import make_agent
from proctor.digest import sha256_hex
from proctor.environments.sandbox.environment import SandboxEnvironment
from proctor.harbor.configs import AgentConfig, EnvironmentConfig, TaskConfig, TrialConfig
from proctor.task.digests import load_digests
from proctor.task.directory import load_task
from proctor.trial.account import begin_account, note_changes
from proctor.trial.agent import Kinds
from proctor.trial.change_record import parse_changes
from proctor.trial.clock import SYSTEM
from proctor.trial.environment import Environment
from proctor.trial.making import make_environment
from proctor.trial.opening import open_files, opened
from proctor.trial.spec import RecordFields, TrialSpec
from proctor.trial.trial_run import TrialRun, stop_environment

_BUDGET = 0.005
"""Seconds that a hundred small files may take."""
_SMALL = 200
"""Bytes of a small file."""
_PLACE = "/app/many"
_IN_DIRECTORY = 100
"""Files of one directory."""


def changes_rows(
    bench: Bench, *, few: int = 100, many: int = 10_000, size: int = 100_000
) -> Iterator[Row]:
    """What few small files add to an empty record, and many large ones beside `sha256sum`."""
    with tempfile.TemporaryDirectory(dir=place_for_jobs(bench)) as scratch:
        name = f"changes-{name_of_size(few)}"
        extra = asyncio.run(_extra_seconds(bench, Path(scratch) / name, few))
        # A time: what few small files add is a difference of two figures, so near to nothing that a
        # ratio to a floor would be a ratio of two errors.
        yield share_of(name, (extra, _BUDGET), "five milliseconds", at_most=1)
        name = f"changes-{name_of_size(many)}"
        both = asyncio.run(_hashing_seconds(bench, Path(scratch) / name, many, size))
        yield share_of(name, both, "sha256sum of the same files", at_most=1.5)
        bare = min(_bare_seconds(many, size) for _ in range(min(3, bench.rounds)))
        yield share_of(f"{name}-bare", (both[0], bare), "hashing as many bytes in memory")


def clean_room_rows(bench: Bench, *, trials: int = 50) -> Iterator[Row]:
    """What each trial with a trivial verifier takes with its clean room, and without."""
    with tempfile.TemporaryDirectory(dir=place_for_jobs(bench)) as scratch:
        jobs = Path(scratch)
        one = bench.least(
            lambda: our_seconds(jobs, GREET, 1, WITH_CLEAN_ROOM),
            lambda: our_seconds(jobs, GREET, 1, OUR_SANDBOX),
            rounds=3,
        )
        more = bench.least(
            lambda: our_seconds(jobs, GREET, trials, WITH_CLEAN_ROOM),
            lambda: our_seconds(jobs, GREET, trials, OUR_SANDBOX),
            rounds=3,
        )
    each = [each_further(*pair, trials - 1) for pair in zip(one, more, strict=True)]
    yield share_of("clean-room", (each[0], each[1]), "--no-clean-room", at_most=3)


@dataclass(frozen=True, slots=True)
class _Begun:
    """A trial whose agent is at work in its sandbox."""

    sitting: TrialRun
    environment: Environment

    async def write(self, count: int, size: int) -> None:
        """Write files of random bytes."""
        n_directories = -(-count // _IN_DIRECTORY)
        in_each = min(count, _IN_DIRECTORY)
        split = f"head -c {in_each * size} /dev/urandom | split -a 3 -d -b {size}"
        await self.run(
            f"for n in $(seq {n_directories}); do d={_PLACE}/$n; mkdir -p $d; "
            f"{split} - $d/$n-; done"
        )

    async def hash(self) -> list[str]:
        """The digests of what was written, by the command."""
        told = await self.run(f"find {_PLACE} -type f -print0 | xargs -0 sha256sum")
        return sorted(line.split()[0] for line in told.splitlines())

    async def run(self, command: str) -> str:
        """Run a command inside."""
        done = await self.environment.exec(f"set -o pipefail; {command}")
        if done.return_code != 0:
            raise BenchmarkError(f"{shlex.quote(command)}: exit {done.return_code}: {done.stderr}")
        return done.stdout or ""

    async def record_seconds(self) -> float:
        """List, classify and record what was changed."""
        start = time.perf_counter()
        await note_changes(self.sitting, self.environment)
        return time.perf_counter() - start

    def recorded(self) -> list[str]:
        """The digests of all changed files that the record has."""
        record = parse_changes(self.sitting.paths.changes_path.read_bytes())
        return sorted(each.sha256 for each in record.changes if each.kind == "file")


async def _extra_seconds(bench: Bench, scratch: Path, count: int) -> float:
    async with _begun(scratch / "none") as none, _begun(scratch / "few") as few:
        await few.write(count, _SMALL)
        pairs = [
            (await few.record_seconds(), await none.record_seconds())
            for _ in range(10 * bench.rounds)
        ]
        check_same("changed files of an idle agent", none.recorded(), [])
        check_same("changed files", len(few.recorded()), count)
    return max(min(first for first, _ in pairs) - min(second for _, second in pairs), 1e-6)


async def _hashing_seconds(
    bench: Bench, scratch: Path, count: int, size: int
) -> tuple[float, float]:
    ours, theirs = [], []
    async with _begun(scratch) as trial:
        await trial.write(count, size)
        for _ in range(min(3, bench.rounds)):
            ours.append(await trial.record_seconds())
            start = time.perf_counter()
            digests = await trial.hash()
            theirs.append(time.perf_counter() - start)
            check_same(f"digests of {count} files", trial.recorded(), digests)
    return min(ours), min(theirs)


def _bare_seconds(count: int, size: int) -> float:
    data = bytes(size)
    start = time.perf_counter()
    for _ in range(count):
        sha256_hex(data)
    return time.perf_counter() - start


@asynccontextmanager
async def _begun(trials: Path) -> AsyncIterator[_Begun]:
    kinds = Kinds(make_agent, SandboxEnvironment)
    spec = _specify_trial(trials)
    with opened(spec, trials / spec.name, kinds, lambda _: None, SYSTEM) as sitting:
        open_files(sitting)
        environment = make_environment(sitting)
        try:
            await environment.start(force_build=False)
            await begin_account(sitting, environment)
            yield _Begun(sitting, environment)
        finally:
            await stop_environment(sitting)


def _specify_trial(trials: Path) -> TrialSpec:
    config = TrialConfig(
        task=TaskConfig(path=GREET),
        trial_name="bench",
        trials_dir=trials,
        agent=AgentConfig(name="nop"),
        environment=EnvironmentConfig(),
    )
    return TrialSpec(
        config=config,
        uri=(trials / "bench").as_uri(),
        task=load_task(GREET),
        digests=load_digests(GREET),
        record=RecordFields(experiment="bench"),
    )
