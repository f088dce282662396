"""An executor that shares no directory with the job: each trial runs in a process of its own.

    to the process      the spec as one line of JSON, then the task's directory as a tar
    from the process    a line for each phase, an empty line, then the trial's directory as a tar

It is cancelled by SIGTERM. python -m tests.executors.process_executor is the process.
"""

import asyncio
import io
import os
import shutil
import signal
import stat
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

import msgspec

from proctor.contained import check_relative, create_below, make_below
from proctor.environments.kinds import check_environment
from proctor.errors import TrialError
from proctor.harbor.configs import EnvironmentConfig
from proctor.harbor.trial_result import parse_trial_result
from proctor.job.local_executor import LocalExecutor
from proctor.task.directory import Task
from proctor.trial.executor import TrialOutcome
from proctor.trial.spec import TrialSpec, parse_spec, render_spec
from proctor.trial.trial_run import Watch

ROOT = Path(__file__).resolve().parent.parent.parent
LONGEST_LINE = 1 << 24


class ProcessExecutor:
    """See Executor."""

    def __init__(self, scratch: Path, capacity: int) -> None:
        """`scratch`: where directories of trials are unpacked before they are handed over."""
        self.scratch = scratch
        self.capacity = capacity
        self.processes: list[asyncio.subprocess.Process] = []

    async def check(self, environment: EnvironmentConfig) -> None:
        """See Executor."""
        await check_environment(environment)

    async def reap(self, environment: EnvironmentConfig) -> Sequence[str]:
        """See Executor; nothing of it outlives its processes here."""
        return ()

    async def run(self, spec: TrialSpec, watch: Watch) -> TrialOutcome:
        """See Executor."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.executors.process_executor"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            cwd="/",
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            limit=LONGEST_LINE,
            start_new_session=True,
        )
        self.processes.append(process)
        reading = asyncio.ensure_future(self._read(process, spec, watch))
        try:
            directory = await asyncio.shield(reading)
        except asyncio.CancelledError:
            if process.returncode is None:
                process.terminate()
            directory = await reading
        result = parse_trial_result((directory / "result.json").read_bytes())
        return TrialOutcome(result, directory)

    async def _read(
        self, process: asyncio.subprocess.Process, spec: TrialSpec, watch: Watch
    ) -> Path:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{render_spec(spec)}\n".encode() + pack(spec.task.directory))
        process.stdin.close()
        while (line := await process.stdout.readline()) not in (b"\n", b""):
            watch(line.decode().removesuffix("\n"))
        packed = await process.stdout.read()
        code = await process.wait()
        if code or not packed:
            raise TrialError(f"the process of {spec.name} ended with {code}, without a result")
        directory = Path(tempfile.mkdtemp(dir=self.scratch))
        await asyncio.to_thread(unpack, packed, directory)
        return directory


def pack(directory: Path) -> bytes:
    """A directory as a tar; each name of a file with several is a file of its own."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path in _find_below(directory):
            member = tar.gettarinfo(path, str(path.relative_to(directory)))
            member.mtime = 0
            if not path.is_symlink() and path.is_file():
                member.type, member.linkname = tarfile.REGTYPE, ""
                member.size = path.stat().st_size
                with path.open("rb") as file:
                    tar.addfile(member, file)
            else:
                tar.addfile(member)
    return packed.getvalue()


def _find_below(directory: Path) -> Iterator[Path]:
    for path in sorted(directory.iterdir()):
        yield path
        if path.is_dir() and not path.is_symlink():
            yield from _find_below(path)


def unpack(packed: bytes, directory: Path) -> None:
    """Write the members of a tar below a directory, and nowhere else.

    Raises:
        OSError: one has a path that leads elsewhere, or is of another kind.
    """
    with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        for member in tar:
            if member.isdir():
                make_below(directory, member.name)
                (directory / member.name).chmod(stat.S_IMODE(member.mode))
            elif member.isreg():
                file = tar.extractfile(member)
                assert file is not None
                with create_below(directory, member.name) as copy:
                    shutil.copyfileobj(file, copy)
                (directory / member.name).chmod(stat.S_IMODE(member.mode))
            elif member.issym():
                # The directory is there already, or what links there is refused by the next call.
                above, _, name = member.name.rpartition("/")
                check_relative(member.name)
                if above:
                    make_below(directory, above)
                (directory / above / name).symlink_to(member.linkname)
            else:
                raise OSError(f"{member.name}: neither a file nor a directory nor a link")


def move_task(task: Task, directory: Path) -> Task:
    """The same task, in a directory that has a copy of its files."""
    steps = [
        msgspec.structs.replace(step, directory=directory / "steps" / step.name)
        for step in task.steps
    ]
    return msgspec.structs.replace(task, directory=directory, steps=tuple(steps))


async def run_here(sent: BinaryIO, answer: BinaryIO) -> None:
    """Be the process: run the trial that is sent, and answer with what it left."""
    spec = parse_spec(sent.readline().decode())
    scratch = Path(tempfile.mkdtemp(prefix="trial-"))
    try:
        copy = scratch / "task" / spec.task.directory.name
        copy.mkdir(parents=True)
        unpack(sent.read(), copy)
        spec = replace(spec, task=move_task(spec.task, copy))

        def say(phase: str) -> None:
            answer.write(f"{phase}\n".encode())
            answer.flush()

        running = asyncio.ensure_future(LocalExecutor(scratch / "trials", 1).run(spec, say))
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, running.cancel)
        outcome = await running
        answer.write(b"\n" + pack(outcome.directory))
        answer.flush()
    finally:
        shutil.rmtree(scratch)


if __name__ == "__main__":
    # What an agent prints is no answer.
    answering = os.dup(1)
    os.dup2(2, 1)
    with os.fdopen(answering, "wb") as answered:
        asyncio.run(run_here(sys.stdin.buffer, answered))
