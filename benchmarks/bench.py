"""Where and how often to measure, and the processes that are measured.

Every measured process gets one environment: compiled modules, the repository's sources on the
path, no network. Where memory or start-up counts, each figure is of a fresh process.
"""

import json
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

HARBOR = "harbor 0.13.1"


class BenchmarkError(Exception):
    """A measurement that cannot be taken, or two programs that did not do the same."""


@dataclass(frozen=True, slots=True)
class Bench:
    """What a subject is given."""

    data: Path
    """Directory for generated inputs; they are kept from run to run."""
    rounds: int = 5
    """How often each figure is taken."""

    def kept(self, name: str, fill: Callable[[Path], object]) -> Path:
        """A directory of generated input, made anew where an earlier run left it unfinished."""
        directory = self.data / name
        if not (directory / "whole").exists():
            shutil.rmtree(directory, ignore_errors=True)
            directory.mkdir(parents=True)
            fill(directory)
            (directory / "whole").touch()
        return directory

    def least(
        self, ours: Callable[[], float], other: Callable[[], float], *, rounds: int | None = None
    ) -> tuple[float, float]:
        """The least of several figures of each, taken in turns."""
        least, other_least = self.least_of(ours, other, rounds=rounds)
        return least, other_least

    def least_of(self, *takes: Callable[[], float], rounds: int | None = None) -> list[float]:
        """The same of any number of figures."""
        taken = [[take() for take in takes] for _ in range(min(rounds or self.rounds, self.rounds))]
        return [min(figures) for figures in zip(*taken, strict=True)]


def run_module(name: str, *arguments: str) -> dict[str, object]:
    """What `python -m benchmarks.NAME` prints: one JSON object."""
    answer: object = json.loads(run_python(["-m", f"benchmarks.{name}", *arguments]))
    if not isinstance(answer, dict):
        raise BenchmarkError(f"benchmarks.{name} printed {answer!r}; expected a JSON object")
    return answer


def command_seconds(arguments: Sequence[str], *, exits: Collection[int] = (0,)) -> float:
    """Wall time of a whole Python process, from its start to its end with one of the exit codes."""
    start = time.perf_counter()
    run_python(arguments, exits=exits)
    return time.perf_counter() - start


def cpu_seconds(arguments: Sequence[str]) -> float:
    """Processor time of a whole Python process and of those that it starts.

    For what neither waits nor shares its work: a busy machine makes it little longer.
    """
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run_python(arguments)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def entry_point(module: str, function: str, *arguments: str) -> list[str]:
    """Python arguments that do what an installed console script does."""
    program = f"import sys; from {module} import {function}; sys.exit({function}())"
    return ["-c", program, *arguments]


def peak_megabytes() -> float:
    """Most memory this process ever held, in MB.

    Not getrusage: its figure starts with the memory of the process that started this one.
    """
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1000
    raise BenchmarkError("/proc/self/status: no VmHWM line; expected Linux")


def figure(answer: dict[str, object], name: str) -> float:
    """A number of a process's answer."""
    value = answer.get(name)
    if not isinstance(value, int | float):
        raise BenchmarkError(f"{name} is {value!r} in what the process printed; expected a number")
    return float(value)


def check_same(what: str, ours: object, theirs: object) -> None:
    """Refuse to compare the speed of two programs whose results differ.

    Raises:
        BenchmarkError: they do.
    """
    if ours != theirs:
        raise BenchmarkError(f"{what}: our result is {ours}, theirs {theirs}; expected equal bytes")


def run_python(arguments: Sequence[str], *, exits: Collection[int] = (0,)) -> bytes:
    """What a Python process prints that ends with one of the exit codes."""
    done = subprocess.run(
        [sys.executable, *arguments], capture_output=True, check=False, cwd=ROOT, env=environment()
    )
    if done.returncode not in exits:
        tail = done.stderr.decode(errors="replace")[-2000:]
        raise BenchmarkError(f"python {' '.join(arguments)}: exit {done.returncode}\n{tail}")
    return done.stdout


def environment() -> dict[str, str]:
    """Of every process that is measured."""
    variables = dict(os.environ)
    # With it set, every start would compile every module again.
    variables.pop("PYTHONDONTWRITEBYTECODE", None)
    # Harbor's litellm would ask the network for a price list at every import, and wait for it.
    variables["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
    # Tasks of benchmarks name images of a registry that this machine may not reach.
    variables.setdefault("PROCTOR_BASE", "host")
    variables["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    return variables
