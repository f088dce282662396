"""Commands of the product on a place of their own, to be hurt, and what they leave on the machine.

    site.run("-p", task, …)              to its end
    with site.begun("-p", task, …) as runner:      while it runs

Every command has its cache, its scratch and its jobs below one directory; nothing waits for ever.
"""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from proctor.environments.sandbox.limits import find_hierarchies
from proctor.filesystems import list_mounts
from tests.cli.programs import ROOT, Ran, command_line, environment

PATIENCE_SEC = 120.0
"""A command that takes longer hangs."""


def wait_until(is_so: Callable[[], bool], runner: subprocess.Popen[str] | None = None) -> None:
    """Until something holds; the runner, if one is given, must live that long."""
    end = time.monotonic() + PATIENCE_SEC
    while not is_so():
        assert runner is None or runner.poll() is None, "the runner ended by itself"
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.02)


@dataclass(slots=True)
class Site:
    """A directory with tasks, jobs and whatever sandboxes need."""

    top: Path
    env: Mapping[str, str] = field(default_factory=dict)
    """Variables of every command besides its own."""
    pids: list[int] = field(default_factory=list)
    """Every command that was started here."""
    disks: list[Path] = field(default_factory=list)
    """What the test itself has mounted."""
    program: Sequence[str] = ()
    """What every command line begins with: a program that becomes somebody else, and executes."""
    others: frozenset[int] = field(default_factory=lambda: frozenset(descendants(os.getpid())))
    """What lived already when the test began: programs that other tests keep."""

    @property
    def jobs(self) -> Path:
        """Where jobs are."""
        return self.top / "jobs"

    @property
    def job(self) -> Path:
        """The one job that most of these tests have."""
        return self.jobs / "job"

    def make_task(self, name: str, *, test: str = "", dockerfile: str = "", toml: str = "") -> Path:
        """A task whose tests give 1, unless told otherwise; it has no network."""
        directory = self.top / "tasks" / name
        for path, text in {
            "task.toml": f'[environment]\nnetwork_mode = "no-network"\n{toml}',
            "instruction.md": f"Do {name}.\n",
            "environment/Dockerfile": f"FROM debian:12\n{dockerfile}",
            "tests/test.sh": test or "echo 1 > /logs/verifier/reward.txt\n",
            "solution/solve.sh": "true\n",
        }.items():
            (directory / path).parent.mkdir(parents=True, exist_ok=True)
            (directory / path).write_text(text)
        return directory

    def make_tasks(self, n_tasks: int) -> Path:
        """A dataset of such tasks."""
        for n in range(n_tasks):
            self.make_task(f"t{n:03}")
        return self.top / "tasks"

    def environment(self, changes: Mapping[str, str]) -> dict[str, str]:
        """The variables of a command."""
        ours = {"PROCTOR_CACHE": str(self.top / "cache"), **self.env, **changes}
        return {name: value for name, value in environment(**ours).items() if value}

    def run(self, *words: object, **changes: str) -> Ran:
        """`proctor run` of the job, to its end."""
        return self.proctor("run", *words, *self._places(), **changes)

    def resume(self, **changes: str) -> Ran:
        """`proctor resume` of the job, to its end."""
        return self.proctor("resume", self.job, **changes)

    def proctor(self, *words: object, **changes: str) -> Ran:
        """Any command, to its end."""
        with self._started(words, changes, {}) as process:
            out, err = process.communicate(timeout=PATIENCE_SEC)
        return Ran(process.returncode, out, err)

    @contextmanager
    def begun(self, *words: object, **changes: str) -> Iterator[subprocess.Popen[str]]:
        """`proctor run` of the job, while it runs; killed at the end if it still does."""
        with self._started(("run", *words, *self._places()), changes, {}) as process:
            yield process

    @contextmanager
    def resuming(self, **changes: str) -> Iterator[subprocess.Popen[str]]:
        """`proctor resume` of the job, while it runs; killed at the end if it still does."""
        with self._started(("resume", self.job), changes, {}) as process:
            yield process

    @contextmanager
    def begun_as(self, words: Sequence[object], **how: Any) -> Iterator[subprocess.Popen[str]]:
        """The same, with arguments for Popen; `args` stands for the program."""
        with self._started(("run", *words, *self._places()), {}, how) as process:
            yield process

    def _places(self) -> tuple[object, ...]:
        return ("-o", self.jobs, "--job-name", "job")

    @contextmanager
    def _started(
        self, words: Sequence[object], changes: Mapping[str, str], how: Mapping[str, Any]
    ) -> Iterator[subprocess.Popen[str]]:
        given: dict[str, Any] = {
            "args": [*self.program, *command_line(*words)],
            "cwd": self.top if self.program else ROOT,
            "env": self.environment(changes),
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            "text": True,
            "start_new_session": True,
            **how,
        }
        if "args" in how:
            given["args"] = [*how["args"], *map(str, words)]
        with subprocess.Popen(**given) as process:
            self.pids.append(process.pid)
            try:
                yield process
            finally:
                process.kill()

    # What is there

    def trials(self) -> list[Path]:
        """Directories of the job's trials, in the order of its plan."""
        return [self.job / slot["trial"] for slot in load(self.job / "proctor.json")["slots"]]

    def results(self) -> list[Any]:
        """Results of the job's trials, in the order of its plan."""
        return [load(trial / "result.json") for trial in self.trials()]

    def rewards(self) -> list[float | None]:
        """Rewards of the job's trials, in the order of its plan; None where there is none."""
        return [reward_of(result) for result in self.results()]

    def errors(self) -> list[tuple[str, str]]:
        """Type and message of each exception, in the order of the plan."""
        infos = [result["exception_info"] for result in self.results()]
        return [(info["exception_type"], info["exception_message"]) for info in infos if info]

    def findings(self) -> set[str]:
        """Codes of all findings of the job."""
        return {found["code"] for path in self.job.glob("*/findings.json") for found in load(path)}

    def scratch(self) -> list[Path]:
        """What is left of sandboxes on disk."""
        place = Path(self.env.get("PROCTOR_SCRATCH") or self.top / "cache" / "scratch")
        return sorted(place.glob("*/*")) + sorted(place.glob("*"))

    def sandboxes(self) -> list[Path]:
        """Scratch of sandboxes, of such as run and of such as were killed."""
        return [path.parent for path in self.scratch() if (path / "session.json").exists()]

    def check_nothing_runs(self) -> None:
        """No process and no mount of any command that was started here is left."""
        wait_until(lambda: not self.orphans())
        targets = {Path(mount.target) for mount in list_mounts()} - set(self.disks)
        assert not [target for target in targets if target.is_relative_to(self.top)]

    def check_nothing_left(self) -> None:
        """The same, and nothing on disk or among the control groups."""
        self.check_nothing_runs()
        assert self.scratch() == []
        assert self.groups() == []

    def orphans(self) -> list[int]:
        """What lives of commands that have ended; whatever they left became this process's child.

        The dead among them are buried.
        """
        for pid in set(children_of(os.getpid())) - set(self.pids) - self.others:
            if state_of(pid) == "Z":
                with suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)
        living = [pid for pid in descendants(os.getpid()) if state_of(pid) not in "ZX"]
        return [pid for pid in living if pid not in self.others]

    def groups(self) -> list[Path]:
        """Control groups of commands that were started here."""
        names = [f"proctor-{pid}-*" for pid in self.pids]
        tops = [hierarchy.parent for hierarchy in find_hierarchies()]
        return [group for top in tops for name in names for group in top.glob(name)]


