"""`--on slurm`: runs the same command in a pilot job of Slurm, and follows it to its end."""

import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import BinaryIO, Final

import click

from proctor.cli.running.display import say
from proctor.cluster.pilot_script import Pilot, render_script
from proctor.cluster.slurm import (
    ENDED,
    PENDING,
    UNKNOWN,
    SlurmJob,
    State,
    find_state,
    kill,
    stop,
    submit,
)
from proctor.environments.sandbox.scratch import cache_directory
from proctor.errors import ClusterError

_LOOK_SEC: Final = 0.5
_ASK_SEC: Final = (1.0, 15.0)
"""Pause between two questions to Slurm: at first, and at most."""
_LATE_SEC: Final = 10.0
"""How long files of a job may arrive after its end: network file systems remember what was not."""
_INTERRUPTED: Final = 130
_SAID: Final = (0, 3, _INTERRUPTED)
"""Exit codes of jobs that ran: logs of Ray are of no use then."""
_OWN_VALUES: Final = ("--on", "--slurm-arg")
_OWN_FLAGS: Final = ("--print-script",)
_WHY: Final = {
    "CANCELLED": "was cancelled",
    "NODE_FAIL": "lost its first node",
    "OUT_OF_MEMORY": "used more memory than it had asked for",
    "PREEMPTED": "was preempted",
    "TIMEOUT": "reached its time limit",
    UNKNOWN: "is no longer known to Slurm",
}


def check_slurm_options(options: Sequence[str]) -> None:
    """Check the values of `--slurm-arg`.

    Raises:
        UsageError: one is not an option of sbatch, or one that a pilot job cannot have.
    """
    for each in options:
        name = each.partition("=")[0]
        if not each.startswith("-") or "\n" in each:
            raise click.UsageError(
                f"--slurm-arg {each}: expected an option of sbatch, such as --slurm-arg=--nodes=4"
            )
        if name in ("--array", "--wrap", "--output", "--error") or each[:2] in ("-a", "-o", "-e"):
            raise click.UsageError(f"--slurm-arg {each}: proctor sets this itself")


def make_pilot(words: Sequence[str], name: str, options: Sequence[str]) -> Pilot:
    """Return the pilot job for a command line, whose paths are those of the working directory."""
    return Pilot(
        name=name,
        line=[*_without_own(words), "--on", "ray"],
        python=sys.executable,
        directory=Path.cwd(),
        pilots=cache_directory() / "slurm",
        options=options,
    )


def _without_own(words: Sequence[str]) -> Iterator[str]:
    """Yield the words of a command line that are not about Slurm."""
    left = iter(words)
    for word in left:
        if word in _OWN_VALUES:
            next(left, None)
        elif word not in _OWN_FLAGS and word.partition("=")[0] not in _OWN_VALUES:
            yield word


def run_pilot(pilot: Pilot, directory: Path, *, print_script: bool) -> int:
    """Submit a pilot job and follow it; returns the exit code of its command."""
    if print_script:
        click.echo(render_script(pilot), nl=False)
        return 0
    job = submit(pilot)
    say(f"Slurm job {job.number} submitted; Ctrl-C ends it and keeps its results")
    return _Following(job, directory).run()


@dataclass
class _Following:
    job: SlurmJob
    directory: Path
    """The directory of proctor's job."""
    n_signals: int = 0
    n_stops: int = 0
    state: State = field(default_factory=lambda: State("PENDING"))
    offsets: list[int] = field(default_factory=lambda: [0, 0])
    next_ask: float = 0
    pause_sec: float = _ASK_SEC[0]

    def run(self) -> int:
        """Print what the job prints until it ends."""
        ended_at = None
        with self._catching_signals():
            while (code := self.job.find_code()) is None:
                self._print_new()
                if self.n_signals > self.n_stops:
                    self._stop()
                if self.n_stops > 1 or (self.n_stops and self.state.name in PENDING):
                    return _INTERRUPTED
                self._ask()
                if self.state.name in ENDED | {UNKNOWN}:
                    ended_at = ended_at or time.monotonic()
                    if time.monotonic() > ended_at + _LATE_SEC:
                        return self._end_without_code()
                else:
                    ended_at = None
                time.sleep(_LOOK_SEC)
        self._print_new()
        if code == _INTERRUPTED and not self.n_stops:
            say(f"Slurm ended job {self.job.number}, by its time limit or by scancel")
            say(self._remedy)
        if code in _SAID:
            self.job.forget()
        return code

    def _ask(self) -> None:
        if time.monotonic() < self.next_ask:
            return
        # Slurm that does not answer may be restarting: the job runs on.
        before, self.state = self.state, find_state(self.job) or self.state
        if str(before) != str(self.state) and self.state.name != "COMPLETING":
            say(f"Slurm job {self.job.number}: {self.state}")
        self.next_ask = time.monotonic() + self.pause_sec
        self.pause_sec = min(self.pause_sec * 1.5, _ASK_SEC[1])

    def _stop(self) -> None:
        self.n_stops = self.n_signals
        if self.n_stops > 1:
            kill(self.job)
            return
        self.state = find_state(self.job) or self.state
        say(f"stopping Slurm job {self.job.number}; press Ctrl-C again to end it at once")
        stop(self.job, is_pending=self.state.name in PENDING)

    def _end_without_code(self) -> int:
        self._print_new()
        if self.n_stops:
            return _INTERRUPTED
        why = _WHY.get(self.state.name, f"ended as {self.state}")
        raise ClusterError(
            f"Slurm job {self.job.number} {why}; what it printed is in {self.job.outputs[1]}. "
            f"{self._remedy}"
        )

    @property
    def _remedy(self) -> str:
        if self.directory.exists():
            return f"Continue with: proctor resume {self.directory} --on slurm"
        return "No trial started; run the command again"

    def _print_new(self) -> None:
        sys.stdout.flush()
        for at, (path, file) in enumerate(
            zip(self.job.outputs, (sys.stdout, sys.stderr), strict=True)
        ):
            self.offsets[at] += _copy(path, self.offsets[at], file.buffer)

    @contextmanager
    def _catching_signals(self) -> Iterator[None]:
        def count(_number: int, _frame: FrameType | None) -> None:
            self.n_signals += 1

        # Not SIGHUP: a closed terminal leaves the job to Slurm.
        earlier = {each: signal.signal(each, count) for each in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in earlier.items():
                signal.signal(number, handler)


def _copy(path: Path, offset: int, target: BinaryIO) -> int:
    """Copy what a file has from an offset on; returns how much."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return 0
    with os.fdopen(fd, "rb") as source:
        source.seek(offset)
        text = source.read()
    target.write(text)
    target.flush()
    return len(text)