def load(path: Path) -> Any:
    """What a JSON file holds."""
    return json.loads(path.read_text())


def reward_of(result: Any) -> float | None:
    """The reward that a trial's result names."""
    rewards = (result["verifier_result"] or {}).get("rewards") or {}
    value = rewards.get("reward")
    return None if value is None else float(value)


def describe(pid: int) -> str:
    """The words of a process; empty when it has gone."""
    with suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
        return words.decode(errors="replace")
    return ""


def name_of(pid: int) -> str:
    """The name that a process has given itself; empty when it has gone."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()
    return ""


def state_of(pid: int) -> str:
    """The letter that the kernel has for what a process does; X when it has gone."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0]
    return "X"


def children_of(pid: int) -> list[int]:
    """The processes that one has started, or was given."""
    text = ""
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            text += path.read_text()
    return [int(word) for word in text.split()]


def descendants(pid: int) -> list[int]:
    """All processes below one."""
    children = children_of(pid)
    return children + [one for child in children for one in descendants(child)]


def find_zygote(runner: int) -> int | None:
    """The process that a runner's sandboxes are forked from."""
    return next((pid for pid in descendants(runner) if "zygote" in name_of(pid)), None)


def find_inits(runner: int) -> list[int]:
    """PID 1 of each sandbox of a runner, as the host counts."""
    zygote = find_zygote(runner)
    return [] if zygote is None else children_of(zygote)


def file_bytes(top: Path) -> dict[str, bytes]:
    """All files below a directory, by their paths."""
    return {
        str(path.relative_to(top)): path.read_bytes()
        for path in sorted(top.rglob("*"))
        if path.is_file() and not path.is_symlink()
    }


def interrupt(runner: subprocess.Popen[str], number: signal.Signals = signal.SIGINT) -> Ran:
    """Send a signal and wait for the end."""
    runner.send_signal(number)
    out, err = runner.communicate(timeout=PATIENCE_SEC)
    return Ran(runner.returncode, out, err)
